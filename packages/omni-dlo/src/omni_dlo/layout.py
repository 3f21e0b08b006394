"""Where each tensor of a block lies in a device buffer. Pure arithmetic over byte ranges.

A block's tensors are ranges of host storages. Ranges of one storage that overlap are one segment, so that views
which share bytes on the host share them on the device; a segment starts on ``ALIGNMENT`` bytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "ByteRange", "Layout", "Segment", "pack", "round_up"]

ALIGNMENT = 256
"""Start of every segment in bytes: what a CUDA allocation guarantees, more than any kernel's vector load needs."""


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is at least ``value``."""
    return -(-value // multiple) * multiple


@dataclass(frozen=True)
class ByteRange:
    """Bytes ``[start, end)`` of the storage ``source``, read in items of ``itemsize`` bytes."""

    source: Hashable
    start: int
    end: int
    itemsize: int


@dataclass(frozen=True)
class Segment:
    """Bytes ``[start, end)`` of ``source`` go to ``offset`` of the buffer."""

    source: Hashable
    start: int
    end: int
    offset: int

    @property
    def nbytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Layout:
    """A packed block.

    Attributes:
        segments: In buffer order.
        places: For each range given to :func:`pack`, its first byte in the buffer.
        nbytes: Bytes of the buffer, a multiple of :data:`ALIGNMENT`.
        payload_bytes: Bytes of the segments alone, without padding.
    """

    segments: tuple[Segment, ...]
    places: tuple[int, ...]
    nbytes: int
    payload_bytes: int


def pack(ranges: Sequence[ByteRange]) -> Layout:
    """Lay ``ranges`` out one after the other, merging those that overlap in their storage."""
    by_source: dict[Hashable, list[int]] = {}
    for index, item in enumerate(ranges):
        by_source.setdefault(item.source, []).append(index)
    segments: list[Segment] = []
    places = [0] * len(ranges)
    offset = 0
    for source, members in by_source.items():
        members.sort(key=lambda index: (ranges[index].start, ranges[index].end))
        for group in _overlapping(ranges, members):
            # Down to the largest item, so that every view of the group keeps its own alignment in the buffer.
            step = max(ranges[index].itemsize for index in group)
            start = min(ranges[index].start for index in group) // step * step
            end = max(ranges[index].end for index in group)
            segments.append(Segment(source, start, end, offset))
            for index in group:
                places[index] = offset + ranges[index].start - start
            offset = round_up(offset + end - start, ALIGNMENT)
    return Layout(tuple(segments), tuple(places), offset, sum(segment.nbytes for segment in segments))


def _overlapping(ranges: Sequence[ByteRange], members: Sequence[int]) -> list[list[int]]:
    """``members``, sorted by start, in groups whose ranges share bytes."""
    groups: list[list[int]] = []
    reach = -1
    for index in members:
        item = ranges[index]
        if groups and item.start < reach:
            groups[-1].append(index)
            reach = max(reach, item.end)
        else:
            groups.append([index])
            reach = item.end
    return groups
