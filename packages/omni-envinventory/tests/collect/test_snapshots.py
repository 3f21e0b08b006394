"""Snapshots and their differences, and provenance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omni_envinventory import (
    Inventory,
    Provenance,
    Snapshot,
    SnapshotError,
    Variable,
    collect,
    diff,
    read_snapshot,
    this_process,
)
from omni_envinventory.collect import Change, Environment, Fingerprinter, Label, as_json, diff_text

APP = Inventory("app", (Variable("APP_A", "public"), Variable("APP_B", "public", default="7")))
KEY, OTHER = Fingerprinter(b"k" * 32), Fingerprinter(b"o" * 32)


def snap(environ: dict[str, str], fingerprinter: Fingerprinter | None = KEY) -> Snapshot:
    return collect(APP, environment=this_process(environ), fingerprinter=fingerprinter)


def test_masked_values_are_compared_without_being_shown() -> None:
    same = diff(snap({"DB_PASSWORD": "one-secret"}), snap({"DB_PASSWORD": "one-secret"}))
    changed = diff(snap({"DB_PASSWORD": "one-secret"}), snap({"DB_PASSWORD": "two-secret"}))
    assert same == ()
    assert [(d.name, d.change) for d in changed] == [("DB_PASSWORD", Change.CHANGED)]
    assert "secret" not in diff_text(changed)


def test_values_left_out_are_compared_too() -> None:
    assert diff(snap({"OTHER": "x"}), snap({"OTHER": "x"})) == ()
    assert [d.change for d in diff(snap({"OTHER": "x"}), snap({"OTHER": "y"}))] == [Change.CHANGED]


@pytest.mark.parametrize("other", [OTHER, None])
def test_another_key_cannot_compare_and_says_so(other: Fingerprinter | None) -> None:
    found = diff(snap({"DB_PASSWORD": "a-secret"}), snap({"DB_PASSWORD": "a-secret"}, other))
    assert [d.change for d in found] == [Change.UNCOMPARABLE]


def test_added_removed_and_changed() -> None:
    found = diff(snap({"APP_A": "1", "X": "1"}), snap({"APP_A": "2", "APP_B": "3"}))
    assert {d.name: d.change for d in found} == {"APP_A": Change.CHANGED, "APP_B": Change.ADDED, "X": Change.REMOVED}
    assert "~ APP_A: 1 -> 2" in diff_text(found)


def test_an_unavailable_environment_says_nothing() -> None:
    unavailable = collect(APP, environment=Environment(Label.UNAVAILABLE, 1, None, "gone"))
    assert [d.change for d in diff(unavailable, snap({"APP_A": "1"}))] == [Change.UNCOMPARABLE]


def test_equal_values_of_two_names_have_different_fingerprints() -> None:
    marks = {entry.fingerprint for entry in snap({"A_TOKEN": "same", "B_TOKEN": "same"}).entries if entry.fingerprint}
    assert len(marks) == 2


def test_round_trip(tmp_path: Path) -> None:
    snapshot = collect(
        APP, environment=this_process({"APP_A": "1", "N": "x"}), provenance={"APP_A": "cli"}, fingerprinter=KEY
    )
    path = tmp_path / "s.json"
    path.write_text(as_json(snapshot))
    assert read_snapshot(path) == snapshot


def test_provenance() -> None:
    snapshot = collect(
        APP, environment=this_process({"APP_A": "1"}), provenance={"APP_A": Provenance.YAML, "APP_B": "default"}
    )
    by_name = {entry.name: entry.provenance for entry in snapshot.entries}
    assert by_name == {"APP_A": Provenance.YAML, "APP_B": Provenance.DEFAULT}
    assert "from yaml" in snapshot.to_text()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"schema": "omni-envinventory/snapshot/1"}',
        '{"schema": "omni-envinventory/snapshot/1", "entries": [1]}',
    ],
)
def test_damaged_snapshots(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(SnapshotError) as caught:
        read_snapshot(path)
    assert caught.value.source == str(path)


def test_schema_is_as_documented() -> None:
    document = json.loads(as_json(snap({"APP_A": "1"})))
    assert set(document) == {"schema", "label", "pid", "reason", "inventory", "key_id", "entries"}
    assert set(document["entries"][0]) == {"name", "state", "value", "note", "provenance", "fingerprint"}


def test_two_processes_share_one_key(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "key"
    assert Fingerprinter.load(path).key_id == Fingerprinter.load(path).key_id
    assert [entry.name for entry in path.parent.iterdir()] == ["key"]
