"""The bytes of one frame. Pure.

A frame is: a prefix of 24 bytes, the sizes of its large regions (8 bytes each), the msgpack meta, the small area (on
a multiple of 64), then the large regions, each on a multiple of 64, or of a page where it is 256 KiB or more. Small
leaves share the small area, which never passes 256 KiB; a large leaf is a region of its own, and on the receiving
side an allocation of its own, so that keeping a small leaf never keeps a large one.
"""

from __future__ import annotations

import ctypes
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from omni_shmring.errors import DecodeError
from omni_shmring.layout import ALIGN, PAGE, align

Source = int | memoryview
"""Where a region's bytes are: an address, or a contiguous view of bytes."""

SMALL_LEAF_BYTES = 16 << 10
SMALL_AREA_BYTES = 256 << 10
ONE_COPY_BYTES = 128 << 10
PAGED_REGION_BYTES = 256 << 10
CHECKED_BYTES = 4096
"""How much after the check it covers, beginning with the sizes: all of the head but for long plain lists."""

_PREFIX = struct.Struct("<HHIIIII")  # magic, version, check, meta bytes, small bytes, regions, total / 64
_SIZES = struct.Struct("<IIII")
_START = struct.Struct("<HHI")
_MAGIC = 0x5246
_VERSION = 1
PREFIX_BYTES = _PREFIX.size
_memmove = ctypes.memmove
_crc32 = zlib.crc32


class Regions:
    """Collects the raw leaves of one payload."""

    __slots__ = ("large", "small", "small_end", "used")

    def __init__(self) -> None:
        self.small: list[tuple[int, Source, int]] = []
        self.small_end = 0
        self.large: list[tuple[Source, int]] = []
        self.used = False

    def add(self, source: Source, nbytes: int) -> tuple[int, int]:
        """Take a leaf; return (area, place): area 0 and its offset in the small area, or area 1 and its number."""
        self.used = True
        end = self.small_end
        if nbytes <= SMALL_LEAF_BYTES and end + nbytes <= SMALL_AREA_BYTES:
            if nbytes:
                self.small.append((end, source, nbytes))
            self.small_end = (end + nbytes + ALIGN - 1) & -ALIGN
            return 0, end
        self.large.append((source, nbytes))
        return 1, len(self.large) - 1


