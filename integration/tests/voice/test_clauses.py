from __future__ import annotations

import pytest

from omni_serve.voice.clauses import ClauseSplitter

hypothesis = pytest.importorskip("hypothesis", reason="the properties need hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402


def split(text: str, step: int = 3) -> list[str]:
    splitter = ClauseSplitter()
    found: list[str] = []
    for start in range(0, len(text), step):
        found += splitter.push(text[start : start + step])
    return found + splitter.finish()


def test_a_clause_is_given_as_soon_as_it_is_complete() -> None:
    splitter = ClauseSplitter()
    assert splitter.push("Of course, ") == ["Of course,"]
    assert splitter.push("the moon is far. It") == ["the moon is far."]
    assert splitter.finish() == ["It"]


def test_a_full_stop_waits_for_what_follows() -> None:
    splitter = ClauseSplitter()
    assert splitter.push("It costs 3.") == []
    assert splitter.push("50 euros. ") == ["It costs 3.50 euros."]


@pytest.mark.parametrize("text", ["Dr. Smith is in.", "Ask J. Doe for it.", "Use a tool, e.g. this one."])
def test_an_abbreviation_does_not_end_a_sentence(text: str) -> None:
    assert not any(clause.endswith(("Dr.", "J.", "e.g.")) for clause in split(text))


def test_a_long_first_clause_is_cut_where_one_takes_a_breath_and_a_short_one_is_not() -> None:
    splitter = ClauseSplitter()
    assert splitter.push("Boiling an egg is a simple process") == []
    assert splitter.push(" that takes") == ["Boiling an egg"]
    assert splitter.push(" ten minutes in water and then some more of it.") == [], "later clauses are left whole"
    assert split("The moon is a celestial body that orbits the Earth.", 1)[0] == "The moon is a celestial body"
    assert split("The capital of Italy is Rome. It is old.") == ["The capital of Italy is Rome.", "It is old."]


def test_punctuation_alone_is_not_spoken() -> None:
    assert split("... !!! \n\n — ") == []


def test_text_without_any_end_is_cut_at_a_space() -> None:
    clauses = split("word " * 200)
    assert max(map(len, clauses)) <= 240
    assert " ".join(clauses).split() == ["word"] * 200


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.text("ab.,!? \n\"'é1", max_size=400), st.integers(1, 50))
def test_no_word_is_lost_or_said_twice_however_the_text_arrives(text: str, step: int) -> None:
    words = [word for word in text.split() if any(c.isalnum() for c in word)]
    said = [word for word in " ".join(split(text, step)).split() if any(c.isalnum() for c in word)]
    assert "".join(said) == "".join(words)
