"""The environment section of a bug report, with nothing in it that must not be there."""

from __future__ import annotations

from .fingerprints import Fingerprinter, default_key_path
from .masking import MASK, Masker
from .report import Entry, Provenance, Snapshot, State, as_json, collect
from .snapshots import Change, Difference, diff, diff_text, read_snapshot, write_snapshot
from .sources import Environment, Label, of_process, this_process

__all__ = [
    "MASK",
    "Change",
    "Difference",
    "Entry",
    "Environment",
    "Fingerprinter",
    "Label",
    "Masker",
    "Provenance",
    "Snapshot",
    "State",
    "as_json",
    "collect",
    "default_key_path",
    "diff",
    "diff_text",
    "of_process",
    "read_snapshot",
    "this_process",
    "write_snapshot",
]
