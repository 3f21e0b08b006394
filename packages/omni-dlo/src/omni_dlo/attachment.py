"""One attach, from capture to streamer, that either succeeds whole or leaves the modules as they were."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from omni_dlo.capture import Tracked, Unit, capture
from omni_dlo.config import OffloadConfig
from omni_dlo.devices.base import Device
from omni_dlo.discovery import Stack
from omni_dlo.errors import OffloadStateError
from omni_dlo.host.base import HostSource
from omni_dlo.lease import Lease, bind_to_lease
from omni_dlo.on_demand import OnDemandComponent
from omni_dlo.patching import refuse_moves, report_device, wrap_method
from omni_dlo.peers import GroupAgreement
from omni_dlo.placeholder import ShardedHome
from omni_dlo.placement import Placement, place
from omni_dlo.residents import Home, Resident, give_back
from omni_dlo.slots import CopyEngine, Slot
from omni_dlo.sources import SourceFactory
from omni_dlo.streamer import StreamedBlock, Streamer

__all__ = ["Attachment", "Target"]

MARK = "_omni_dlo_attached"


@dataclass(frozen=True)
class Target:
    """A module to attach to: its name (empty for the only one), itself, and its stacks."""

    name: str
    module: nn.Module
    stacks: tuple[Stack, ...]


class Attachment:
    """Everything between attach and detach.

    Args:
        targets: Modules that share one schedule and one set of rotating buffers.
        config: See :class:`OffloadConfig`.
        device: The opened device.
        lease: Where the first target's weights lie, or None.

    Raises:
        OffloadError: Whatever was refused; the modules are then as they were.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        config: OffloadConfig,
        device: Device,
        lease: Lease | None,
        on_demand: Sequence[tuple[str, nn.Module]] = (),
    ) -> None:
        self._targets = list(targets)
        self._on_demand = list(on_demand)
        self._config = config
        self._device = device
        self._undo: list[Callable[[], object]] = []
        self._extra: list[Resident] = []
        self._known: dict[int, Tracked] = {}
        self._modules: set[int] = set()
        self._leased = lease is not None
        self.slot_bytes = 0
        self.resident_bytes = 0
        self.placement: Placement
        self.sharded: list[ShardedHome] = []
        self.streamer: Streamer | None = None
        self.sources: SourceFactory
        try:
            with torch.inference_mode(False), torch.no_grad():
                self._attach(lease)
        except BaseException:
            self._roll_back()
            raise

    @property
    def extra_bytes(self) -> int:
        """Device bytes of tensors that joined after attach: a LoRA, weights that a block changed in place."""
        return sum(resident.nbytes for resident in self._extra)

    @property
    def engine(self) -> CopyEngine:
        return self._engine

    @property
    def slots(self) -> Sequence[Slot]:
        return self._slots

    def detach(self) -> None:
        """Take everything off again, last first. The first fault is raised after all else was tried."""
        if self.streamer is not None:
            self._engine.drain()
            self._recapture()
        self._roll_back()

    def _roll_back(self) -> None:
        first: BaseException | None = None
        with torch.inference_mode(False), torch.no_grad():
            while self._undo:
                try:
                    self._undo.pop()()
                except Exception as error:  # noqa: BLE001 - every other step must still be undone; raised below
                    first = first or error
        if first is not None:
            raise first

    def _attach(self, lease: Lease | None) -> None:
        everything = [(target.name, target.module) for target in self._targets] + self._on_demand
        for name, root in everything:
            for module in root.modules():
                if MARK in module.__dict__:
                    raise OffloadStateError(f"{name or type(module).__name__} is attached to another offloader")
        tensors = [
            tracked for target in self._targets for tracked in capture(target.module, target.name)
        ]  # fmt: skip
        stacks = [stack for target in self._targets for stack in target.stacks]
        self._known = {id(tracked.tensor): tracked for tracked in tensors}
        # Made first, so that it is closed last: nothing refers to a mapping any more when it is unregistered.
        self.sources = SourceFactory(self._device, self._config, lease)
        self._undo.append(self.sources.close)
        if lease is not None:
            prefix = f"{self._targets[0].name}." if self._targets[0].name else ""
            for tracked, leased in bind_to_lease(tensors, lease, prefix):
                before = (tracked, tracked.tensor, [leaf.data for leaf in tracked.leaves])
                tracked.point_at([leased])
                self._undo.append(partial(give_back, *before))
        self.placement = place(tensors, stacks, self._config.resident_blocks, self._config.plan)
        self._place_residents()
        blocks = self._make_blocks()
        self._make_streamer(blocks)
        for name, module in self._on_demand:
            self._mark(module)
            self._undo.append(OnDemandComponent(name, module, self._device).close)
        self._patch()
        self._known = {id(tracked.tensor): tracked for tracked in tensors}
        self._modules = {id(module) for target in self._targets for module in target.module.modules()}

    def _place_residents(self) -> None:
        members = [*self.placement.rest]
        for block in self.placement.blocks:
            if block.resident:
                members.extend(block.tensors)
        resident = Resident(Unit("rest", members), self._device, keep_home=self._leased)
        self._undo.append(resident.restore)
        self.resident_bytes = resident.nbytes

    def _make_blocks(self) -> list[StreamedBlock]:
        blocks: list[StreamedBlock] = []
        for placed in self.placement.blocks:
            if placed.resident or not placed.tensors:
                continue
            unit = Unit(placed.name, placed.tensors)
            source = self.sources.make(unit)
            leaves = source.leaves()
            if leaves is not None:
                home = Home(unit, keep=self._leased)
                at = 0
                for tracked in unit.tensors:
                    count = len(tracked.leaves)
                    tracked.point_at(leaves[at : at + count])
                    at += count
                home.moved()
                self._undo.append(partial(_go_home, home, source))
                unit.forget_anchors()
            blocks.append(StreamedBlock(len(blocks), placed.name, placed.module, unit, source))
        return blocks

    def _make_streamer(self, blocks: list[StreamedBlock]) -> None:
        self._engine = CopyEngine(self._device, in_thread=self.sources.in_thread, trace=self._config.trace)
        self._undo.append(self._engine.close)
        self._slots: list[Slot] = []
        self.slot_bytes = self.sources.open_stage()
        self._undo.append(self.sources.close_stage)
        if not blocks:
            return
        size = max(block.source.buffer_bytes for block in blocks)
        for index in range(min(self._config.buffers, len(blocks))):
            slot = Slot(index, self._device.empty(size, f"slot {index}"))
            self._slots.append(slot)
            self.slot_bytes += size
            self._undo.append(partial(self._device.release, slot.buffer))
        self._undo.append(self._engine.drain)
        self.streamer = Streamer(
            self._device,
            blocks,
            self._slots,
            self._engine,
            agreement=self.sources.agreement,
            on_change=self._recapture,
            on_mutation=self._keep_mutated,
            trace=self._config.trace,
        )
        if isinstance(self.sources.agreement, GroupAgreement):
            self._shard(self.sources.agreement, blocks)
        for block in blocks:
            self._undo.append(wrap_method(block.module, "forward", self._wrapping(self.streamer, block)).undo)

    def _shard(self, agreement: GroupAgreement, blocks: list[StreamedBlock]) -> None:
        """Give the whole tensors up, once every rank has cut the same blocks and has all the memory it needs."""
        plan = "\n".join(f"{block.name} {block.unit.nbytes}" for block in blocks)
        agreement.know([block.name for block in blocks], zlib.crc32(plan.encode()))
        if self._leased:
            return
        for block in blocks:
            home = ShardedHome(block.unit, block.source, self._device.torch_device)
            self.sharded.append(home)
            self._undo.append(home.restore)
            block.refresh(len(self._slots))

    @staticmethod
    def _wrapping(streamer: Streamer, block: StreamedBlock) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return lambda call: streamer.wrap(block, call)

    def _patch(self) -> None:
        streamed = {id(block.module) for block in self.streamer.blocks} if self.streamer else set()
        for target in self._targets:
            module = target.module
            self._mark(module)
            if not self._device.unified:
                self._undo.append(report_device(module, self._device.torch_device))
            name = target.name or type(module).__name__
            self._undo.append(refuse_moves(module, name, self._device.torch_device).undo)
            if id(module) not in streamed:
                self._undo.append(wrap_method(module, "forward", self._entry).undo)
        hooks = nn.modules.module
        for register in (
            hooks.register_module_parameter_registration_hook,
            hooks.register_module_buffer_registration_hook,
            hooks.register_module_module_registration_hook,
        ):
            self._undo.append(register(self._registered).remove)

    def _mark(self, module: nn.Module) -> None:
        module.__dict__[MARK] = True
        self._undo.append(partial(module.__dict__.pop, MARK, None))

    def _entry(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The model's own forward: what was added since the last one goes to the device before it runs."""

        def entered(*args: Any, **kwargs: Any) -> Any:
            streamer = self.streamer
            if streamer is not None and streamer.changed and not streamer.schedule.running():
                self._recapture()
            try:
                return call(*args, **kwargs)
            except BaseException as error:
                if streamer is not None:
                    streamer.failed(error)
                raise

        return entered

    def _registered(self, module: nn.Module, name: str, value: object) -> None:
        # torch calls this for every module of the process; only ours matter. A block that writes `self.count += 1`
        # registers the buffer it has.
        if id(module) not in self._modules or self.streamer is None:
            return
        tables: tuple[Mapping[str, object], ...] = (module._parameters, module._buffers, module._modules)
        if all(table.get(name) is not value for table in tables):
            self.streamer.changed = True

    def _recapture(self) -> None:
        """Find out what the modules hold now: new tensors go to the device, sites are read anew."""
        streamer = self.streamer
        if streamer is None:
            return
        streamer.changed = False
        with torch.inference_mode(False), torch.no_grad():
            now = [tracked for target in self._targets for tracked in capture(target.module, target.name)]
            present = {id(tracked.tensor): tracked for tracked in now}
            for known in self._known.values():
                match = present.get(id(known.tensor))
                known.sites = match.sites if match is not None else []
            fresh = [tracked for tracked in now if id(tracked.tensor) not in self._known]
            self._adopt("added", fresh)
            self._known.update({id(tracked.tensor): tracked for tracked in fresh})
            self._modules = {id(module) for target in self._targets for module in target.module.modules()}
        streamer.refresh()

    def _adopt(self, name: str, tensors: list[Tracked]) -> None:
        if tensors:
            self._extra.append(Resident(Unit(name, tensors), self._device, keep_home=False))
            # Before the slots and residents of attach are given up: undone first.
            self._undo.append(self._extra[-1].restore)

    def _keep_mutated(self, block: StreamedBlock, slot: Slot, changed: list[Tracked]) -> None:
        """What a block wrote into its slot becomes the tensor's value, and stays on the device from now on."""
        with torch.inference_mode(False), torch.no_grad():
            members = self._device_leaves(block, slot)
            for tracked in changed:
                values = [leaf.clone() for leaf in members[id(tracked)]]
                held = Tracked(
                    tracked.name, tracked.tensor, tracked.parameter, tracked.leaves, tracked.rebuild,
                    tracked.kind, tracked.wrapped, tracked.sites, tracked.names,
                )  # fmt: skip
                tracked.sites = []
                held.point_at(values)
                self._known[id(held.tensor)] = held
                self._adopt(f"changed by {block.name}", [held])

    def _device_leaves(self, block: StreamedBlock, slot: Slot) -> dict[int, list[torch.Tensor]]:
        leaves, at, found = block.unit.leaves_in(slot.buffer), 0, {}
        for tracked in block.unit.tensors:
            found[id(tracked)] = leaves[at : at + len(tracked.leaves)]
            at += len(tracked.leaves)
        return found


def _go_home(home: Home, source: HostSource) -> None:
    home.restore(source.packed())
