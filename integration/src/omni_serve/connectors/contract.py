"""What an engine may expect of an edge, whatever carries it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Got:
    """A received payload and its size in bytes as it travelled."""

    payload: Any
    nbytes: int


@dataclass(frozen=True, slots=True)
class ConnectorHealth:
    """Counters since the connector was opened, and what is pending now."""

    puts: int
    gets: int
    bytes_put: int
    bytes_got: int
    pending: int
    pending_bytes: int


class Connector(Protocol):
    """Keyed messages between stages. Every call is bounded; only get_with_deadline waits."""

    def put(self, from_stage: str, to_stage: str, key: str, payload: Any) -> tuple[int, bytes]:
        """Publish a payload; its size in bytes and a handle that names exactly this publication."""
        ...

    def get(self, from_stage: str, to_stage: str, key: str, handle: bytes | None = None) -> Got | None:
        """Take a payload; None when it is not there yet."""
        ...

    def get_with_deadline(
        self, from_stage: str, to_stage: str, key: str, handle: bytes | None = None, *, deadline_s: float
    ) -> Got | None:
        """Take a payload, waiting until ``deadline_s`` on the clock of time.monotonic()."""
        ...

    def cleanup(self, key: str) -> None:
        """Retire what this process published under exactly this key and nobody took."""
        ...

    def cleanup_prefix(self, prefix: str) -> None:
        """Likewise for every key that is the prefix and digits: the chunks of one request."""
        ...

    def health(self) -> ConnectorHealth:
        """Counters. Raises when the connector is closed."""
        ...

    def close(self) -> None:
        """Let everything go. Idempotent."""
        ...
