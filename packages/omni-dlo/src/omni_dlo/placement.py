"""Which tensor streams with which block, and which stay on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from omni_dlo.capture import Tracked, byte_range
from omni_dlo.discovery import Stack
from omni_dlo.errors import PlanError
from omni_dlo.plan import OffloadPlan, spread

__all__ = ["BlockPlacement", "Placement", "place"]

SMALL_BUFFER_BYTES = 1 << 20
"""Buffers up to this size stay on the device: they are what blocks update in place, and they cost nothing."""


@dataclass(frozen=True)
class BlockPlacement:
    """One block: streamed or resident, and the tensors that move with it."""

    stack: str
    name: str
    module: nn.Module
    resident: bool
    tensors: tuple[Tracked, ...]


@dataclass(frozen=True)
class Placement:
    """Every tensor of a module, placed once.

    Attributes:
        blocks: In the order they were built.
        rest: Tensors outside streamed and resident blocks, and those that cannot stream.
        shared: Names of the tensors in ``rest`` that several blocks, or a block and the rest, use.
    """

    blocks: tuple[BlockPlacement, ...]
    rest: tuple[Tracked, ...]
    shared: tuple[str, ...]


def place(
    tensors: Sequence[Tracked], stacks: Sequence[Stack], resident_blocks: int, plan: OffloadPlan | None
) -> Placement:
    """Decide for each of ``tensors``.

    Raises:
        PlanError: More resident blocks asked for than the stacks have.
    """
    entries = [(stack, name, module) for stack in stacks for name, module in stack.blocks]
    eligible = [
        index for index, (stack, _, _) in enumerate(entries)
        if not stack.encoder and (plan is None or plan.may_stay(stack.name))
    ]  # fmt: skip
    if resident_blocks > len(eligible):
        raise PlanError(f"resident_blocks is {resident_blocks}, but only {len(eligible)} blocks may stay on the device")
    resident = {eligible[position] for position in spread(len(eligible), resident_blocks)}
    owners: dict[int, set[int]] = {}
    for index, (_, _, module) in enumerate(entries):
        for part in module.modules():
            for table in (part._parameters, part._buffers):
                for tensor in table.values():
                    if tensor is not None:
                        owners.setdefault(id(tensor), set()).add(index)
    inside = _registrations(entries)
    members: list[list[Tracked]] = [[] for _ in entries]
    rest: list[Tracked] = []
    shared: list[str] = []
    home: dict[int, int] = {}
    for tracked in tensors:
        mine = owners.get(id(tracked.tensor), set())
        outside = any(name not in inside for name in tracked.names)
        if len(mine) == 1 and not outside and (tracked.parameter or tracked.nbytes > SMALL_BUFFER_BYTES):
            home[id(tracked)] = next(iter(mine))
            continue
        if mine and (outside or len(mine) > 1):
            shared.append(tracked.name)
        home[id(tracked)] = -1
    _follow_storages(tensors, home, shared)
    for tracked in tensors:
        index = home[id(tracked)]
        (rest if index < 0 else members[index]).append(tracked)
    blocks = tuple(
        BlockPlacement(stack.name, name, module, index in resident, tuple(members[index]))
        for index, (stack, name, module) in enumerate(entries)
    )
    return Placement(blocks, tuple(rest), tuple(shared))


def _registrations(entries: Sequence[tuple[Stack, str, nn.Module]]) -> set[str]:
    """Full names of everything registered inside a block, under every name the block has."""
    names: set[str] = set()
    for _, name, module in entries:
        for path, part in module.named_modules(prefix=name):
            names.update(f"{path}.{key}" for key in (*part._parameters, *part._buffers))
    return names


def _follow_storages(tensors: Sequence[Tracked], home: dict[int, int], shared: list[str]) -> None:
    """Tensors that share bytes go where the others go; where they disagree, all stay on the device."""
    spans: list[tuple[object, int, int, Tracked]] = []
    for tracked in tensors:
        for leaf in tracked.leaves:
            item = byte_range(leaf)
            if item.end > item.start:
                spans.append((item.source, item.start, item.end, tracked))
    spans.sort(key=lambda span: (str(span[0]), span[1], span[2]))
    group: list[Tracked] = []
    groups: list[list[Tracked]] = []
    source: object = None
    reach = 0
    for item_source, start, end, tracked in spans:
        if item_source == source and start < reach:
            group.append(tracked)
            reach = max(reach, end)
        else:
            group = [tracked]
            groups.append(group)
            source, reach = item_source, end
    settled = False
    while not settled:
        settled = True
        for members in groups:
            homes = {home[id(tracked)] for tracked in members}
            if len(homes) > 1:
                settled = False
                for tracked in members:
                    if home[id(tracked)] != -1:
                        home[id(tracked)] = -1
                        shared.append(tracked.name)
