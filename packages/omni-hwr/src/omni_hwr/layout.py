"""Where each tensor's bytes go: file, offset, header. Pure: the same tensors always give the same files.

The payload is plain safetensors: eight bytes little-endian header length, a JSON header, the data without gaps
(https://github.com/huggingface/safetensors#format). The format allows blanks after the header's JSON, so the header is
padded until the data begins on a page; tensors whose size is a multiple of 64 come first and so lie on 64 bytes, the
rest follow by falling item size so that each lies on its own items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from omni_hwr.dtypes import ITEM_BYTES
from omni_hwr.errors import TensorError

PAGE_BYTES = 4096
LINE_BYTES = 64
MAX_HEADER_BYTES = 100_000_000
"""The safetensors readers' own limit; a longer header is refused unread."""

_METADATA = {"format": "pt", "producer": "omni-hwr"}


def nbytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Size of a dense tensor in bytes; -1 where the data type is unknown or a dimension negative."""
    size = ITEM_BYTES.get(dtype, -1)
    for extent in shape:
        if extent < 0:
            return -1
        size *= extent
    return size if dtype in ITEM_BYTES else -1


@dataclass(frozen=True)
class TensorSpec:
    """Data type (safetensors name) and shape of a dense tensor."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the dense tensor in bytes."""
        return nbytes_of(self.dtype, self.shape)


@dataclass(frozen=True)
class Placement:
    """One stored tensor: ``offset`` counts from the beginning of file number ``file``."""

    name: str
    spec: TensorSpec
    file: int
    offset: int

    @property
    def end(self) -> int:
        """First byte after the tensor."""
        return self.offset + self.spec.nbytes


@dataclass(frozen=True)
class FilePlan:
    """One payload file: its name, its padded header (with the length in front), and its size."""

    name: str
    header: bytes
    nbytes: int


@dataclass(frozen=True)
class Plan:
    """Files and placements of a whole artifact, in file order and by rising offset."""

    files: tuple[FilePlan, ...]
    placements: tuple[Placement, ...]

    @property
    def nbytes(self) -> int:
        """Size of all payload files."""
        return sum(item.nbytes for item in self.files)


def file_name(index: int, count: int) -> str:
    """``model-0000i-of-0000n.safetensors``, counting from one."""
    return f"model-{index + 1:05d}-of-{count:05d}.safetensors"


class _HeaderEntry(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def build_header(tensors: Sequence[tuple[str, str, tuple[int, ...], int]]) -> bytes:
    """Length and padded JSON header of a file that holds ``(name, dtype, shape, nbytes)`` in this order, no gaps."""
    table: dict[str, object] = {"__metadata__": _METADATA}
    position = 0
    for name, dtype, shape, nbytes in tensors:
        table[name] = _HeaderEntry(dtype, shape, (position, position + nbytes))
        position += nbytes
    text = msgspec.json.encode(table)
    text += b" " * (-(8 + len(text)) % PAGE_BYTES)
    return len(text).to_bytes(8, "little") + text


def _rank(item: tuple[str, TensorSpec]) -> tuple[bool, int]:
    return item[1].nbytes % LINE_BYTES != 0, -ITEM_BYTES[item[1].dtype]


def plan_layout(tensors: Mapping[str, TensorSpec], shard_bytes: int) -> Plan:
    """Place ``tensors`` into files of about ``shard_bytes`` each, in the order given where alignment allows.

    A tensor larger than ``shard_bytes`` gets a file of its own.

    Raises:
        TensorError: A name that the header cannot hold, a data type without a name, or a header past its limit.
    """
    for name, spec in tensors.items():
        if not name or name == "__metadata__":
            raise TensorError(name, "is no name that a safetensors header can hold")
        if spec.dtype not in ITEM_BYTES:
            raise TensorError(name, f"data type {spec.dtype} has no safetensors name")
        if any(size < 0 for size in spec.shape):
            raise TensorError(name, f"shape {spec.shape} has a negative size")
    shards: list[list[tuple[str, TensorSpec]]] = [[]]
    filled = 0
    for item in tensors.items():
        if shards[-1] and filled + item[1].nbytes > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(item)
        filled += item[1].nbytes
    files: list[FilePlan] = []
    placements: list[Placement] = []
    for index, shard in enumerate(shards):
        shard.sort(key=_rank)
        header = build_header([(name, spec.dtype, spec.shape, spec.nbytes) for name, spec in shard])
        if len(header) > MAX_HEADER_BYTES:
            raise TensorError(shard[0][0], f"its file's header would take {len(header)} bytes; use smaller files")
        position = len(header)
        for name, spec in shard:
            placements.append(Placement(name, spec, index, position))
            position += spec.nbytes
        files.append(FilePlan(file_name(index, len(shards)), header, position))
    return Plan(tuple(files), tuple(placements))
