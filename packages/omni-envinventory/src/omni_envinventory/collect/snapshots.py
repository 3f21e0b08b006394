"""Snapshots in files, and the difference of two."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from omni_envinventory.errors import SnapshotError
from omni_envinventory.model import Inventory

from .fingerprints import Fingerprinter
from .report import Entry, Provenance, Snapshot, State, as_json, collect
from .sources import Label

SCHEMA = "omni-envinventory/snapshot/1"


def write_snapshot(
    path: str | Path,
    inventory: Inventory | str | Path = "vllm-omni",
    *,
    key_path: Path | None = None,
    provenance: Mapping[str, Provenance | str] | None = None,
) -> Snapshot:
    """What a worker writes about itself, masked before it reaches the disk, readable by its owner, in one step.

    Args:
        path: The file; an existing one is replaced whole.
        inventory: What is public and what is redacted.
        key_path: The comparison key; without one, masked values of this snapshot cannot be compared.
        provenance: Where values in force came from.

    Raises:
        OSError: The file or the key cannot be written.
        InventoryError: The inventory says something it must not.
    """
    fingerprinter = Fingerprinter.load(key_path) if key_path is not None else None
    snapshot = collect(inventory, provenance=provenance, fingerprinter=fingerprinter)
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".snapshot-")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(as_json(snapshot) + "\n")
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return snapshot


def _text(source: str, values: Mapping[str, Any], key: str, *, optional: bool = False) -> str | None:
    value = values.get(key)
    if isinstance(value, str) or (optional and value is None):
        return value
    raise SnapshotError(source, f"{key} must be text")


def read_snapshot(path: str | Path) -> Snapshot:
    """A snapshot from its file.

    Raises:
        SnapshotError: The file is no snapshot.
        FileNotFoundError: There is no such file.
    """
    source = str(path)
    try:
        loaded = json.loads(Path(path).read_text("utf-8"))
    except ValueError:
        raise SnapshotError(source, "not JSON") from None
    if not isinstance(loaded, dict) or loaded.get("schema") != SCHEMA:
        raise SnapshotError(source, f"not a snapshot of schema {SCHEMA}")
    entries: list[Entry] = []
    try:
        for raw in loaded["entries"]:
            provenance = _text(source, raw, "provenance", optional=True)
            entries.append(
                Entry(
                    str(_text(source, raw, "name")),
                    State(raw["state"]),
                    _text(source, raw, "value", optional=True),
                    _text(source, raw, "note") or "",
                    None if provenance is None else Provenance(provenance),
                    _text(source, raw, "fingerprint", optional=True),
                )
            )
        label, pid = Label(loaded["label"]), int(loaded["pid"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(source, f"an entry is damaged ({type(error).__name__})") from None
    key_id = _text(source, loaded, "key_id", optional=True)
    reason, inventory = _text(source, loaded, "reason") or "", _text(source, loaded, "inventory") or ""
    return Snapshot(label, pid, reason, tuple(entries), inventory, key_id)


class Change(StrEnum):
    """How a variable differs between two snapshots."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    UNCOMPARABLE = "cannot be compared"


@dataclass(frozen=True, slots=True)
class Difference:
    """One variable that differs; values appear as far as the snapshots show them.

    Attributes:
        name: The variable.
        change: How it differs.
        before: What the first snapshot shows.
        after: What the second shows.
    """

    name: str
    change: Change
    before: str | None
    after: str | None

    def to_json(self) -> dict[str, str | None]:
        """The difference in the documented JSON form."""
        return {"name": self.name, "change": str(self.change), "before": self.before, "after": self.after}


def _shown(entry: Entry) -> str:
    return entry.value if entry.value is not None else "<not shown>"


def diff(before: Snapshot, after: Snapshot) -> tuple[Difference, ...]:
    """What changed from one snapshot to another.

    Masked and unshown values are compared by fingerprint when both snapshots were made with the same key; otherwise
    they are said to be beyond comparison. A snapshot of an unavailable environment says nothing: all is then beyond it.
    """
    if Label.UNAVAILABLE in (before.label, after.label):
        names = sorted({entry.name for entry in (*before.entries, *after.entries) if entry.state is not State.UNSET})
        return tuple(Difference(name, Change.UNCOMPARABLE, None, None) for name in names)
    old = {entry.name: entry for entry in before.entries if entry.state is not State.UNSET}
    new = {entry.name: entry for entry in after.entries if entry.state is not State.UNSET}
    comparable = before.key_id is not None and before.key_id == after.key_id
    found: list[Difference] = []
    for name in sorted({*old, *new}):
        first, second = old.get(name), new.get(name)
        if first is None or second is None:
            change = Change.ADDED if first is None else Change.REMOVED
        elif comparable and first.fingerprint and second.fingerprint:
            if first.fingerprint == second.fingerprint:
                continue
            change = Change.CHANGED
        elif first.state is State.SHOWN and second.state is State.SHOWN:
            if first.value == second.value:
                continue
            change = Change.CHANGED
        elif {first.state, second.state} == {State.SHOWN, State.MASKED}:
            change = Change.CHANGED
        else:
            change = Change.UNCOMPARABLE
        found.append(
            Difference(
                name,
                change,
                _shown(first) if first is not None else None,
                _shown(second) if second is not None else None,
            )
        )
    return tuple(found)


def diff_text(differences: tuple[Difference, ...]) -> str:
    """Differences as people read them."""
    if not differences:
        return "No difference.\n"
    lines: list[str] = []
    for difference in differences:
        if difference.change is Change.ADDED:
            lines.append(f"+ {difference.name} = {difference.after}")
        elif difference.change is Change.REMOVED:
            lines.append(f"- {difference.name} = {difference.before}")
        elif difference.change is Change.CHANGED:
            lines.append(f"~ {difference.name}: {difference.before} -> {difference.after}")
        else:
            lines.append(f"? {difference.name}: cannot be compared without a common comparison key")
    return "\n".join(lines) + "\n"
