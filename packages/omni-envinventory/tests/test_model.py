"""Inventories: what they may say, and the file and line of what they must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_envinventory import (
    DuplicateNameError,
    Inventory,
    InventoryError,
    InventoryNotFoundError,
    Lifecycle,
    MissingFieldError,
    UnknownFieldError,
    UnknownValueError,
    Variable,
    load_inventory,
    parse_inventory,
)

GOOD = """\
[inventory]
name = "app"
owned_prefixes = ["APP_"]

[rules]
required_prefixes = ["APP_"]
[rules.counts]
public = 1

[[variable]]
name = "APP_A"   # comment
category = "public"
summary = '''
[[variable]]
name = "not one"
'''
type = "integer"

[[variable]]
name = "RANK_*"
category = "platform"
"""


def test_a_good_one() -> None:
    inventory = parse_inventory(GOOD, "app.toml")
    assert [(v.name, v.line) for v in inventory] == [("APP_A", 10), ("RANK_*", 19)]
    assert inventory.counts() == {"public": 1, "platform": 1}
    found = inventory.find("RANK_3")
    assert found is not None
    assert found.is_pattern
    assert inventory.find("RANK_*") is found
    assert inventory.find("OTHER") is None


WRONG: dict[str, tuple[str, type[InventoryError], int]] = {
    "twice": (
        '[[variable]]\nname = "A"\ncategory = "public"\n\n[[variable]]\nname = "A"\ncategory = "public"\n',
        DuplicateNameError,
        5,
    ),
    "unknown field": ('[[variable]]\nname = "A"\ncategory = "public"\ncolour = "red"\n', UnknownFieldError, 4),
    "unknown category": ('[[variable]]\nname = "A"\ncategory = "secret"\n', UnknownValueError, 1),
    "unknown lifecycle": ('[[variable]]\nname = "A"\ncategory = "public"\nlifecycle = "old"\n', UnknownValueError, 4),
    "deprecated without replacement": (
        '\n[[variable]]\nname = "A"\ncategory = "public"\nlifecycle = "deprecated"\n',
        MissingFieldError,
        2,
    ),
    "removed without replacement": (
        '[[variable]]\nname = "A"\ncategory = "public"\nlifecycle = "removed"\n',
        MissingFieldError,
        1,
    ),
    "no name": ('[[variable]]\ncategory = "public"\n', MissingFieldError, 1),
    "no category": ('[[variable]]\nname = "A"\n', MissingFieldError, 1),
    "redact is no text": ('[[variable]]\nname = "A"\ncategory = "public"\nredact = "yes"\n', UnknownValueError, 4),
    "stages is a list": ('[[variable]]\nname = "A"\ncategory = "public"\nstages = "x"\n', UnknownValueError, 4),
    "name is text": ('[[variable]]\nname = 3\ncategory = "public"\n', UnknownValueError, 2),
    "impossible name": ('[[variable]]\nname = "A=B"\ncategory = "public"\n', UnknownValueError, 1),
    "covers everything": ('[[variable]]\nname = "*"\ncategory = "public"\n', UnknownValueError, 1),
    "model without disposition": ('[[variable]]\nname = "A"\ncategory = "model"\n', MissingFieldError, 1),
    "disposition of another category": (
        '[[variable]]\nname = "A"\ncategory = "public"\ndisposition = "promote"\n',
        MissingFieldError,
        1,
    ),
    "unknown disposition": (
        '[[variable]]\nname = "A"\ncategory = "model"\ndisposition = "keep"\n',
        UnknownValueError,
        1,
    ),
    "unknown table": ('[inventory]\nname = "x"\n\n[variables]\n', UnknownFieldError, 4),
    "unknown inventory field": ('[inventory]\nnmae = "x"\n', UnknownFieldError, 2),
    "unknown rule": ('[rules]\nprefix = ["A"]\n', UnknownFieldError, 2),
    "count is a number": ('[rules.counts]\npublic = "3"\n', UnknownValueError, 2),
    "waiver without reason": ('[[waiver]]\npath = "x.py"\n', MissingFieldError, 1),
    "not toml": ("[inventory]\nname = \n", InventoryError, 2),
}


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_wrong_ones_name_file_and_line(case: str, tmp_path: Path) -> None:
    text, kind, line = WRONG[case]
    path = tmp_path / "inventory.toml"
    path.write_text(text)
    with pytest.raises(kind) as caught:
        load_inventory(path)
    assert (caught.value.source, caught.value.line) == (str(path), line)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_errors_are_values_errors_and_one_tree() -> None:
    assert issubclass(DuplicateNameError, InventoryError)
    assert issubclass(InventoryError, ValueError)
    assert issubclass(InventoryNotFoundError, FileNotFoundError)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InventoryNotFoundError):
        load_inventory(tmp_path / "none.toml")


def test_in_code() -> None:
    inventory = Inventory("x", (Variable("A", "public"), Variable("B", "public")))
    assert len(inventory) == 2
    with pytest.raises(DuplicateNameError):
        inventory.with_variables([Variable("A", "internal")])


def test_own_categories() -> None:
    text = '[inventory]\ncategories = ["ci"]\n\n[[variable]]\nname = "A"\ncategory = "ci"\n'
    assert parse_inventory(text).counts() == {"ci": 1}


def test_extends_knows_but_does_not_own() -> None:
    inventory = parse_inventory('[inventory]\nextends = ["vllm-omni"]\n')
    assert inventory.find("HF_TOKEN") is not None
    assert inventory.own("HF_TOKEN") is None
    assert len(inventory) == 0


def test_built_in_counts() -> None:
    inventory = load_inventory("vllm-omni")
    assert len(inventory) == 148
    assert inventory.counts() == {
        "public": 22,
        "inherited": 20,
        "platform": 27,
        "model": 57,
        "benchmark": 20,
        "internal": 2,
    }
    assert list(inventory.dispositions().values()) == [33, 6, 0, 11, 7]
    assert {v.name for v in inventory if v.redact} == {"HF_TOKEN", "HUGGINGFACE_HUB_TOKEN", "OPENAI_API_KEY"}
    deprecated = {v.name: v.replacement for v in inventory if v.lifecycle is Lifecycle.DEPRECATED}
    assert deprecated["DIFFUSION_CACHE_ADAPTER"] == "DIFFUSION_CACHE_BACKEND"
    assert inventory.rules.counts == inventory.counts()
