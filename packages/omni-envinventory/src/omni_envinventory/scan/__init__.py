"""Static, whole-program search for accesses to the environment."""

from __future__ import annotations

from .program import scan, scan_source
from .result import Access, Operation, Place, ScanResult, ScanStatistics, Unparsed, When, covers

__all__ = [
    "Access",
    "Operation",
    "Place",
    "ScanResult",
    "ScanStatistics",
    "Unparsed",
    "When",
    "covers",
    "scan",
    "scan_source",
]
