"""Every fault this package raises, as one tree; "not there yet" is ``None`` and never an exception."""

from __future__ import annotations

import errno


class ShmringError(Exception):
    """Base of all errors of this package."""


class InvalidArgumentError(ShmringError, ValueError):
    """A name, key, timeout or configuration value that the transport cannot accept; says which and why."""


class DescriptorError(InvalidArgumentError):
    """A descriptor that is malformed, or that names another edge, key or scope than the one asked for."""


class EncodeError(ShmringError, TypeError):
    """A payload holds something that cannot travel. Nothing has been written.

    ``path`` names the place (``payload['hidden'][3]``), ``reason`` says what it is and what to do.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class DecodeError(ShmringError, ValueError):
    """A received frame does not decode. Its space has been returned; ``path`` is where in the payload."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class BacklogError(ShmringError, BufferError):
    """A put would take a producer past ``max_pending_bytes`` (or its index past its limit). Nothing was written."""

    def __init__(self, edge: str, nbytes: int, pending_bytes: int, limit_bytes: int, pending: int) -> None:
        super().__init__(
            f"edge {edge}: {pending} unclaimed messages hold {pending_bytes:,} bytes and {nbytes:,} more would pass "
            f"the limit of {limit_bytes:,}; receive or cancel some, or raise max_pending_bytes"
        )
        self.edge = edge
        self.nbytes = nbytes
        self.pending_bytes = pending_bytes
        self.limit_bytes = limit_bytes
        self.pending = pending


class NoSpaceError(ShmringError, OSError):
    """The shared-memory file system has no room. Nothing was published; the edge recovers when room returns."""

    def __init__(self, what: str, need_bytes: int, room_bytes: int) -> None:
        super().__init__(
            errno.ENOSPC, f"no room for {what}: needs {need_bytes:,} bytes, {room_bytes:,} bytes are free in its folder"
        )
        self.need_bytes = need_bytes
        self.room_bytes = room_bytes

    def __str__(self) -> str:
        return str(self.args[1])


class ScopeError(ShmringError, PermissionError):
    """The scope's directory cannot be trusted or used: wrong owner, wrong mode, a symlink, or kept busy."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EPERM, f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class DamagedError(ShmringError, RuntimeError):
    """A ring or frame holds impossible bytes. The channel is set aside; its producer starts a fresh one."""

    def __init__(self, channel: str, reason: str) -> None:
        super().__init__(f"channel {channel} is damaged and set aside: {reason}")
        self.channel = channel
        self.reason = reason


class ClosedError(ShmringError, RuntimeError):
    """The transport, or the lease, has been closed."""


class ForkedError(ShmringError, RuntimeError):
    """The transport was opened before a fork and is used in the child; open a transport in the child instead."""


class TooManyReceiversError(ShmringError, RuntimeError):
    """More receiver processes compete for one stage than an inbox has entries."""
