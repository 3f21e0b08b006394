"""Which pending keys are chunks of one request. Pure.

A chunk's key is a prefix and then digits only. Few keys are searched faster than they are indexed, so the index is
built when many are pending and dropped when none is; from then on each key costs one dictionary entry, and finding a
request's chunks takes time in proportion to them.
"""

from __future__ import annotations

from collections.abc import Collection

DIGITS = b"0123456789"
INDEX_FROM = 32


class KeyIndex:
    """Pending keys by what precedes the digits they end with."""

    __slots__ = ("_groups", "active")

    def __init__(self) -> None:
        self.active = False
        self._groups: dict[bytes, dict[bytes, None]] = {}

    def build(self, keys: Collection[bytes]) -> None:
        """Begin to keep an index, with these keys in it."""
        self.active = True
        for key in keys:
            self.add(key)

    def add(self, key: bytes) -> None:
        """A key is pending now."""
        self._groups.setdefault(key.rstrip(DIGITS), {})[key] = None

    def discard(self, key: bytes) -> None:
        """A key is pending no longer."""
        prefix = key.rstrip(DIGITS)
        group = self._groups.get(prefix)
        if group is not None:
            group.pop(key, None)
            if not group:
                del self._groups[prefix]
                self.active = bool(self._groups)

    def chunks(self, prefix: bytes, pending: Collection[bytes]) -> list[bytes]:
        """The pending keys that are ``prefix`` and then one or more digits."""
        shortest, start = len(prefix) + 1, len(prefix)
        if self.active:
            group = self._groups.get(prefix.rstrip(DIGITS), {})
            return [key for key in group if len(key) >= shortest and key.startswith(prefix)]
        return [
            key for key in pending if len(key) >= shortest and key.startswith(prefix) and not key[start:].strip(DIGITS)
        ]
