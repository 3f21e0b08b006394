"""Reductions of source files kept between scans, keyed by digest and words of interest.

One JSON file; anything wrong with it (another version, damage) makes it empty, since it only ever saves time.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from .lower import Scope

VERSION = f"1/{sys.version_info.major}.{sys.version_info.minor}"

Key = tuple[str, frozenset[bytes]]


class ReductionCache:
    """Reads once, saves only when something changed.

    Args:
        path: The cache's file, or None to remember nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.hits = 0
        self._old: dict[str, Any] = {}
        self._new: dict[str, Any] = {}
        self._changed = False
        if path is not None:
            try:
                loaded = json.loads(path.read_bytes())
            except (OSError, ValueError):
                loaded = None
            if isinstance(loaded, dict) and loaded.get("version") == VERSION and isinstance(loaded.get("files"), dict):
                self._old = loaded["files"]

    @staticmethod
    def _name(key: Key) -> str:
        return key[0] + ":" + b",".join(sorted(key[1])).decode()

    def get(self, key: Key) -> list[Scope] | None:
        """The reduction of a file, or None."""
        if self.path is None:
            return None
        name = self._name(key)
        found: list[Scope] | None = self._old.get(name)
        if found is not None:
            self.hits += 1
            self._new[name] = found
        return found

    def put(self, key: Key, scopes: list[Scope]) -> None:
        """Remember a reduction."""
        if self.path is not None:
            self._new[self._name(key)] = scopes
            self._changed = True

    def save(self) -> None:
        """Write what this scan used; a folder that cannot be written only costs the next scan its time."""
        if self.path is None or not (self._changed or len(self._new) != len(self._old)):
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".cache-")
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass") as stream:
                json.dump({"version": VERSION, "files": self._new}, stream, separators=(",", ":"))
            os.replace(temporary, self.path)
        except OSError:
            return
