"""What a scan found: accesses with their places, and the files it could not read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any


class Operation(StrEnum):
    """What happens to the variable."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    MEMBERSHIP = "membership"
    BULK = "bulk"


class When(StrEnum):
    """When it happens: while its module is imported, or when something is called."""

    IMPORT = "import"
    CALL = "call"


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """A place in a source file.

    Attributes:
        path: The file, relative to where the scan was started if it lies below.
        line: Line, from 1.
        column: Column, from 1.
        scope: Qualified name of the function or class around it, ``<module>`` outside any.
    """

    path: str
    line: int
    column: int
    scope: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Access:
    """One access to the environment.

    Attributes:
        name: The variable's name, a pattern with ``*`` for parts not known, or None for a dynamic access.
        place: Where the name is given: for a wrapper, the call that passes it.
        operation: Read, write, delete, membership or bulk.
        form: How it is spelled (``os.getenv``, ``environ[]``, ``expandvars``, ``settings`` …).
        when: At import or at call time.
        via: For a wrapper, where the environment itself is touched.
        detail: Why a dynamic access could not be resolved, or a remark.
    """

    name: str | None
    place: Place
    operation: Operation
    form: str
    when: When
    via: Place | None = None
    detail: str = ""

    @property
    def dynamic(self) -> bool:
        """Whether the name could not be resolved."""
        return self.name is None

    @property
    def pattern(self) -> bool:
        """Whether the name is a pattern."""
        return self.name is not None and "*" in self.name

    def sort_key(self) -> tuple[Any, ...]:
        """By place, then name."""
        return (self.place, self.name or "", self.operation, self.form)

    def to_json(self) -> dict[str, Any]:
        """The access in the documented JSON form."""
        return {
            "name": self.name,
            "kind": "dynamic" if self.dynamic else "pattern" if self.pattern else "name",
            "operation": str(self.operation),
            "form": self.form,
            "when": str(self.when),
            "path": self.place.path,
            "line": self.place.line,
            "column": self.place.column,
            "scope": self.place.scope,
            "via": None
            if self.via is None
            else {"path": self.via.path, "line": self.via.line, "scope": self.via.scope},
            "detail": self.detail,
        }


@dataclass(frozen=True, order=True, slots=True)
class Unparsed:
    """A file that is not Python of this interpreter's version.

    Attributes:
        path: The file.
        line: Where reading it stopped, 0 if unknown.
        reason: What was wrong.
        mentions_environment: Whether its text speaks of the environment, so that something may be missed.
    """

    path: str
    line: int
    reason: str
    mentions_environment: bool


@dataclass(frozen=True, slots=True)
class ScanStatistics:
    """What the scan did.

    Attributes:
        files: Files read, each once.
        parsed: Files parsed.
        from_cache: Files whose reduction came from the cache instead.
        rounds: How often names found in one file sent the scan to others.
        seconds: Wall time.
    """

    files: int
    parsed: int
    from_cache: int
    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Everything a scan found, in order of place."""

    accesses: tuple[Access, ...]
    unparsed: tuple[Unparsed, ...] = ()
    statistics: ScanStatistics = field(default_factory=lambda: ScanStatistics(0, 0, 0, 0, 0.0))

    @property
    def names(self) -> tuple[str, ...]:
        """Every variable's name, sorted, without patterns."""
        return tuple(sorted({a.name for a in self.accesses if a.name is not None and not a.pattern}))

    @property
    def patterns(self) -> tuple[str, ...]:
        """Every pattern, sorted; bulk accesses, whose pattern is ``*``, are left out."""
        return tuple(sorted({a.name for a in self.accesses if a.name is not None and a.pattern and a.name != "*"}))

    @property
    def dynamic(self) -> tuple[Access, ...]:
        """The accesses that could not be resolved."""
        return tuple(access for access in self.accesses if access.dynamic)

    def of(self, name: str) -> Iterator[Access]:
        """The accesses of one variable, those by a pattern that covers it included (bulk accesses are not)."""
        for access in self.accesses:
            if access.name == name or (access.pattern and access.name != "*" and covers(str(access.name), name)):
                yield access

    def to_json(self) -> dict[str, Any]:
        """The result in the documented JSON form."""
        return {
            "schema": "omni-envinventory/scan/1",
            "names": list(self.names),
            "patterns": list(self.patterns),
            "accesses": [access.to_json() for access in self.accesses],
            "unparsed": [
                {"path": u.path, "line": u.line, "reason": u.reason, "mentions_environment": u.mentions_environment}
                for u in self.unparsed
            ],
            "files": self.statistics.files,
        }


def covers(pattern: str, name: str) -> bool:
    """Whether a declared or found pattern covers a name or a narrower pattern; ``*`` is the only special character."""
    if pattern == name:
        return True
    escaped = re.sub(r"([\[\]?])", r"[\1]", pattern)
    return fnmatchcase(name.replace("*", "\x01"), escaped)
