"""Reviewed inventory of environment variables: scan, check, collect, document.

Nothing but the standard library, and never an import of the code it inspects.
"""

from __future__ import annotations

# check
from .check import CheckResult, Finding, Rule, check

# collect
from .collect import (
    Difference,
    Entry,
    Environment,
    Label,
    Provenance,
    Snapshot,
    State,
    collect,
    diff,
    of_process,
    read_snapshot,
    this_process,
    write_snapshot,
)

# errors
from .errors import (
    DuplicateNameError,
    EnvInventoryError,
    InventoryError,
    InventoryNotFoundError,
    MissingFieldError,
    SnapshotError,
    SourceNotFoundError,
    UnknownFieldError,
    UnknownValueError,
)

# inventory
from .loading import load_inventory, parse_inventory
from .model import Inventory, Lifecycle, Project, Rules, Variable, Waiver

# docs
from .reference import render

# run time
from .runtime import EnvironmentTypoWarning, Stranger, check_stage_env, unknown_variables, warn_unknown

# scan
from .scan import Access, Operation, Place, ScanResult, Unparsed, When, scan, scan_source

__all__ = [
    "Access",
    "CheckResult",
    "Difference",
    "DuplicateNameError",
    "Entry",
    "EnvInventoryError",
    "Environment",
    "EnvironmentTypoWarning",
    "Finding",
    "Inventory",
    "InventoryError",
    "InventoryNotFoundError",
    "Label",
    "Lifecycle",
    "MissingFieldError",
    "Operation",
    "Place",
    "Project",
    "Provenance",
    "Rule",
    "Rules",
    "ScanResult",
    "Snapshot",
    "SnapshotError",
    "SourceNotFoundError",
    "State",
    "Stranger",
    "UnknownFieldError",
    "UnknownValueError",
    "Unparsed",
    "Variable",
    "Waiver",
    "When",
    "check",
    "check_stage_env",
    "collect",
    "diff",
    "load_inventory",
    "of_process",
    "parse_inventory",
    "read_snapshot",
    "render",
    "scan",
    "scan_source",
    "this_process",
    "unknown_variables",
    "warn_unknown",
    "write_snapshot",
]
