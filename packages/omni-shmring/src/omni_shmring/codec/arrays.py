"""numpy arrays and scalars, and the shape record that tensors share with them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from omni_shmring.codec import dtypes
from omni_shmring.codec.frame import Buffer, Parts, Regions

MAX_DIMS = 64
PLAIN, STRIDED = 0, 1
SHAPES = [struct.Struct(f"<BBBBII{n}Q") for n in range(MAX_DIMS + 1)]
"""Element type, dimensions, layout, area, place, identity, shape. After it, for layout STRIDED: the dimensions in the
order they stand in memory, then for each whether it is a repetition of one element. Last, a described dtype."""


class Unsupported(Exception):  # noqa: N818 (a signal inside the codec; it becomes an EncodeError with a path)
    """A leaf that cannot travel, and why."""

    def __init__(self, leaf: object, reason: str) -> None:
        super().__init__(reason)
        self.leaf = leaf
        self.reason = reason


_IDENTITY = struct.Struct("<I")


def pack_shape(
    code: int, area: int, place: int, identity: int, shape: Sequence[int], layout: int = PLAIN, tail: bytes = b""
) -> bytes:
    """The record of one tensor or array."""
    return SHAPES[len(shape)].pack(code, len(shape), layout, area, place, identity, *shape) + tail


class Shape:
    """A record, unpacked: what to look for where, and how to arrange it."""

    __slots__ = ("area", "code", "expanded", "identity", "order", "place", "shape", "tail")

    def __init__(self, record: memoryview) -> None:
        ndim = record[1]
        packed = SHAPES[ndim]
        self.code, _, layout, self.area, self.place, self.identity, *self.shape = packed.unpack_from(record)
        at = packed.size
        self.order: list[int] | None = None
        self.expanded: list[int] | None = None
        if layout == STRIDED:
            self.order = list(record[at : at + ndim])
            self.expanded = list(record[at + ndim : at + 2 * ndim])
            at += 2 * ndim
            if sorted(self.order) != list(range(ndim)):
                raise ValueError(f"dimension order {self.order} of {ndim} dimensions")
        elif layout != PLAIN:
            raise ValueError(f"layout {layout}")
        self.tail = record[at:]

    def memory_shape(self) -> list[int]:
        """The shape of what stands in memory, in its own order."""
        if self.order is None or self.expanded is None:
            return self.shape
        return [1 if self.expanded[dim] else self.shape[dim] for dim in self.order]

    def find(self, parts: Parts, nbytes: int) -> tuple[Buffer, int]:
        """The buffer and offset that hold the ``nbytes`` of this leaf.

        Raises:
            ValueError: they are not where the record says.
        """
        if self.area == 0:
            if self.place + nbytes > parts.small_bytes:
                raise ValueError(f"{nbytes:,} bytes at {self.place:,} leave the small area of {parts.small_bytes:,}")
            return parts.small, parts.small_at + self.place
        if self.area != 1 or self.place >= len(parts.large) or len(parts.large[self.place]) != nbytes:
            raise ValueError(f"there is no region {self.place} of {nbytes:,} bytes")
        return parts.large[self.place], 0


def strided(strides: Sequence[int], shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """(dimensions from the slowest to the fastest in memory, which of them repeat one element)."""
    expanded = [int(stride == 0 and size > 1) for stride, size in zip(strides, shape)]
    order = sorted(range(len(shape)), key=lambda dim: (expanded[dim], -strides[dim] if shape[dim] > 1 else 0))
    return order, expanded


def record_identity(record: memoryview) -> int:
    """Which array or tensor of its payload a record is; two records of one are one object."""
    found: int = _IDENTITY.unpack_from(record, 8)[0]
    return found


def encode_array(regions: Regions, array: np.ndarray[Any, Any], identity: int) -> bytes:
    """The record of a numpy array; its bytes go to ``regions``."""
    dtype = array.dtype
    code, tail = dtypes.BY_DTYPE.get(dtype, dtypes.DESCRIBED), b""
    if code == dtypes.DESCRIBED:
        described = dtypes.describe(dtype)
        if described is None:
            raise Unsupported(array, f"numpy array of {dtype}, which has no portable bytes")
        tail = described
    nbytes = array.nbytes
    if array.flags.c_contiguous:
        area, place = regions.add(_bytes_of(array), nbytes)
        return pack_shape(code, area, place, identity, array.shape, PLAIN, tail)
    order, expanded = strided(array.strides, array.shape)
    base = array[tuple(slice(0, 1) if e else slice(None) for e in expanded)]
    memory = base.transpose(order)
    if not memory.flags.c_contiguous:
        order = sorted(range(array.ndim))
        memory = np.ascontiguousarray(base)
    area, place = regions.add(_bytes_of(memory), memory.nbytes)
    return pack_shape(code, area, place, identity, array.shape, STRIDED, bytes(order) + bytes(expanded) + tail)


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    if array.nbytes == 0:
        return memoryview(b"")
    try:
        return memoryview(array).cast("B")  # type: ignore[arg-type]
    except (ValueError, TypeError, NotImplementedError):
        # An element type the buffer protocol has no letter for (datetime64, float16 fields): its bytes all the same.
        return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def decode_array(record: memoryview, parts: Parts) -> np.ndarray[Any, Any]:
    """The array of a record. Raises ValueError and its kin for what is no such record."""
    shape = Shape(record)
    dtype = dtypes.BY_CODE[shape.code] if shape.code != dtypes.DESCRIBED else dtypes.from_description(shape.tail)
    memory_shape = shape.memory_shape()
    count = math.prod(memory_shape)
    buffer, offset = shape.find(parts, count * dtype.itemsize)
    if count and dtype.itemsize:
        array = np.frombuffer(buffer, dtype, count, offset)
        if len(memory_shape) != 1:
            array = array.reshape(memory_shape)
    else:
        array = np.empty(memory_shape, dtype)
    if shape.order is not None and shape.expanded is not None:
        array = array.transpose(np.argsort(shape.order))
        if any(shape.expanded):
            strides = [0 if e else s for e, s in zip(shape.expanded, array.strides)]
            array = np.lib.stride_tricks.as_strided(array, shape.shape, strides, writeable=not parts.read_only)
    if parts.read_only:
        array.flags.writeable = False
    return array


def encode_scalar(scalar: np.generic) -> bytes:
    """A numpy scalar: its dtype's description, and its bytes."""
    described = dtypes.describe(scalar.dtype)
    if described is None:
        raise Unsupported(scalar, f"numpy scalar of {scalar.dtype}, which has no portable bytes")
    return len(described).to_bytes(2, "little") + described + scalar.tobytes()


def decode_scalar(record: memoryview) -> np.generic:
    """The scalar of a record. Raises ValueError and its kin for what is no such record."""
    end = 2 + int.from_bytes(record[:2], "little")
    dtype = dtypes.from_description(record[2:end])
    if dtype.itemsize == 0:
        empty: np.generic = dtype.type()
        return empty
    found: np.generic = np.frombuffer(bytes(record[end:]), dtype, 1)[0]
    return found
