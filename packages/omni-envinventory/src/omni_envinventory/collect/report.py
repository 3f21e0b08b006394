"""The environment section of a bug report: what may be shown of an environment, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from omni_envinventory.loading import load_inventory
from omni_envinventory.model import Inventory, Lifecycle
from omni_envinventory.near import Origin, origin

from .fingerprints import Fingerprinter
from .masking import MASK, Masker, escape
from .secret_names import is_secret_name
from .sources import Environment, Label, this_process


class State(StrEnum):
    """What a report says of a variable."""

    SHOWN = "shown"
    MASKED = "masked"
    NAMED = "named"
    UNSET = "unset"


class Provenance(StrEnum):
    """Where the value in force came from, as the application reports it."""

    CLI = "cli"
    YAML = "yaml"
    STAGE = "stage"
    ENV = "env"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Entry:
    """One variable of a report. It holds nothing that may not be shown.

    Attributes:
        name: The name, escaped.
        state: Shown, masked, by name only, or not set.
        value: What may be shown of the value; None unless shown or masked.
        note: A remark: a service link, a likely typo, the default that holds.
        provenance: Where the value in force came from, None if nobody said.
        fingerprint: A keyed fingerprint of the value, for ``diff``; None unless asked for.
    """

    name: str
    state: State
    value: str | None = None
    note: str = ""
    provenance: Provenance | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What may be shown of one environment.

    Attributes:
        label: Live, exec or unavailable.
        pid: The process.
        reason: Why it is unavailable, or a remark.
        entries: The variables, sorted by name; empty when unavailable.
        inventory: The name of the inventory that decided.
        key_id: Which comparison key made the fingerprints, None without any.
    """

    label: Label
    pid: int
    reason: str
    entries: tuple[Entry, ...]
    inventory: str
    key_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The snapshot in the documented JSON form."""
        return {
            "schema": "omni-envinventory/snapshot/1",
            "label": str(self.label),
            "pid": self.pid,
            "reason": self.reason,
            "inventory": self.inventory,
            "key_id": self.key_id,
            "entries": [
                {
                    "name": entry.name,
                    "state": str(entry.state),
                    "value": entry.value,
                    "note": entry.note,
                    "provenance": None if entry.provenance is None else str(entry.provenance),
                    "fingerprint": entry.fingerprint,
                }
                for entry in self.entries
            ],
        }

    def to_text(self) -> str:
        """The section as people read it, one variable a line."""
        lines = [f"Environment of process {self.pid} ({self.label})"]
        if self.label is Label.UNAVAILABLE:
            return f"{lines[0]}: {self.reason}. Nothing is known about which variables are set.\n"
        if self.label is Label.EXEC:
            lines.append("As it was started; what the process changed since does not show.")
        if self.reason:
            lines.append(f"Note: {self.reason}.")
        seen = [entry for entry in self.entries if entry.state in (State.SHOWN, State.MASKED)]
        width = max((len(entry.name) for entry in seen), default=0)
        for entry in seen:
            remarks = [f"from {entry.provenance}"] if entry.provenance is not None else []
            remarks += [entry.note] if entry.note else []
            lines.append(
                f"  {entry.name:<{width}} = {entry.value}" + (f"    ({'; '.join(remarks)})" if remarks else "")
            )
        if not seen:
            lines.append("  no variable whose value may be shown is set")
        named = [
            entry.name + (f" ({entry.note})" if entry.note else "")
            for entry in self.entries
            if entry.state is State.NAMED
        ]
        if named:
            lines.append(f"Set, values left out ({len(named)}): {', '.join(named)}")
        unset = [entry.name for entry in self.entries if entry.state is State.UNSET]
        if unset:
            lines.append(f"Not set ({len(unset)}): {', '.join(unset)}")
        return "\n".join(lines) + "\n"


def _may_show(inventory: Inventory, name: str, allow: frozenset[str], prefixes: tuple[str, ...]) -> bool:
    record = inventory.find(name)
    if record is not None and record.redact:
        return False
    return (record is not None and record.category == "public") or name in allow or name.startswith(prefixes or ("\0",))


def _redacted(inventory: Inventory, name: str) -> bool:
    record = inventory.find(name)
    return (record is not None and record.redact) or is_secret_name(name)


def _allowances(inventory: Inventory) -> tuple[list[str], list[str]]:
    """Names and prefixes that the inventory and its bases allow to be shown."""
    names, prefixes = list(inventory.project.collect_allow), list(inventory.project.collect_prefixes)
    for base in inventory.bases:
        more_names, more_prefixes = _allowances(base)
        names += more_names
        prefixes += more_prefixes
    return names, prefixes


def collect(
    inventory: Inventory | str | Path = "vllm-omni",
    *,
    environment: Environment | None = None,
    allow: Iterable[str] = (),
    prefixes: Iterable[str] = (),
    provenance: Mapping[str, Provenance | str] | None = None,
    fingerprinter: Fingerprinter | None = None,
) -> Snapshot:
    """What may be shown of an environment; values only of public names, an allowlist and declared prefixes.

    Needs nothing of the inspected project: it works when that is broken or absent.

    Args:
        inventory: What is public and what is redacted; an inventory, its path, or a built-in's name.
        environment: What to look at; this process's by default.
        allow: Further names whose values may be shown.
        prefixes: Further prefixes whose values may be shown.
        provenance: Where values in force came from, by name.
        fingerprinter: Makes fingerprints of values, so that snapshots can be compared.

    Raises:
        InventoryNotFoundError: There is no such inventory.
        InventoryError: It says something it must not.
        ValueError: A provenance that is none.
    """
    known = inventory if isinstance(inventory, Inventory) else load_inventory(inventory)
    source = this_process() if environment is None else environment
    if source.variables is None:
        return Snapshot(source.label, source.pid, source.reason, (), known.name)
    own_names, own_prefixes = _allowances(known)
    allowed, starts = frozenset((*own_names, *allow)), (*own_prefixes, *prefixes)
    masker = Masker(value for name, value in source.variables.items() if _redacted(known, name))
    origins = {name: Provenance(given) for name, given in (provenance or {}).items()}
    owned = [variable.name for variable in known.everything()]
    owned_prefixes = known.prefixes()
    entries: list[Entry] = []
    for name, value in source.variables.items():
        shown_name = masker.name(name)
        note = _note(known, name, value, owned, owned_prefixes)
        mark = fingerprinter.of(name, value) if fingerprinter is not None else None
        if not _may_show(known, name, allowed, starts) and not _redacted(known, name):
            entries.append(Entry(shown_name, State.NAMED, None, note, origins.get(name), mark))
            continue
        text, hidden = (MASK, True) if _redacted(known, name) else masker.value(value)
        entries.append(Entry(shown_name, State.MASKED if hidden else State.SHOWN, text, note, origins.get(name), mark))
    for variable in known.everything():
        absent = not variable.is_pattern and variable.name not in source.variables
        if (
            absent
            and variable.category == "public"
            and variable.lifecycle not in (Lifecycle.REMOVED, Lifecycle.DEPRECATED)
        ):
            note = f"default {escape(variable.default)}" if variable.default else ""
            entries.append(Entry(variable.name, State.UNSET, None, note, origins.get(variable.name)))
    entries.sort(key=lambda entry: entry.name)
    key_id = fingerprinter.key_id if fingerprinter is not None else None
    return Snapshot(source.label, source.pid, source.reason, tuple(entries), known.name, key_id)


def _note(inventory: Inventory, name: str, value: str, owned: list[str], prefixes: tuple[str, ...]) -> str:
    kind, meant = origin(name, value, ())
    if kind is Origin.SERVICE_LINK:
        return "a Kubernetes service link"
    record = inventory.find(name)
    if record is not None:
        return f"deprecated, use {record.replacement}" if record.replacement else ""
    if name.startswith(prefixes or ("\0",)):
        kind, meant = origin(name, value, owned)
        return (
            f"read by nobody; did you mean {meant}?"
            if meant
            else ""
            if kind is Origin.IMAGE_BUILD
            else "read by nobody"
        )
    return ""


def as_json(snapshot: Snapshot) -> str:
    """The documented JSON form, in ASCII: what is not is escaped."""
    return json.dumps(snapshot.to_json(), indent=2, ensure_ascii=True)