class Frame:
    """One encoded payload, not yet in one place: the head's bytes, and pieces that are copied where it goes.

    It borrows the payload's memory; write it out before the payload may change.
    """

    __slots__ = ("head", "nbytes", "pieces")

    def __init__(self, meta: bytes, regions: Regions) -> None:
        large = regions.large
        meta_bytes = len(meta)
        small_at = (PREFIX_BYTES + 8 * len(large) + meta_bytes + ALIGN - 1) & -ALIGN
        end = small_at + regions.small_end
        pieces = [(small_at + at, source, size) for at, source, size in regions.small]
        table = b""
        if large:
            table = struct.pack(f"<{len(large)}Q", *[size for _, size in large])
            for source, size in large:
                end = align(end, PAGE if size >= PAGED_REGION_BYTES else ALIGN)
                pieces.append((end, source, size))
                end += size
        self.nbytes = end
        checked = _SIZES.pack(meta_bytes, regions.small_end, len(large), (end + ALIGN - 1) // ALIGN) + table + meta
        check = _crc32(checked if len(checked) <= CHECKED_BYTES else memoryview(checked)[:CHECKED_BYTES])
        self.head = _START.pack(_MAGIC, _VERSION, check) + checked
        self.pieces = pieces

    def write(self, view: memoryview, offset: int, address: int) -> None:
        """Copy everything to ``view[offset:]``, whose first byte is at ``address``."""
        view[offset : offset + len(self.head)] = self.head
        for at, source, size in self.pieces:
            if type(source) is int:
                _memmove(address + at, source, size)
            else:
                view[offset + at : offset + at + size] = source  # type: ignore[assignment]

    def buffers(self) -> list[memoryview]:
        """The whole frame as a list of buffers, gaps included, for writing to a file."""
        found, at = [memoryview(self.head)], len(self.head)
        for start, source, size in self.pieces:
            if start > at:
                found.append(memoryview(bytes(start - at)))
            if isinstance(source, int):
                source = memoryview((ctypes.c_ubyte * size).from_address(source)).cast("B")
            found.append(source)
            at = start + size
        if at < self.nbytes:
            found.append(memoryview(bytes(self.nbytes - at)))
        return found


Buffer = bytearray | memoryview


class Parts(msgspec.Struct):
    """A frame as the receiver holds it: its own copies (or, in a lease, views of the shared memory).

    The small area is ``small[small_at : small_at + small_bytes]``.
    """

    meta: memoryview
    small: Buffer
    small_at: int
    small_bytes: int
    large: Sequence[Buffer]
    read_only: bool = False


class Outline(NamedTuple):
    """Where the parts of a frame stand in it; ``large`` has offset and size of each."""

    meta_at: int
    meta_end: int
    small_at: int
    small_bytes: int
    large: list[tuple[int, int]]


def parse(view: memoryview) -> Outline:
    """Find the parts of a frame.

    Raises:
        DecodeError: no frame of this version, or one whose parts do not fit its ``len(view)`` bytes.
    """
    total = len(view)
    if total < PREFIX_BYTES:
        raise DecodeError("payload", f"a frame of {total} bytes is shorter than any frame")
    magic, version, check, meta_bytes, small_bytes, regions, _ = _PREFIX.unpack_from(view)
    if magic != _MAGIC or version != _VERSION:
        raise DecodeError("payload", "the frame does not begin like one of this version")
    meta_at = PREFIX_BYTES + 8 * regions
    meta_end = meta_at + meta_bytes
    if meta_end > total:
        raise DecodeError("payload", f"the frame of {total:,} bytes is shorter than its head of {meta_end:,}")
    if check != _crc32(view[_START.size : min(meta_end, _START.size + CHECKED_BYTES)]):
        raise DecodeError("payload", "the frame's head fails its check")
    small_at = (meta_end + ALIGN - 1) & -ALIGN
    end = small_at + small_bytes
    large = []
    if regions:
        for size in view[PREFIX_BYTES:meta_at].cast("Q").tolist():
            end = align(end, PAGE if size >= PAGED_REGION_BYTES else ALIGN)
            large.append((end, size))
            end += size
    if end != total:
        raise DecodeError("payload", f"the frame's parts end at {end:,}, the frame at {total:,}")
    return Outline(meta_at, meta_end, small_at, small_bytes, large)


def copy_out(view: memoryview) -> Parts:
    """Copy a frame out of shared memory into allocations of the receiver's own. Raises DecodeError like parse."""
    total = len(view)
    if PREFIX_BYTES <= total <= ONE_COPY_BYTES:
        # The usual small message in one piece, written out flat.
        whole = bytearray(view)
        magic, version, check, meta_bytes, small_bytes, regions, blocks = _PREFIX.unpack_from(whole)
        meta_end = PREFIX_BYTES + meta_bytes
        small_at = (meta_end + ALIGN - 1) & -ALIGN
        if regions == 0 and small_at + small_bytes == total and magic == _MAGIC and version == _VERSION:
            owned = memoryview(whole)
            end = min(meta_end, _START.size + CHECKED_BYTES)
            if check != _crc32(owned[_START.size : end]) or blocks != total // ALIGN:
                raise DecodeError("payload", "the frame's head fails its check")
            return Parts(owned[PREFIX_BYTES:meta_end], whole, small_at, small_bytes, ())
    meta_at, meta_end, small_at, small_bytes, large = parse(view)
    copies = [bytearray(view[at : at + size]) for at, size in large]
    small_end = small_at + small_bytes
    if small_end <= ONE_COPY_BYTES:
        whole = bytearray(view[:small_end])
        return Parts(memoryview(whole)[meta_at:meta_end], whole, small_at, small_bytes, copies)
    meta = memoryview(bytearray(view[meta_at:meta_end]))
    return Parts(meta, bytearray(view[small_at:small_end]), 0, small_bytes, copies)


def look_at(view: memoryview) -> Parts:
    """A frame as views of the shared memory itself, for a lease. Raises DecodeError like parse."""
    found = parse(view)
    large = [view[at : at + size] for at, size in found.large]
    return Parts(view[found.meta_at : found.meta_end], view, found.small_at, found.small_bytes, large, read_only=True)
