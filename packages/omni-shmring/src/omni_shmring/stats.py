"""What a transport counts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Running totals of one transport; :class:`Stats` is their snapshot."""

    puts: int = 0
    put_bytes: int = 0
    ring_puts: int = 0
    ring_put_bytes: int = 0
    segment_puts: int = 0
    segment_put_bytes: int = 0
    gets: int = 0
    get_bytes: int = 0
    ring_gets: int = 0
    segment_gets: int = 0
    leases: int = 0
    refusals: int = 0
    retired: int = 0
    cancelled: int = 0
    dropped: int = 0
    decode_errors: int = 0
    damaged: int = 0
    reaped: int = 0


@dataclass(frozen=True, slots=True)
class EdgeStats:
    """One edge now.

    Attributes:
        pending: Messages put and not yet taken.
        pending_bytes: Their bytes, keys included.
        ring_bytes: Capacity of the ring in use; 0 when the edge runs without one.
        ring_used_bytes: How much of it is taken.
        rings: Rings that exist, those that only drain included.
    """

    dest: str
    pending: int
    pending_bytes: int
    ring_bytes: int
    ring_used_bytes: int
    rings: int


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot of one transport: totals since it was opened, and what is pending now.

    ``refusals`` counts puts that raised :class:`BacklogError` or :class:`NoSpaceError`; ``retired`` earlier
    publications replaced by a new put of their key; ``dropped`` messages lost with a damaged channel or at close;
    ``reaped`` files removed that dead processes had left.
    """

    puts: int
    put_bytes: int
    ring_puts: int
    ring_put_bytes: int
    segment_puts: int
    segment_put_bytes: int
    gets: int
    get_bytes: int
    ring_gets: int
    segment_gets: int
    leases: int
    refusals: int
    retired: int
    cancelled: int
    dropped: int
    decode_errors: int
    damaged: int
    reaped: int
    pending: int
    pending_bytes: int
    edges: tuple[EdgeStats, ...] = field(default=())
