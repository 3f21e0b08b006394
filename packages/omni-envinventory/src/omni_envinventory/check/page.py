"""The names a Markdown reference page documents."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CELL = re.compile(r"^\s*\|\s*(?P<cell>[^|]*?)\s*\|")
_HEADING = re.compile(r"^#{2,6}\s+(?P<cell>.*?)\s*#*\s*$")
_CODE = re.compile(r"`+\s*([^`]+?)\s*`+")
_NAME = re.compile(r"[A-Za-z_*][A-Za-z0-9_*]*")


def documented_names(text: str) -> Iterator[tuple[str, int]]:
    """Variables with the line that documents them: code in the first cell of a table row, or in a heading.

    A name that running text merely mentions documents nothing. Fenced code is skipped.
    """
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.lstrip()
        if stripped.startswith(("```", "~~~")):
            mark = stripped[:3]
            fence = "" if fence == mark else fence or mark
            continue
        if fence:
            continue
        found = _CELL.match(line) or _HEADING.match(line)
        if found is None:
            continue
        for code in _CODE.findall(found["cell"]):
            if _NAME.fullmatch(code) and any(character.isupper() or character == "_" for character in code):
                yield code, number
