"""The inventory: one reviewed record a variable, the rules of a project, and the waivers it grants.

Everything here is immutable and checks itself when it is built; loading from a file adds lines to the errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .errors import DuplicateNameError, InventoryError, MissingFieldError, UnknownValueError
from .scan.result import covers

CATEGORIES = ("public", "inherited", "platform", "model", "benchmark", "internal")
"""Categories every inventory has; ``categories`` adds a project's own."""

DISPOSITIONS = ("promote", "request_scope", "external", "internalize", "deprecate_remove")
"""What is to become of a ``model`` variable."""

_NAME = re.compile(r"[^=\0\s]+")


class Lifecycle(StrEnum):
    """How far a variable may be relied on."""

    STABLE = "stable"
    EXPERIMENTAL = "experimental"
    DIAGNOSTIC = "diagnostic"
    DEPRECATED = "deprecated"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Variable:
    """One record.

    Attributes:
        name: The variable's name, or a pattern in which ``*`` stands for any text (``RANK_*``).
        category: One of ``CATEGORIES`` or the project's own.
        owner: Who answers for it.
        lifecycle: How far it may be relied on.
        default: What holds when it is unset, in words.
        type: What values it takes, in words.
        read: When and where it is read (import, call, start-up, each worker), in words.
        precedence: Against command line, configuration file and request.
        invalid: What a value that does not parse does.
        summary: What it is for.
        topic: The table of the reference page it belongs to.
        redact: Its value never appears anywhere.
        replacement: What to use instead; required when deprecated or removed.
        since: Version or date from which it is deprecated.
        until: Version or date (YYYY-MM-DD) from which it may be gone; the check fails past it.
        stages: Stages whose ``env:`` may carry it; None for any, empty for none.
        disposition: What is to become of a ``model`` variable.
        source: Where the record is written.
        line: The line of its header there, 0 if it was built in code.
    """

    name: str
    category: str
    owner: str = ""
    lifecycle: Lifecycle = Lifecycle.STABLE
    default: str | None = None
    type: str = ""
    read: str = ""
    precedence: str = ""
    invalid: str = ""
    summary: str = ""
    topic: str = ""
    redact: bool = False
    replacement: str | None = None
    since: str | None = None
    until: str | None = None
    stages: tuple[str, ...] | None = None
    disposition: str | None = None
    source: str = "<python>"
    line: int = 0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UnknownValueError(self.source, self.line, f"{self.name!r} cannot be a variable's name")
        if self.name.strip("*") == "":
            raise UnknownValueError(self.source, self.line, f"pattern {self.name!r} would cover every variable")
        if self.lifecycle in (Lifecycle.DEPRECATED, Lifecycle.REMOVED) and not self.replacement:
            raise MissingFieldError(self.source, self.line, f"{self.name} is {self.lifecycle} but names no replacement")
        if self.disposition is not None and self.disposition not in DISPOSITIONS:
            known = ", ".join(DISPOSITIONS)
            raise UnknownValueError(
                self.source, self.line, f"{self.name}: disposition {self.disposition!r} is none of {known}"
            )
        if (self.category == "model") != (self.disposition is not None):
            problem = f"{self.name}: a model variable, and no other, has a disposition"
            raise MissingFieldError(self.source, self.line, problem)

    @property
    def is_pattern(self) -> bool:
        """Whether the record stands for every name of a pattern."""
        return "*" in self.name

    def covers(self, name: str) -> bool:
        """Whether the record speaks of this name, or of this narrower pattern."""
        return name == self.name or (self.is_pattern and covers(self.name, name))


@dataclass(frozen=True, slots=True)
class Waiver:
    """Permission for one place to access the environment under a name that cannot be resolved.

    Attributes:
        path: The file, as results name it.
        scope: The qualified name of the function around it, ``<module>`` outside any.
        reason: Why it is fine.
        names: What it may access; these count as read.
        line: The line of the waiver in the inventory.
    """

    path: str
    scope: str
    reason: str
    names: tuple[str, ...] = ()
    line: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """What a project asks of its own inventory.

    Attributes:
        required_prefixes: New public names start with one of these; empty for no such rule.
        grandfathered: Public names that are older than the rule. The list may only shrink.
        counts: Expected number of records per category; a category left out is not counted.
    """

    required_prefixes: tuple[str, ...] = ()
    grandfathered: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Project:
    """Where a project keeps what the check looks at; paths are relative to the inventory's folder.

    Attributes:
        sources: Files and folders to scan (glob patterns).
        exclude: Patterns of files to leave out of the scan.
        reference: The generated reference page.
        mentions: Deploy YAML, Dockerfiles and compose files (glob patterns).
        owned_prefixes: Prefixes whose names only this project gives out: unknown ones are typos.
        collect_prefixes: Prefixes whose values may go into a bug report.
        collect_allow: Further names whose values may go into a bug report.
        version: The project's version, for ``until``.
    """

    sources: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    reference: str | None = None
    mentions: tuple[str, ...] = ()
    owned_prefixes: tuple[str, ...] = ()
    collect_prefixes: tuple[str, ...] = ()
    collect_allow: tuple[str, ...] = ()
    version: str | None = None


