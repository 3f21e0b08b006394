"""Keys and scalars of a YAML file, line by line.

The standard library reads no YAML, and one question does not justify a dependency: which keys stand under ``env:`` and
its kin. This understands block mappings and sequences, flow collections on one line, quotes, comments and block
scalars.
Anchors are not followed, ``<<`` merges are not applied, and flow collections over several lines are read only up to the
end of their first line; templated files (Helm's ``{{ }}``) are read as far as they look like YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_KEY = re.compile(r"""(?P<key>"[^"]*"|'[^']*'|[^\s"'#:\[\]{},&*!|>%@`][^:#]*?)\s*:(?:\s+(?P<value>.*))?$""")
_BLOCK = re.compile(r"[|>][+-]?\d*[+-]?\s*$")


@dataclass(slots=True)
class Node:
    """A mapping entry or a sequence item.

    Attributes:
        indent: Column of its key or, for an item, of what follows the dash.
        key: The key; None for a sequence item.
        value: The scalar or flow text after it.
        line: Where.
        parent: What it stands in.
        children: What stands in it.
    """

    indent: int
    key: str | None
    value: str
    line: int
    parent: Node | None
    children: list[Node] = field(default_factory=list)

    def child(self, key: str) -> str | None:
        """The scalar of a child key."""
        return next((unquote(node.value) for node in self.children if node.key == key), None)

    def walk(self) -> Iterator[Node]:
        """The node and everything below it."""
        yield self
        for node in self.children:
            yield from node.walk()


def unquote(text: str) -> str:
    """A scalar without its quotes."""
    text = text.strip()
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" else text


def without_comment(text: str) -> str:
    """A line up to its comment."""
    quote = ""
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and (position == 0 or text[position - 1] in " \t[{,:-"):
            quote = character
        elif character == "#" and (position == 0 or text[position - 1] in " \t"):
            return text[:position]
    return text


def parse(text: str) -> Node:
    """The structure of a document, under one root."""
    root = Node(-1, None, "", 0, None)
    stack = [root]
    skip_deeper: int | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        expanded = raw.expandtabs(8)
        line = without_comment(expanded).rstrip()
        if skip_deeper is not None:
            if not expanded.strip() or len(expanded) - len(expanded.lstrip()) > skip_deeper:
                continue
            skip_deeper = None
        if not line.strip() or line.strip() in ("---", "..."):
            continue
        indent = len(line) - len(line.lstrip())
        rest = line.lstrip()
        own = indent
        while rest == "-" or rest.startswith("- "):
            item = Node(indent + 1, None, "", number, None)
            _attach(stack, item, indent + 1, dash=True)
            after = rest[1:].lstrip()
            indent += len(rest) - len(after)
            rest = after
            item.value = rest
            if not rest:
                break
        match = _KEY.match(rest) if rest else None
        if match is not None:
            node = Node(indent, unquote(match["key"]), (match["value"] or "").strip(), number, None)
            _attach(stack, node, indent, dash=False)
            rest = node.value
        if rest and _BLOCK.search(rest) and (match is None or _BLOCK.fullmatch(rest)):
            skip_deeper = own if match is None or own == indent else indent
    return root


def _attach(stack: list[Node], node: Node, indent: int, *, dash: bool) -> None:
    # A sequence may stand at the same column as the key that holds it, so a dash counts half a column deeper.
    while stack[-1].indent >= indent and not (dash and stack[-1].key is not None and stack[-1].indent == indent - 1):
        stack.pop()
    node.parent = stack[-1]
    stack[-1].children.append(node)
    stack.append(node)


def flow_entries(value: str) -> list[tuple[str, str]]:
    """Entries of a flow mapping or sequence on one line; a sequence's have an empty key."""
    value = value.strip()
    if not value or value[0] not in "[{":
        return []
    entries: list[str] = []
    depth, quote, current = 0, "", ""
    for character in value:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
            if depth == 1:
                continue
        elif character in "]}":
            depth -= 1
            if depth == 0:
                break
        elif character == "," and depth == 1:
            entries.append(current)
            current = ""
            continue
        current += character
    entries.append(current)
    found: list[tuple[str, str]] = []
    for entry in entries:
        if not entry.strip():
            continue
        if value[0] == "[":
            found.append(("", unquote(entry)))
        else:
            key, _, content = entry.partition(":")
            found.append((unquote(key), unquote(content)))
    return found
