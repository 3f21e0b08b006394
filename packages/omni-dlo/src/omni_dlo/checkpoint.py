"""Sizes of a model's blocks from its folder: safetensors headers and nothing more."""

from __future__ import annotations

import json
import pathlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from omni_dlo.errors import PlanError
from omni_dlo.layout import ALIGNMENT, round_up

__all__ = ["CheckpointBlock", "ModelSizes", "read_model"]

HEADER_LIMIT = 100_000_000
"""The most bytes a safetensors header may have (the format's own limit)."""

BLOCK_NAME = re.compile(r"^(?P<stack>(?:[A-Za-z_]\w*\.)*?[A-Za-z_]\w*)\.(?P<index>\d+)\.(?P<rest>.+)$")


@dataclass(frozen=True)
class CheckpointBlock:
    """One block: its name, its packed bytes, and its count of parameters."""

    name: str
    nbytes: int
    parameters: int


@dataclass(frozen=True)
class ModelSizes:
    """Blocks in name order, and the bytes outside them."""

    name: str
    blocks: tuple[CheckpointBlock, ...]
    outside_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.outside_bytes + sum(block.nbytes for block in self.blocks)


def read_model(folder: pathlib.Path) -> ModelSizes:
    """Read a transformers or diffusers model folder; of a pipeline, its largest component.

    Raises:
        PlanError: No safetensors file there, a damaged header, or no stack of blocks in the names.
    """
    if not folder.is_dir():
        raise PlanError(f"{folder} is no folder")
    candidates = [folder] if any(folder.glob("*.safetensors")) else sorted(p for p in folder.iterdir() if p.is_dir())
    models = [sizes(path) for path in candidates if any(path.glob("*.safetensors"))]
    if not models:
        raise PlanError(f"{folder} holds no safetensors file, nor does a folder in it")
    best = max(models, key=lambda model: (bool(model.blocks), model.total_bytes))
    if not best.blocks:
        raise PlanError(f"the tensor names in {folder} show no stack of alike blocks")
    return best


def sizes(folder: pathlib.Path) -> ModelSizes:
    """The sizes of one component's folder."""
    tensors: dict[str, tuple[int, int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(_header(path))
    stacks: dict[str, dict[int, dict[str, tuple[int, int]]]] = {}
    for name, size in tensors.items():
        match = BLOCK_NAME.match(name)
        if match is not None:
            stacks.setdefault(match["stack"], {}).setdefault(int(match["index"]), {})[match["rest"]] = size
    total = sum(nbytes for nbytes, _ in tensors.values())
    blocks: list[CheckpointBlock] = []
    inside = 0
    for stack, members in stacks.items():
        alike = len({frozenset(member) for member in members.values()}) <= 2
        whole = sum(nbytes for member in members.values() for nbytes, _ in member.values())
        if len(members) < 2 or not alike or whole < 0.02 * total:
            continue
        for index in sorted(members):
            packed = sum(round_up(nbytes, ALIGNMENT) for nbytes, _ in members[index].values())
            count = sum(parameters for _, parameters in members[index].values())
            blocks.append(CheckpointBlock(f"{stack}.{index}", packed, count))
        inside += whole
    return ModelSizes(folder.name, tuple(blocks), total - inside)


def _header(path: pathlib.Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Name, and bytes and elements, of every tensor (format: huggingface/safetensors README)."""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else HEADER_LIMIT + 1
        if length > HEADER_LIMIT:
            raise PlanError(f"{path} is no safetensors file: its header has an impossible length")
        raw = file.read(length)
    try:
        header = json.loads(raw)
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                count = 1
                for extent in entry["shape"]:
                    count *= extent
                yield name, (int(end) - int(begin), count)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"{path} has a damaged safetensors header") from error