@dataclass(frozen=True)
class Inventory:
    """A set of records with the project's rules.

    Attributes:
        name: What it is called.
        variables: The records, in the order written.
        project: Where the project keeps its files.
        rules: What it asks of its records.
        waivers: Places that may be dynamic.
        categories: Categories beyond the common ones.
        bases: Inventories it builds on: known, but not this project's to read or document.
        source: Where it came from.

    Raises:
        DuplicateNameError: A name declared twice.
        UnknownValueError: A category nobody declared.
    """

    name: str
    variables: tuple[Variable, ...] = ()
    project: Project = field(default_factory=Project)
    rules: Rules = field(default_factory=Rules)
    waivers: tuple[Waiver, ...] = ()
    categories: tuple[str, ...] = ()
    bases: tuple[Inventory, ...] = ()
    source: str = "<python>"

    def __post_init__(self) -> None:
        seen: dict[str, Variable] = {}
        allowed = {*CATEGORIES, *self.categories}
        for base in self.bases:
            allowed.update(base.categories)
        for variable in self.variables:
            first = seen.setdefault(variable.name, variable)
            if first is not variable:
                where = f" (first on line {first.line})" if first.line else ""
                raise DuplicateNameError(variable.source, variable.line, f"{variable.name} is declared twice{where}")
            if variable.category not in allowed:
                problem = f"{variable.name}: category {variable.category!r} is none of {', '.join(sorted(allowed))}"
                raise UnknownValueError(variable.source, variable.line, problem)
        for waiver in self.waivers:
            if not waiver.reason.strip():
                raise MissingFieldError(self.source, waiver.line, f"the waiver for {waiver.path} gives no reason")
        for category in self.rules.counts:
            if category not in allowed:
                raise UnknownValueError(self.source, 0, f"rules.counts: no category {category!r}")
        object.__setattr__(self, "_exact", seen)
        object.__setattr__(self, "_patterns", tuple(v for v in self.variables if v.is_pattern))

    def __iter__(self) -> Iterator[Variable]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def own(self, name: str) -> Variable | None:
        """This inventory's own record for a name or pattern, bases left out."""
        exact: dict[str, Variable] = self.__dict__["_exact"]
        found = exact.get(name)
        if found is not None:
            return found
        patterns: tuple[Variable, ...] = self.__dict__["_patterns"]
        return next((variable for variable in patterns if variable.covers(name)), None)

    def find(self, name: str) -> Variable | None:
        """The record for a name or pattern: its own first, then those of the bases."""
        found = self.own(name)
        for base in self.bases:
            found = found or base.find(name)
        return found

    def everything(self) -> Iterator[Variable]:
        """Own records, then those of the bases that it does not override."""
        seen: set[str] = set()
        for variable in (*self.variables, *(v for base in self.bases for v in base.everything())):
            if variable.name not in seen:
                seen.add(variable.name)
                yield variable

    def counts(self) -> dict[str, int]:
        """How many own records each category has."""
        counted: dict[str, int] = {}
        for variable in self.variables:
            counted[variable.category] = counted.get(variable.category, 0) + 1
        return counted

    def dispositions(self) -> dict[str, int]:
        """How many ``model`` records each disposition has, in the documented order."""
        counted = dict.fromkeys(DISPOSITIONS, 0)
        for variable in self.variables:
            if variable.disposition is not None:
                counted[variable.disposition] += 1
        return counted

    def prefixes(self) -> tuple[str, ...]:
        """Owned prefixes, its own and those of its bases."""
        found = [*self.project.owned_prefixes, *(p for base in self.bases for p in base.prefixes())]
        return tuple(dict.fromkeys(found))

    def with_variables(self, variables: Iterable[Variable]) -> Inventory:
        """The same inventory with further records."""
        return Inventory(
            self.name,
            (*self.variables, *variables),
            self.project,
            self.rules,
            self.waivers,
            self.categories,
            self.bases,
            self.source,
        )


__all__ = [
    "CATEGORIES",
    "DISPOSITIONS",
    "Inventory",
    "InventoryError",
    "Lifecycle",
    "Project",
    "Rules",
    "Variable",
    "Waiver",
]
