from __future__ import annotations

import pytest

from omni_serve.contract import Message
from omni_serve.engine.conversation import Conversation

hypothesis = pytest.importorskip("hypothesis", reason="the properties need hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402


def spoken(*clauses: tuple[str, float]) -> Conversation:
    talk = Conversation()
    talk.begin_reply("r")
    for words, duration_ms in clauses:
        talk.write("r", words + " ")
        talk.speak("r", words, duration_ms)
    return talk


def test_a_conversation_is_what_was_said_in_order_with_the_instructions_first() -> None:
    talk = Conversation()
    talk.add("user", " Hello. ")
    talk.begin_reply("r")
    assert talk.messages("") == (Message("user", "Hello."),), "a reply without text is no message yet"
    talk.write("r", "Hi")
    talk.write("r", " there.")
    talk.write("unknown", "nothing")
    assert talk.messages("Be kind.") == (
        Message("system", "Be kind."),
        Message("user", "Hello."),
        Message("assistant", "Hi there."),
    )


def test_whole_clauses_are_kept_and_the_cut_one_by_its_share() -> None:
    talk = spoken(("The moon is far.", 1000), ("It is made of stone.", 1000))
    assert talk.truncate("r", 1600) == "The moon is far. It is made"
    assert talk.messages("") == (Message("assistant", "The moon is far. It is made"),)


def test_a_clause_in_pieces_counts_whole() -> None:
    talk = spoken(("one two three four", 200))
    for _ in range(3):
        talk.speak("r", "", 200)
    assert talk.truncate("r", 400) == "one two"


def test_a_reply_of_which_nothing_was_heard_is_not_remembered() -> None:
    talk = spoken(("The moon is far.", 1000))
    assert talk.truncate("r", 0) == ""
    assert talk.messages("") == ()
    assert talk.truncate("unknown", 10) is None


def test_the_oldest_messages_go_first() -> None:
    talk = Conversation(most=3)
    for number in range(5):
        talk.add("user", str(number))
    assert [m.content for m in talk.messages("")] == ["2", "3", "4"]


_CLAUSES = st.lists(
    st.tuples(st.lists(st.sampled_from("abc"), min_size=1).map(" ".join), st.floats(1, 5000)), max_size=8
)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(_CLAUSES, st.floats(-100, 50_000), st.floats(0, 10_000))
def test_more_heard_keeps_more_and_always_a_beginning(
    clauses: list[tuple[str, float]], heard_ms: float, more_ms: float
) -> None:
    whole = " ".join(words for words, _ in clauses).split()
    less = (spoken(*clauses).truncate("r", heard_ms) or "").split()
    more = (spoken(*clauses).truncate("r", heard_ms + more_ms) or "").split()
    assert less == whole[: len(less)]
    assert more == whole[: len(more)]
    assert len(less) <= len(more)
    if heard_ms > sum(duration_ms for _, duration_ms in clauses) + 1:
        assert less == whole
