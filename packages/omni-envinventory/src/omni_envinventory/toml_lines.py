"""Line numbers for TOML: where each table starts and each key of it is written.

The standard library's reader gives values without places. This finds the places of headers and of keys at the start of
a line, skipping comments, multi-line strings and multi-line arrays; values stay the reader's business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')\s*(?:\.[^=]*)?=")


@dataclass(frozen=True, slots=True)
class Table:
    """A table's place.

    Attributes:
        name: Dotted name as written.
        line: Line of its header; 0 for the top of the file.
        keys: Line of each key.
    """

    name: str
    line: int
    keys: dict[str, int] = field(default_factory=dict)

    def at(self, key: str) -> int:
        """The line of a key, or that of the header."""
        return self.keys.get(key, self.line)


def _after_strings(line: str, quote: str | None, depth: int) -> tuple[str | None, int]:
    """The open multi-line quote and bracket depth after a line."""
    position = 0
    while position < len(line):
        if quote is not None:
            end = line.find(quote, position)
            if end < 0:
                return quote, depth
            if quote == '"""' and line[end - 1 : end] == "\\":
                position = end + 1
                continue
            position, quote = end + 3, None
            continue
        character = line[position]
        if line.startswith(('"""', "'''"), position):
            quote, position = line[position : position + 3], position + 3
            continue
        if character in "\"'":
            position = _closing(line, position)
        elif character == "#":
            break
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        position += 1
    return quote, depth


def _closing(line: str, start: int) -> int:
    quote = line[start]
    position = start + 1
    while position < len(line) and line[position] != quote:
        position += 2 if line[position] == "\\" and quote == '"' else 1
    return position


def tables(text: str) -> list[Table]:
    """Every table of a document in order, the unnamed one at the top first."""
    found = [Table("", 0)]
    quote: str | None = None
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        if quote is None and depth == 0:
            header = _HEADER.match(line)
            if header is not None:
                found.append(Table(header[2].strip(), number))
                continue
            key = _KEY.match(line)
            if key is not None:
                found[-1].keys.setdefault(key[1].strip("\"'"), number)
        quote, depth = _after_strings(line, quote, depth)
    return found


def named(found: list[Table], name: str) -> list[Table]:
    """The tables of one name, in order: as many as an array of tables has entries."""
    return [table for table in found if table.name == name]
