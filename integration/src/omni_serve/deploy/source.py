"""YAML text as a tree that knows where everything stands. It builds values, never objects, and is bounded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from omni_serve.errors import DeployError

MAX_BYTES = 1 << 20
MAX_NODES = 20_000
MAX_DEPTH = 32

_PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True, slots=True)
class Tree:
    """One value of the file.

    Attributes:
        value: A dict of Trees by key, a list of Trees, or a plain scalar.
        line: 1-based.
        column: 1-based.
        keys: For a mapping, where each key stands, as (line, column).
    """

    value: Any
    line: int
    column: int
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)

    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: tree.plain() for key, tree in self.value.items()}
        if isinstance(self.value, list):
            return [tree.plain() for tree in self.value]
        return self.value


def parse(data: bytes, path: str) -> Tree:
    """The file's tree.

    Raises:
        DeployError: Too large, not UTF-8, not YAML, empty, a key twice, a key that is no text, a tag that asks for an
            object, a merge key, or an alias that makes it too deep or too large.
    """
    if len(data) > MAX_BYTES:
        raise DeployError(f"the file has {len(data):,} bytes; the most is {MAX_BYTES:,}", path=path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DeployError("the file is not UTF-8 text", path=path, line=line) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = "not YAML: " + ", ".join(part for part in (error.context, error.problem) if part)
        if mark is None:
            raise DeployError(said, path=path) from None
        raise DeployError(said, path=path, line=mark.line + 1, column=mark.column + 1) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise DeployError(f"not YAML: {str(error).splitlines()[0]}", path=path) from None
    if node is None:
        raise DeployError("the file is empty; it needs at least stages", path=path, line=1, column=1)
    return _Builder(path).build(node, 0)


class _Builder:
    def __init__(self, path: str) -> None:
        self._path = path
        self._nodes = 0
        self._scalars = yaml.constructor.SafeConstructor()

    def _refuse(self, node: yaml.Node, message: str) -> DeployError:
        mark = node.start_mark
        return DeployError(message, path=self._path, line=mark.line + 1, column=mark.column + 1)

    def build(self, node: yaml.Node, depth: int) -> Tree:
        self._nodes += 1
        # Aliases stand for whole subtrees: what they unfold to is counted, so that a small file cannot grow large.
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise self._refuse(node, f"the file unfolds to more than {MAX_NODES:,} values or {MAX_DEPTH} levels")
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        if isinstance(node, yaml.CollectionNode) and node.tag not in _PLAIN_TAGS:
            raise self._refuse(node, f"the tag {node.tag} asks for an object; this file holds plain values only")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth, line, column)
        if isinstance(node, yaml.SequenceNode):
            return Tree([self.build(child, depth + 1) for child in node.value], line, column)
        try:
            value = self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError):
            raise self._refuse(
                node, f"{node.tag} {str(node.value)[:60]!r} is no plain value; write text or a number"
            ) from None
        if not isinstance(value, str | int | float | bool | None):
            # Dates and bytes: nothing here takes them, so they are the text that was written.
            value = node.value
        return Tree(value, line, column)

    def _mapping(self, node: yaml.MappingNode, depth: int, line: int, column: int) -> Tree:
        found: dict[str, Tree] = {}
        places: dict[str, tuple[int, int]] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise self._refuse(key_node, "merge keys (<<) are not taken; write the fields out")
            key = self.build(key_node, depth + 1).value
            if not isinstance(key, str):
                raise self._refuse(key_node, f"the key {key!r} is no text; put it in quotes")
            if key in found:
                raise self._refuse(key_node, f"{key!r} stands here twice, first in line {places[key][0]}")
            places[key] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            found[key] = self.build(value_node, depth + 1)
        return Tree(found, line, column, places)
