"""Where in a payload something is, as a user would write it: ``payload['hidden'][3]``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import msgspec


def first_path(payload: Any, matches: Callable[[object], bool]) -> str:
    """The path of the first node that ``matches``; ``payload`` itself when none does."""
    # Ids on the way down, so that a payload that holds itself ends too.
    stack: list[tuple[str, Any, frozenset[int]]] = [("payload", payload, frozenset())]
    while stack:
        path, node, above = stack.pop()
        if matches(node):
            return path
        if id(node) in above or len(above) > 200:
            continue
        below = above | {id(node)}
        stack.extend((path + step, child, below) for step, child in reversed(list(_children(node))))
    return "payload"


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, child in node.items():
            yield f".keys()[{key!r}]", key
            yield f"[{key!r}]", child
    elif isinstance(node, list | tuple):
        for number, child in enumerate(node):
            yield f"[{number}]", child
    elif isinstance(node, set | frozenset):
        for child in node:
            yield f"{{{child!r}}}", child
    elif isinstance(node, msgspec.Struct):
        for name in node.__struct_fields__:
            yield f".{name}", getattr(node, name, None)
    elif dataclasses.is_dataclass(node) and not isinstance(node, type):
        for field in dataclasses.fields(node):
            yield f".{field.name}", getattr(node, field.name, None)
