"""Reading fields of a client's JSON: each getter says which field is wrong, with which value, and what it must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class WireError(ValueError):
    """A client event that cannot be taken; becomes an ``error`` event and the session goes on.

    Attributes:
        param: The field, dotted.
        code: A stable word.
        event_id: The client's own id of the event, when it had one.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.event_id: str | None = None


class Fields(Mapping[str, Any]):
    """One JSON object and where it stands in the event. A field that is null counts as absent."""

    def __init__(self, raw: Mapping[str, Any], where: str = "") -> None:
        self.raw = raw
        self._where = where

    def __getitem__(self, name: str) -> Any:
        return self.raw[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def path(self, name: str) -> str:
        """The dotted name of one of its fields."""
        return f"{self._where}.{name}" if self._where else name

    def text(self, name: str, *, required: bool = False) -> str | None:
        """A text field."""
        value = self._value(name, required)
        if value is not None and not isinstance(value, str):
            raise WireError(f"{self.path(name)} must be text, not {type(value).__name__}", param=self.path(name))
        return value

    def integer(self, name: str, *, low: int, high: int, required: bool = False) -> int | None:
        """A whole number within bounds."""
        value = self._value(name, required)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise WireError(
                f"{self.path(name)} is {_short(value)}; it must be a whole number from {low} to {high}",
                param=self.path(name),
            )
        return value

    def number(
        self, name: str, *, low: float = float("-inf"), high: float = float("inf"), required: bool = False
    ) -> float | None:
        """A number within bounds."""
        value = self._value(name, required)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise WireError(
                f"{self.path(name)} is {_short(value)}; it must be a number from {low:g} to {high:g}",
                param=self.path(name),
            )
        return float(value)

    def flag(self, name: str) -> bool | None:
        """A boolean."""
        value = self._value(name, required=False)
        if value is not None and not isinstance(value, bool):
            raise WireError(f"{self.path(name)} must be true or false", param=self.path(name))
        return value

    def array(self, name: str, *, required: bool = False) -> list[Any]:
        """An array; empty when absent."""
        value = self._value(name, required)
        if value is None:
            return []
        if not isinstance(value, list):
            raise WireError(f"{self.path(name)} must be an array", param=self.path(name))
        return value

    def object(self, name: str, *, required: bool = False) -> Fields:
        """An object; empty when absent."""
        value = self._value(name, required)
        if value is None:
            return Fields({}, self.path(name))
        if not isinstance(value, dict):
            raise WireError(f"{self.path(name)} must be an object", param=self.path(name))
        return Fields(value, self.path(name))

    def _value(self, name: str, required: bool) -> Any:
        value = self.raw.get(name)
        if value is None and required:
            raise WireError(f"{self.path(name)} is missing", param=self.path(name), code="missing_required_parameter")
        return value


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
