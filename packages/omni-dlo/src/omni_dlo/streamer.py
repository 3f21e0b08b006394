"""Brings each block's weights to the device when it runs: the thin driver around the schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from omni_dlo.binding import Binding, bind, counts_versions, same_bytes, unbind
from omni_dlo.capture import Tracked, Unit
from omni_dlo.devices.base import Device, Event
from omni_dlo.errors import DivergenceError, GradModeError, ModuleChangedError, PeerFaultError, ScheduleError
from omni_dlo.host.base import HostSource
from omni_dlo.schedule import Fetch, Schedule
from omni_dlo.slots import CopyEngine, Slot

__all__ = ["Agreement", "ComputeSpan", "StreamedBlock", "Streamer"]


class Agreement:
    """What ranks that share blocks must tell each other; alone there is nothing to tell."""

    def before_fetch(self, index: int, name: str) -> None:
        """All ranks are about to fetch block ``index``.

        Raises:
            DivergenceError: Another rank is about to fetch another block.
            PeerFaultError: Another rank raised, or does not answer.
        """

    def fault(self, index: int) -> None:
        """This rank raised in block ``index``: the others learn of it when they next ask."""


@dataclass(frozen=True)
class ComputeSpan:
    """Events around one block's compute, and before its wait, for a trace."""

    name: str
    asked: Event
    start: Event
    end: Event


class StreamedBlock:
    """A block, its host source and, per slot, what its parameters are swapped for."""

    __slots__ = (
        "bindings",
        "bound",
        "depth",
        "hosts",
        "index",
        "module",
        "name",
        "source",
        "trainable",
        "unit",
        "versions",
    )

    def __init__(self, index: int, name: str, module: nn.Module, unit: Unit, source: HostSource) -> None:
        self.index = index
        self.name = name
        self.module = module
        self.unit = unit
        self.source = source
        self.depth = 0
        self.bound: list[Binding] = []
        self.bindings: list[list[Binding] | None] = []
        self.hosts: list[torch.Tensor] = []
        self.versions: list[int] = []
        self.trainable = False
        self.refresh(0)

    def refresh(self, slots: int) -> None:
        """Look at the host tensors anew: their versions, their sites, and whether autograd would want them."""
        self.hosts = [t.tensor for t in self.unit.tensors if t.sites and counts_versions(t.tensor)]
        self.versions = [host._version for host in self.hosts]
        self.trainable = any(tracked.tensor.requires_grad for tracked in self.unit.tensors)
        self.bindings = [None] * slots

    def bind_to(self, slot: Slot) -> list[Binding]:
        """The swaps for ``slot``; made once per slot and kept."""
        with torch.inference_mode(False), torch.no_grad():
            members = self.unit.members_in(slot.buffer)
        made = [
            (site.container, site.key, tracked.tensor, member)
            for tracked, member in zip(self.unit.tensors, members)
            for site in tracked.sites
        ]
        self.bindings[slot.index] = made
        return made


