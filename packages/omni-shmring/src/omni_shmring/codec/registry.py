"""The classes of the user's own that may travel: Enums, dataclasses and msgspec Structs that both sides list.

A class travels under its qualified name without the module, so that a script and the module it was imported as agree.
Instances are rebuilt field by field: no code of the class runs on the receiving side. A Struct cannot be made without
its ``__post_init__``, so one that has any is refused.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from typing import Any

import msgspec

from omni_shmring.errors import InvalidArgumentError


class Registry:
    """Names of classes, both ways."""

    def __init__(self, types: tuple[type, ...]) -> None:
        """Take the classes of a configuration.

        Raises:
            InvalidArgumentError: a class of another kind, two of the same name, a Struct with ``__post_init__``.
        """
        self._names: dict[type, str] = {}
        self._types: dict[str, type] = {}
        self._fields: dict[str, frozenset[str]] = {}
        for kind in types:
            if not (issubclass(kind, enum.Enum | msgspec.Struct) or dataclasses.is_dataclass(kind)):
                raise InvalidArgumentError(
                    f"types holds {kind.__qualname__}, which is no Enum, dataclass or msgspec.Struct"
                )
            if issubclass(kind, msgspec.Struct) and hasattr(kind, "__post_init__"):
                raise InvalidArgumentError(f"types holds {kind.__qualname__}, whose __post_init__ would run on decode")
            name = kind.__qualname__.rpartition("<locals>.")[2]
            if self._types.setdefault(name, kind) is not kind:
                raise InvalidArgumentError(f"types holds two classes of the name {name}")
            self._names[kind] = name
            if issubclass(kind, msgspec.Struct):
                self._fields[name] = frozenset(kind.__struct_fields__)
            elif dataclasses.is_dataclass(kind):
                self._fields[name] = frozenset(field.name for field in dataclasses.fields(kind))

    def name_of(self, kind: type) -> str | None:
        """The name a class travels under; None for one that is not registered."""
        return self._names.get(kind)

    def is_enum(self, kind: type) -> bool:
        """Whether a class is an Enum."""
        return issubclass(kind, enum.Enum)

    def fields(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Names and values of an instance's fields; a field that was never set is left out."""
        if isinstance(value, msgspec.Struct):
            names = value.__struct_fields__
        else:
            names = tuple(field.name for field in dataclasses.fields(value))
        for name in names:
            if hasattr(value, name):
                yield name, getattr(value, name)

    def member(self, name: str, member: str) -> enum.Enum:
        """An Enum's member. Raises ValueError for names that are not registered."""
        kind = self._known(name)
        if not issubclass(kind, enum.Enum):
            raise ValueError(f"{name} is no Enum here")
        try:
            return kind[member]
        except KeyError:
            raise ValueError(f"{name} has no member {member!r} here") from None

    def rebuild(self, name: str, fields: list[list[Any]]) -> Any:
        """An instance from its fields. Raises ValueError for a class or field that is not registered."""
        kind = self._known(name)
        if not issubclass(kind, msgspec.Struct) and not dataclasses.is_dataclass(kind):
            raise ValueError(f"{name} is an Enum here")
        known = self._fields[name]
        for field, _ in fields:
            if field not in known:
                raise ValueError(f"{name} has no field {field!r} here")
        if issubclass(kind, msgspec.Struct):
            return kind(**dict(fields))
        value: Any = object.__new__(kind)
        for field, content in fields:
            object.__setattr__(value, field, content)
        return value

    def _known(self, name: str) -> type:
        kind = self._types.get(name) if isinstance(name, str) else None
        if kind is None:
            raise ValueError(f"{name!r} is not among the types this side has registered")
        return kind
