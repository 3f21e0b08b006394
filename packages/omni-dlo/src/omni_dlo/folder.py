"""What a model folder holds, from the headers of its safetensors files alone; no weight is read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from omni_dlo.discovery import MIN_SHARE
from omni_dlo.errors import PlanError

__all__ = ["ModelShape", "StackShape", "read_folder"]

STREAMED = ("transformer", "transformer_2", "unet")
"""Components of a diffusers folder that run on every step, and so stream; the others come and go."""

_ITEM_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_MAX_HEADER = 100 << 20
_INDEXED = re.compile(r"(?P<stack>.+?)\.(?P<index>\d+)\.(?P<rest>.+)")


@dataclass(frozen=True)
class StackShape:
    """A stack: its dotted name and the bytes of each block in order."""

    name: str
    block_bytes: tuple[int, ...]


@dataclass(frozen=True)
class ModelShape:
    """A model as bytes.

    Attributes:
        name: The folder's name, with the component where it is one of a pipeline's.
        stacks: What can stream.
        outside_bytes: What is in no stack and stays on the device.
        parameters: Elements of all tensors.
        on_demand: Other components of the pipeline and their bytes: there before or after the streamed one runs.
    """

    name: str
    stacks: tuple[StackShape, ...]
    outside_bytes: int
    parameters: int
    on_demand: tuple[tuple[str, int], ...]

    @property
    def whole_bytes(self) -> int:
        """All bytes of the streamed model."""
        return self.outside_bytes + sum(sum(stack.block_bytes) for stack in self.stacks)


def read_folder(folder: Path, component: str | None = None) -> ModelShape:
    """Read a diffusers or transformers folder.

    Args:
        folder: A folder with safetensors files, or with components that have them.
        component: Which component of a pipeline streams; None takes the usual one.

    Raises:
        PlanError: No folder, no safetensors in it, an unknown component, a damaged header, or no stack of blocks.
    """
    if not folder.is_dir():
        raise PlanError(f"{folder} is no folder")
    parts = {path.name: path for path in sorted(folder.iterdir()) if path.is_dir() and any(path.glob("*.safetensors"))}
    if component is not None and component not in parts:
        raise PlanError(
            f"{folder} has no component {component!r} with safetensors; it has {', '.join(parts) or 'none'}"
        )
    if any(folder.glob("*.safetensors")) and component is None:
        return _shape(folder, folder.name, ())
    chosen = component or next((name for name in STREAMED if name in parts), None)
    if chosen is None:
        raise PlanError(f"{folder} holds no safetensors, nor a component named {', '.join(STREAMED)}")
    others = tuple((name, sum(size for _, size, _ in _tensors(path))) for name, path in parts.items() if name != chosen)
    return _shape(parts[chosen], f"{folder.name}/{chosen}", others)


def _shape(folder: Path, name: str, others: tuple[tuple[str, int], ...]) -> ModelShape:
    blocks: dict[str, dict[int, int]] = {}
    suffixes: dict[str, dict[int, set[str]]] = {}
    total = elements = 0
    for tensor, nbytes, count in _tensors(folder):
        total += nbytes
        elements += count
        match = _INDEXED.fullmatch(tensor)
        if match is not None:
            index = int(match["index"])
            blocks.setdefault(match["stack"], {}).setdefault(index, 0)
            blocks[match["stack"]][index] += nbytes
            suffixes.setdefault(match["stack"], {}).setdefault(index, set()).add(match["rest"])
    stacks = []
    for stack, sizes in blocks.items():
        alike = len(set(map(frozenset, suffixes[stack].values()))) == 1
        counted = sorted(sizes) == list(range(len(sizes))) and len(sizes) > 1
        if alike and counted and sum(sizes.values()) >= MIN_SHARE * total:
            stacks.append(StackShape(stack, tuple(sizes[index] for index in range(len(sizes)))))
    if not stacks:
        raise PlanError(f"{name} has no stack of alike blocks, so nothing in it can stream")
    outside = total - sum(sum(stack.block_bytes) for stack in stacks)
    return ModelShape(name, tuple(stacks), outside, elements, others)


def _tensors(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Name, bytes and elements of every tensor."""
    for path in sorted(folder.glob("*.safetensors")):
        yield from _header(path)


def _header(path: Path) -> Iterator[tuple[str, int, int]]:
    """One file's header (the safetensors format: 8 bytes of length, then JSON)."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 2 <= size <= _MAX_HEADER:
                raise PlanError(f"{path} is no safetensors file: its header would have {size} bytes")
            entries = json.loads(file.read(size))
        for name, entry in entries.items():
            if name != "__metadata__":
                count = math.prod(entry["shape"])
                yield name, -(-count * _ITEM_BITS[entry["dtype"]] // 8), count
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"{path} is no safetensors file: {type(error).__name__}: {error}") from error
