"""Typed reading of a tree: every mistake is noted with its place, and reading goes on, so that all are told at once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Any

from omni_serve.deploy.source import Tree
from omni_serve.errors import DeployError


class Mistakes:
    """Mistakes found so far in one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.found: list[DeployError] = []

    def at(self, place: Tree | tuple[int, int], message: str) -> None:
        """Note a mistake at a place."""
        line, column = (place.line, place.column) if isinstance(place, Tree) else place
        self.found.append(DeployError(message, path=self.path, line=line, column=column))


class MapReader:
    """One mapping, its known keys read one by one. Unknown keys are mistakes, with the likeliest meant.

    A value of the wrong type is noted and read as the default, so that what follows can still be checked.
    """

    def __init__(self, tree: Tree | None, where: str, known: Iterable[str], mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self._where = where
        self.tree = tree
        self._fields: dict[str, Tree] = {}
        if tree is None or tree.value is None:
            return
        if not isinstance(tree.value, dict):
            mistakes.at(tree, f"{where} must be a mapping, not {_kind(tree.value)}")
            return
        self._fields = tree.value
        names = list(known)
        for key in self._fields:
            if key not in names:
                near = difflib.get_close_matches(key, names, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(names)}"
                mistakes.at(tree.keys[key], f"{where} has no field {key!r}{hint}")

    def place(self, name: str) -> Tree | tuple[int, int]:
        """Where a field stands, or the mapping when it is absent."""
        if name in self._fields:
            return self._fields[name]
        return self.tree if self.tree is not None else (1, 1)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return name in self._fields and self._fields[name].value is not None

    def get(self, name: str) -> Tree | None:
        """A field's tree."""
        return self._fields.get(name) if self.has(name) else None

    def text(self, name: str, default: str | None = None, *, required: bool = False) -> str | None:
        """A text field."""
        tree = self._take(name, required)
        if tree is None:
            return default
        if not isinstance(tree.value, str) or not tree.value.strip():
            shown = "empty" if tree.value == "" else f"{_kind(tree.value)} ({tree.value!r})"
            self._mistakes.at(tree, f"{self._where}.{name} must be text, it is {shown}; put it in quotes")
            return default
        return tree.value

    def word(self, name: str, words: Iterable[str], default: str, *, required: bool = False) -> str:
        """A field that is one of some words."""
        found = self.text(name, required=required)
        known = list(words)
        if found is None or found in known:
            return found or default
        near = difflib.get_close_matches(found, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        self._mistakes.at(
            self._fields[name], f"{self._where}.{name} is {found!r}; it must be one of {', '.join(known)}{hint}"
        )
        return default

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number within bounds."""
        tree = self._take(name, required=False)
        if tree is None:
            return default
        value = tree.value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self._mistakes.at(
                tree, f"{self._where}.{name} is {str(value)[:60]}; it must be a whole number from {low} to {high}"
            )
            return default
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A finite number within bounds."""
        tree = self._take(name, required=False)
        if tree is None:
            return default
        value = tree.value
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not math.isfinite(value) or not low <= value <= high:
            self._mistakes.at(
                tree, f"{self._where}.{name} is {str(value)[:60]}; it must be a number from {low:g} to {high:g}"
            )
            return default
        return float(value)

    def items(self, name: str) -> list[Tree]:
        """The elements of a list field."""
        tree = self._take(name, required=False)
        if tree is None:
            return []
        if not isinstance(tree.value, list):
            self._mistakes.at(tree, f"{self._where}.{name} must be a list, not {_kind(tree.value)}")
            return []
        return tree.value

    def texts(self, name: str) -> dict[str, str]:
        """A mapping of text to text. A value that YAML reads as something else is a mistake, not converted."""
        return {
            key: tree.value
            for key, tree in self._entries(name).items()
            if self._holds(isinstance(tree.value, str), tree, f"{name}.{key}", "text: put it in quotes")
        }

    def flags(self, name: str) -> dict[str, bool]:
        """A mapping of text to true or false."""
        return {
            key: tree.value
            for key, tree in self._entries(name).items()
            if self._holds(isinstance(tree.value, bool), tree, f"{name}.{key}", "true or false")
        }

    def _entries(self, name: str) -> dict[str, Tree]:
        tree = self._take(name, required=False)
        if tree is None:
            return {}
        if not isinstance(tree.value, dict):
            self._mistakes.at(tree, f"{self._where}.{name} must be a mapping, not {_kind(tree.value)}")
            return {}
        return tree.value

    def _holds(self, right: bool, tree: Tree, name: str, must: str) -> bool:
        if not right:
            # Never the value: env values may be secrets.
            self._mistakes.at(tree, f"{self._where}.{name} is {_kind(tree.value)}; it must be {must}")
        return right

    def _take(self, name: str, required: bool) -> Tree | None:
        tree = self.get(name)
        if tree is None and required:
            self._mistakes.at(self.place(name), f"{self._where} needs {name!r}")
        return tree


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "nothing")
