"""Where everything stands in a ring's memory, and how its words are packed. Pure.

A ring file is: a header of 4 KiB, an index of ``slots`` publications, then the data area. The index is three arrays:
``marks`` (one 8-byte word a slot: which publication it holds), ``claims`` (one word a slot: what receivers did with
it) and ``bodies`` (128 bytes a slot: where the frame is, and its key). Words are little-endian and aligned, so that a
``memoryview`` cast to ``Q`` reads and writes each with one 8-byte move: CPython copies a native item with a
fixed-size ``memcpy``, which every compiler it is built with turns into a single load or store.

Who may write what: the producer alone writes marks, bodies, data and the head word; receivers write their own entry
of ``busy`` and ``taken``, and the claim word of a slot they hold.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

MAGIC = 0x31676E72_6D68736F  # "oshmrng1" read as a little-endian word
FORMAT = 1
PAGE = 4096
ALIGN = 64

# Header words (index into the view cast to 8-byte words).
W_MAGIC, W_FORMAT, W_SLOTS, W_DATA_BYTES, W_INSTANCE, W_HEADER_CHECK = 0, 1, 2, 3, 4, 5
W_HEAD = 8
"""The latest publication: the one word an empty poll compares."""
W_STATE = 16
"""OPEN while the producer uses the ring."""
W_LINGER = 24
"""Nonzero while the producer waits in close() for receivers."""
W_DRAINED = 25
"""Changes when a receiver took something while the producer lingers; a futex word."""
W_BUSY = 64
"""One word a receiver entry: the mark of the publication it is claiming or copying, else 0."""
W_TAKEN = 128
"""One word a receiver entry: how many publications it has finished."""
MAX_RECEIVERS = 64
HEADER_BYTES = PAGE

STATE_OPEN = 0x4F50454E
STATE_CLOSED = 0x444F4E45
STATE_CONDEMNED = 0x42414421

BODY_BYTES = 128
INLINE_KEY_BYTES = 88
CHUNK_SLOTS = 1024
MAX_SLOTS = 1 << 18

UNCLAIMED = 0
CONSUMED = (1 << 64) - 1
"""A claim word is one of these, or the instance that holds a lease."""

IN_RING, IN_SEGMENT = 1, 2

_BODY = struct.Struct("<QQQQHHI")  # mark, previous head, place, frame bytes, kind, key bytes, check
_CHECKED = struct.Struct("<QQQQHH")


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of one ring."""

    slots: int
    data_bytes: int

    @classmethod
    def for_ring(cls, ring_bytes: int) -> Geometry:
        """The index that suits a ring: one slot for each 4 KiB, between 64 and 1,024."""
        return cls(slots=min(max(ring_bytes // PAGE, 64), CHUNK_SLOTS), data_bytes=ring_bytes)

    @property
    def index(self) -> Index:
        """The index that follows the header."""
        return Index(HEADER_BYTES, self.slots)

    @property
    def data_offset(self) -> int:
        """Where the data area begins: on a page of its own."""
        return align(self.index.end, PAGE)

    @property
    def file_bytes(self) -> int:
        """Size of the ring's file."""
        return self.data_offset + align(self.data_bytes, PAGE)

    @property
    def header_check(self) -> int:
        """What W_HEADER_CHECK holds for these sizes."""
        return zlib.crc32(struct.pack("<4Q", MAGIC, FORMAT, self.slots, self.data_bytes))


@dataclass(frozen=True, slots=True)
class Index:
    """Where the three arrays of ``slots`` publications stand, ``start`` being a multiple of 64 bytes."""

    start: int
    slots: int

    @property
    def marks(self) -> int:
        """First mark, in words."""
        return self.start // 8

    @property
    def claims(self) -> int:
        """First claim, in words."""
        return self.marks + self.slots

    @property
    def bodies(self) -> int:
        """First body, in bytes."""
        return self.start + 16 * self.slots

    @property
    def end(self) -> int:
        """First byte after the index."""
        return self.bodies + BODY_BYTES * self.slots


CHUNK_BYTES = Index(0, CHUNK_SLOTS).end


def align(value: int, unit: int) -> int:
    """The next multiple of ``unit`` (a power of two) that is at least ``value``."""
    return (value + unit - 1) & -unit


def pack_mark(number: int, slot: int) -> int:
    """A publication in one word: 38 bits of number, 18 of slot, 8 of check (modulo a prime: it sees a changed byte)."""
    joined = number << 18 | slot
    return joined << 8 | joined % 251


def mark_number(mark: int) -> int:
    """The publication number in a mark, counted from 1 by its ring."""
    return mark >> 26


def mark_slot(mark: int) -> int:
    """The slot in a mark."""
    return mark >> 8 & (MAX_SLOTS - 1)


def mark_holds(mark: int) -> bool:
    """Whether a mark's check agrees with the rest of it."""
    return (mark >> 8) % 251 == mark & 0xFF


class Body:
    """What a slot says about its publication."""

    __slots__ = ("key_bytes", "kind", "nbytes", "place", "previous")

    def __init__(self, previous: int, place: int, nbytes: int, kind: int, key_bytes: int) -> None:
        self.previous = previous
        self.place = place
        self.nbytes = nbytes
        self.kind = kind
        self.key_bytes = key_bytes


def pack_body(mark: int, previous: int, place: int, nbytes: int, kind: int, key: bytes) -> bytes:
    """The bytes of a slot's body; the key stands inline when it is short, else at the start of the frame's place."""
    fields = _CHECKED.pack(mark, previous, place, nbytes, kind, len(key))
    packed = fields + zlib.crc32(key, zlib.crc32(fields)).to_bytes(4, "little")
    return packed + key if len(key) <= INLINE_KEY_BYTES else packed


def unpack_body(view: memoryview, offset: int) -> tuple[int, Body, int]:
    """(mark, body, check) as they stand at ``offset``; the caller compares with :func:`body_check`."""
    mark, previous, place, nbytes, kind, key_length, check = _BODY.unpack_from(view, offset)
    return mark, Body(previous, place, nbytes, kind, key_length), check


def body_check(mark: int, body: Body, key: bytes) -> int:
    """The check that belongs to a body and its key."""
    fields = _CHECKED.pack(mark, body.previous, body.place, body.nbytes, body.kind, body.key_bytes)
    return zlib.crc32(key, zlib.crc32(fields))


def key_span(key_length: int) -> int:
    """Bytes that a key takes at the start of its frame's place: none when it stands inline."""
    return 0 if key_length <= INLINE_KEY_BYTES else align(key_length, ALIGN)
