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

IN_RING, IN_SEGMENT, IN_SPARE = 1, 2, 3
"""Where a frame is: in the data area, in a file the receiver removes, or in one the producer uses again."""

BODY = struct.Struct("<IQQQQHH")  # check, mark, previous head, place, frame bytes, kind, key bytes; then the key
CHECKED = struct.Struct("<QQQQHH")
CHECK_BYTES = 4
FIELDS_BYTES = BODY.size
"""Where the inline key begins in a body. The check covers what follows it: the fields and the key."""

Entry = tuple[int, int, int, int, int, int, int]
"""A body as it is unpacked: (check, mark, previous head, place, frame bytes, kind, key bytes)."""


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


class Index:
    """Where the three arrays of ``slots`` publications stand, ``start`` being a multiple of 64 bytes.

    Attributes:
        marks: First mark, in words.
        claims: First claim, in words.
        bodies: First body, in bytes.
        end: First byte after the index.
    """

    __slots__ = ("bodies", "claims", "end", "marks", "slots")

    def __init__(self, start: int, slots: int) -> None:
        self.slots = slots
        self.marks = start // 8
        self.claims = self.marks + slots
        self.bodies = start + 16 * slots
        self.end = self.bodies + BODY_BYTES * slots


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


def key_span(key_length: int) -> int:
    """Bytes that a key takes at the start of its frame's place: none when it stands inline."""
    return 0 if key_length <= INLINE_KEY_BYTES else align(key_length, ALIGN)
