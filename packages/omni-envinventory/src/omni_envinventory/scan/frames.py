"""The program under evaluation: its modules, and the frames in which scopes are evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .lower import Scope
from .values import Value

ScopeId = tuple[int, int]
Spot = tuple[int, int, int, int]
"""A place while evaluating: module number, line, column, scope number."""


@dataclass(slots=True)
class Module:
    """One source file as a module.

    Attributes:
        number: Its place in the program's list.
        name: Dotted name, as other files import it.
        path: As reported.
        package: Whether it is an ``__init__.py``.
        scopes: Its reduction, None until something asks for it.
    """

    number: int
    name: str
    path: str
    package: bool
    scopes: list[Scope] | None = None

    def resolve(self, module: str, level: int) -> str:
        """The absolute dotted name of an import written in this module."""
        if level == 0:
            return module
        parts = self.name.split(".")
        drop = level - (1 if self.package else 0)
        base = parts[: len(parts) - drop] if drop else parts
        return ".".join([*base, module] if module else base)


@dataclass(frozen=True, slots=True)
class Raw:
    """An access as evaluated: its name may still wait for a caller to fill in parameters.

    Attributes:
        name: The name or pattern, None where nothing is known.
        operation: One of ``Operation``'s values.
        form: How it is spelled.
        spot: Where.
        needs: The parameters that the name depends on; empty when the access is located.
        via: The sink behind a wrapper.
        detail: Why it is dynamic.
        when: ``import`` or ``call``.
    """

    name: str | None
    operation: str
    form: str
    spot: Spot
    needs: frozenset[Any]
    via: Spot | None
    detail: str
    when: str


@dataclass(slots=True, eq=False)
class Frame:
    """One evaluation of one scope.

    Attributes:
        number: Its identity, for closures.
        module: The module the scope is in.
        index: The scope's number in the module.
        params: What each parameter is.
        parent: The frame of the enclosing scope.
        when: Whether its effects run at import or at call time.
        accesses: What was found in it, as an ordered set.
        result: What a call of it gives, None while it runs.
        done: Whether its effects have all been evaluated.
        overrides: Elements that loops are pinned to while correlated expressions are evaluated.
    """

    number: int
    module: Module
    index: int
    scope: Scope
    params: dict[str, Value]
    parent: Frame | None
    when: str
    accesses: dict[Raw, None] = field(default_factory=dict)
    variables: dict[Any, Value] = field(default_factory=dict)
    nodes: dict[int, Value] = field(default_factory=dict)
    busy: dict[Any, int] = field(default_factory=dict)
    overrides: dict[int, Value] = field(default_factory=dict)
    result: Value | None = None
    done: bool = False

    @property
    def sid(self) -> ScopeId:
        """The identity of the scope."""
        return (self.module.number, self.index)

    def spot(self, line: int, column: int) -> Spot:
        """A place in this frame's scope."""
        return (self.module.number, line, column, self.index)
