"""Source files: found, read once, named as modules."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omni_envinventory.errors import SourceNotFoundError

SKIPPED_FOLDERS = frozenset(
    {"site-packages", "__pycache__", "node_modules", ".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", ".eggs"}
)

_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_REBOUND = re.compile(rb"^[ \t]*(?:global|nonlocal)[ \t]+([^\n#]+)", re.MULTILINE)


@dataclass(slots=True)
class SourceFile:
    """One file, as read.

    Attributes:
        path: Where it is.
        shown: How results name it: relative to the base folder where it lies below.
        module: Its dotted module name.
        package: Whether it is an ``__init__.py``.
        data: Its bytes.
        digest: Of its bytes.
    """

    path: Path
    shown: str
    module: str
    package: bool
    data: bytes
    digest: str
    words: frozenset[bytes] | None = field(default=None)

    def has(self, word: bytes) -> bool:
        """Whether the identifier occurs anywhere in the file."""
        if word not in self.data:
            return False
        if self.words is None:
            self.words = frozenset(_WORD.findall(self.data))
        return word in self.words

    def lines_with(self, words: Iterable[bytes]) -> list[int]:
        """The numbers of the lines that mention any of these identifiers."""
        chosen = sorted(words, key=len, reverse=True)
        if not chosen:
            return []
        pattern = re.compile(rb"(?<![A-Za-z0-9_])(?:" + rb"|".join(map(re.escape, chosen)) + rb")(?![A-Za-z0-9_])")
        found: list[int] = []
        line, last = 1, 0
        for match in pattern.finditer(self.data):
            line += self.data.count(b"\n", last, match.start())
            last = match.start()
            if not found or found[-1] != line:
                found.append(line)
        return found

    def rebound(self) -> frozenset[str]:
        """Names that some function declares ``global`` or ``nonlocal``."""
        names = [
            name.strip() for group in _REBOUND.findall(self.data) for name in group.replace(b";", b",").split(b",")
        ]
        return frozenset(name.decode("utf-8", "replace") for name in names if name)


def _excluded(shown: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(shown, pattern) or fnmatch.fnmatchcase(f"/{shown}", pattern) for pattern in patterns)


def walk(paths: Iterable[Path], base: Path, exclude: Sequence[str]) -> Iterator[tuple[Path, Path, str]]:
    """Every Python file below the paths, once: ``(path, root it was found under, name to show)``, sorted.

    Raises:
        SourceNotFoundError: A path does not exist.
    """
    seen: set[str] = set()
    for root in paths:
        if not root.exists():
            raise SourceNotFoundError(str(root))
        candidates = [root] if root.is_file() else sorted(_below(root))
        for path in candidates:
            identity = os.path.abspath(path)
            if identity in seen:
                continue
            seen.add(identity)
            shown = _shown(identity, base)
            if not _excluded(shown, exclude):
                yield path, (root if root.is_dir() else root.parent), shown


def _below(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if name not in SKIPPED_FOLDERS)
        for name in names:
            if name.endswith(".py"):
                yield Path(folder, name)


def _shown(absolute: str, base: Path) -> str:
    prefix = os.path.abspath(base) + os.sep
    return absolute.removeprefix(prefix)


def module_name(path: Path, root: Path, packages: dict[Path, bool]) -> tuple[str, bool]:
    """The dotted name by which others import a file: up through regular packages, else relative to the root."""
    package = path.name == "__init__.py"
    parts = [] if package else [path.stem]
    folder = path.parent
    regular = False
    while True:
        known = packages.get(folder)
        if known is None:
            known = packages[folder] = (folder / "__init__.py").is_file()
        if not known:
            break
        regular = True
        parts.insert(0, folder.name)
        if folder.parent == folder:
            break
        folder = folder.parent
    if not regular or (folder != root and root in folder.parents):
        # A namespace package has no __init__.py: what lies between it and the root belongs to the name.
        try:
            between = folder.relative_to(root).parts
        except ValueError:
            between = ()
        parts = [*between, *parts]
    return ".".join(parts) or path.parent.name, package


def read(path: Path, root: Path, shown: str, packages: dict[Path, bool]) -> SourceFile:
    """Read one file."""
    data = path.read_bytes()
    module, package = module_name(path, root, packages)
    return SourceFile(path, shown, module, package, data, hashlib.blake2b(data, digest_size=16).hexdigest())