class Streamer:
    """Runs streamed blocks.

    Args:
        device: Where they compute.
        blocks: In the order they were built.
        slots: Rotating buffers, each at least as large as the largest block.
        engine: Fills the slots.
        agreement: Talks to other ranks.
        on_change: Called, when no block runs, after the module was seen to have changed; it re-captures.
        on_mutation: Called with a block, its slot and the tensors it changed there; it takes them out of the stream.
    """

    def __init__(
        self,
        device: Device,
        blocks: Sequence[StreamedBlock],
        slots: Sequence[Slot],
        engine: CopyEngine,
        *,
        agreement: Agreement,
        on_change: Callable[[], None],
        on_mutation: Callable[[StreamedBlock, Slot, list[Tracked]], None],
        trace: bool,
    ) -> None:
        self._device = device
        self._queues = not device.unified
        self.blocks = list(blocks)
        self.slots = list(slots)
        self._engine = engine
        self._agreement = agreement
        self._alone = type(agreement) is Agreement
        self._on_change = on_change
        self._on_mutation = on_mutation
        self._trace = trace
        self.schedule = Schedule(len(self.blocks), len(self.slots))
        self.changed = False
        self.runs = 0
        self.late = 0
        self._last = 0
        self._told = 0
        self.spans: list[ComputeSpan] = []
        self._open_spans: dict[int, tuple[Event, Event]] = {}
        for block in self.blocks:
            block.refresh(len(self.slots))

    def wrap(self, block: StreamedBlock, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call`` (the block's forward) with its weights brought before and given up after, also when it raises."""
        enter, leave = self._enter, self._leave

        def streamed(*args: Any, **kwargs: Any) -> Any:
            enter(block)
            try:
                result = call(*args, **kwargs)
            except BaseException as error:
                leave(block, error)
                raise
            leave(block, None)
            return result

        return streamed

    def refresh(self) -> None:
        """Read the sites of all blocks anew; a block written to on the host since is fetched again."""
        running = self.schedule.running()
        for block in self.blocks:
            if block.index in running:
                continue
            if [host._version for host in block.hosts] != block.versions:
                self.schedule.forget(block.index)
            block.refresh(len(self.slots))

    def invalidate(self) -> None:
        """Every copy on the device is stale; host tensors were changed behind our back."""
        for block in self.blocks:
            self.schedule.forget(block.index)
            block.refresh(len(self.slots))

    def _enter(self, block: StreamedBlock) -> None:
        if torch.is_grad_enabled() and block.trainable:
            raise GradModeError(block.name)
        if block.depth:
            block.depth += 1
            return
        if self.changed and not self.schedule.running():
            self._on_change()
        if [host._version for host in block.hosts] != block.versions:
            # Written in place on the host (load_state_dict, a merge): what a buffer holds is the value before.
            self.schedule.forget(block.index)
            block.versions = [host._version for host in block.hosts]
        schedule = self.schedule
        visit = schedule.enter(block.index)
        slot = self.slots[visit.slot]
        try:
            asked = self._device.record(self._device.compute_stream()) if self._trace else None
            if visit.fetch is not None:
                self.late += 1
                self._fetch(visit.fetch)
            if slot.pending is not None or slot.ready is not None:
                self._engine.complete(slot)
            bindings = block.bindings[slot.index] or block.bind_to(slot)
            if not bind(bindings):
                # Replaced or deleted without our being told: look again, then bind what is there now.
                self._on_change()
                bindings = block.bindings[slot.index] or block.bind_to(slot)
                if not bind(bindings):
                    raise ModuleChangedError(block.name, "its tensors change while it starts")
        except BaseException:
            schedule.leave(block.index)
            schedule.forget(block.index)
            self._give_up()
            raise
        block.bound = bindings
        block.depth = 1
        self._last = block.index
        self._told = 0
        slot.version = slot.buffer._version
        self.runs += 1
        if self._queues:
            self._device.begin_read(slot.buffer, block.name)
        if self._trace:
            start = self._device.record(self._device.compute_stream())
            self._open_spans[block.index] = (asked, start)
        if visit.fetch is None:
            # What comes next was asked for when the block before ended.
            return
        try:
            self._prefetch()
        except BaseException:
            self._finish(block, slot)
            self._give_up()
            raise

    def _leave(self, block: StreamedBlock, error: BaseException | None) -> None:
        block.depth -= 1
        if block.depth:
            return
        index = self.schedule.slot_of(block.index)
        if index is None:
            raise ScheduleError(f"block {block.name!r} lost its buffer while it ran")
        block.depth = 1
        self._finish(block, self.slots[index])
        if error is None:
            try:
                self._prefetch()
            except BaseException:
                self._give_up()
                raise
        else:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """The model raised ``error``, in a block or between blocks: tell the other ranks, once."""
        if id(error) == self._told or isinstance(error, PeerFaultError | DivergenceError):
            return
        # By identity number: the error itself would keep the frames, and their tensors, alive.
        self._told = id(error)
        if not self._alone:
            self._agreement.fault(self._last)
        self._give_up()

    def _finish(self, block: StreamedBlock, slot: Slot) -> None:
        """Point the block at its host tensors again and let its slot be overwritten after what it enqueued."""
        block.depth = 0
        bound, block.bound = block.bound, []
        replaced = unbind(bound)
        try:
            if slot.buffer._version != slot.version:
                self._mutated(block, slot)
            if replaced:
                self.changed = True
        finally:
            if self._queues:
                self._device.end_read(slot.buffer, block.name)
                slot.read = self._device.record(self._device.compute_stream())
            if self._trace:
                asked, start = self._open_spans.pop(block.index)
                end = self._device.record(self._device.compute_stream())
                self.spans.append(ComputeSpan(block.name, asked, start, end))
            self.schedule.leave(block.index)

    def _prefetch(self) -> None:
        for fetch in self.schedule.prefetch():
            self._fetch(fetch)

    def _fetch(self, fetch: Fetch) -> None:
        block = self.blocks[fetch.block]
        if not self._alone:
            self._agreement.before_fetch(block.index, block.name)
        self._engine.fill(self.slots[fetch.slot], block.source, block.name)

    def _give_up(self) -> None:
        """After a fault: keep no slot that is not in use.

        Ranks also forget the order they learned, so that all are in the same state whatever each had done.
        """
        running = self.schedule.running()
        self._engine.drain()
        for block in self.blocks:
            if block.index not in running:
                self.schedule.forget(block.index)
        if not self._alone and not running:
            self.schedule.reset()

    def _mutated(self, block: StreamedBlock, slot: Slot) -> None:
        """Something wrote into the slot while the block ran: find what, and keep it on the device from now on."""
        if not block.source.whole:
            raise ModuleChangedError(block.name, "it changes its weights in place, which sharded weights cannot follow")
        self._device.synchronize()
        leaves = block.unit.leaves_in(slot.buffer)
        changed, at = [], 0
        for tracked in block.unit.tensors:
            mine = leaves[at : at + len(tracked.leaves)]
            at += len(tracked.leaves)
            if tracked.sites and any(not same_bytes(a, b) for a, b in zip(mine, tracked.leaves)):
                changed.append(tracked)
        if changed:
            self._on_mutation(block, slot, changed)
            # What is left in the slot no longer equals the host for those; the rest does.
            block.refresh(len(self.slots))
