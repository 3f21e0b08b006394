"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Rule(StrEnum):
    """The rules of the check, by the names that output shows."""

    UNCLASSIFIED = "unclassified"
    NEVER_READ = "never-read"
    UNDOCUMENTED = "undocumented"
    DOCUMENTED_UNKNOWN = "documented-unknown"
    PAGE_OUTDATED = "page-outdated"
    MENTIONED_UNKNOWN = "mentioned-unknown"
    NEAR_MISS = "near-miss"
    DYNAMIC = "dynamic"
    STALE_WAIVER = "stale-waiver"
    EXPIRED = "expired"
    REMOVED_USED = "removed-used"
    STAGE_ENV = "stage-env"
    PREFIX = "prefix"
    GRANDFATHERED = "grandfathered"
    COUNTS = "counts"
    NO_SOURCES = "no-sources"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        rule: Which rule it breaks.
        message: What is wrong, in one sentence.
        name: The variable concerned, empty if none.
        path: The file to look at, empty if none.
        line: The line there, 0 if none.
        suggestion: The name that is likely meant, or the one to use instead.
    """

    rule: Rule
    message: str
    name: str = ""
    path: str = ""
    line: int = 0
    suggestion: str | None = None

    @property
    def text(self) -> str:
        """The message with the suggestion."""
        return self.message if self.suggestion is None else f"{self.message}; did you mean {self.suggestion}?"

    @property
    def where(self) -> str:
        """``path:line``, as far as known."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def to_json(self) -> dict[str, Any]:
        """The finding in the documented JSON form."""
        return {
            "rule": str(self.rule),
            "name": self.name,
            "path": self.path,
            "line": self.line,
            "message": self.message,
            "suggestion": self.suggestion,
        }
