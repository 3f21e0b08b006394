"""Predicts a step before anyone buys a card: the schedule, replayed on a clock. Pure.

Two queues advance alone and meet where the offloader's events make them meet: a block computes after its copy and the
block before; a copy starts after the copy before it and after the compute that last read its buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omni_dlo.errors import PlanError
from omni_dlo.plan import spread
from omni_dlo.report import TraceSpan
from omni_dlo.schedule import Schedule

__all__ = ["Machine", "PlannedBlock", "Prediction", "best_resident_blocks", "predict"]


@dataclass(frozen=True)
class PlannedBlock:
    """A block's bytes and the seconds it computes."""

    name: str
    nbytes: int
    compute_s: float


@dataclass(frozen=True)
class Machine:
    """A device: memory for weights in bytes, and the rate of copies from the host."""

    memory_bytes: int
    h2d_bytes_per_s: float

    def __post_init__(self) -> None:
        if self.memory_bytes <= 0 or self.h2d_bytes_per_s <= 0:
            raise PlanError("device memory and copy rate must be above zero")


@dataclass(frozen=True)
class Prediction:
    """One steady step.

    Attributes:
        resident_blocks: How many blocks stay.
        device_bytes: Weights outside the blocks, resident blocks, and buffers.
        moved_bytes: Bytes from the host.
        compute_s: Seconds of compute alone.
        transfer_s: Seconds of copies alone.
        step_s: Seconds from one step's end to the next one's.
        stall_s: Part of ``step_s`` in which no block computes.
        spans: The step's copies and compute.
        fits: Whether ``device_bytes`` is within the device's memory.
    """

    resident_blocks: int
    device_bytes: int
    moved_bytes: int
    compute_s: float
    transfer_s: float
    step_s: float
    stall_s: float
    spans: tuple[TraceSpan, ...]
    fits: bool


def predict(
    blocks: Sequence[PlannedBlock], outside_bytes: int, machine: Machine, *, resident_blocks: int, buffers: int
) -> Prediction:
    """A steady step with ``resident_blocks`` spread over ``blocks``.

    Raises:
        PlanError: No blocks, more resident blocks than blocks, or no buffer.
    """
    if not blocks or not 0 <= resident_blocks <= len(blocks) or buffers < 1:
        raise PlanError(f"cannot keep {resident_blocks} of {len(blocks)} blocks with {buffers} buffers")
    stay = set(spread(len(blocks), resident_blocks))
    streamed = [index for index in range(len(blocks)) if index not in stay]
    slots = min(buffers, len(streamed))
    largest = max((blocks[index].nbytes for index in streamed), default=0)
    device_bytes = outside_bytes + sum(blocks[index].nbytes for index in stay) + slots * largest
    compute_s = sum(block.compute_s for block in blocks)
    replay = _Replay(blocks, streamed, slots, machine.h2d_bytes_per_s)
    replay.step()
    replay.step()
    begun, moved = replay.compute_s, replay.moved_bytes
    replay.spans.clear()
    replay.step()
    step_s = replay.compute_s - begun
    moved_bytes = replay.moved_bytes - moved
    stall_s = sum(span.end_s - span.start_s for span in replay.spans if span.lane == "stall")
    return Prediction(
        resident_blocks, device_bytes, moved_bytes, compute_s, moved_bytes / machine.h2d_bytes_per_s,
        step_s, stall_s, tuple(replay.spans), device_bytes <= machine.memory_bytes,
    )  # fmt: skip


def best_resident_blocks(
    blocks: Sequence[PlannedBlock], outside_bytes: int, machine: Machine, *, buffers: int
) -> Prediction | None:
    """The fastest prediction that fits, with the least memory among equals; None where nothing fits."""
    predictions = [
        predict(blocks, outside_bytes, machine, resident_blocks=count, buffers=buffers)
        for count in range(len(blocks) + 1)
    ]
    fitting = [prediction for prediction in predictions if prediction.fits]
    # A difference below a millionth is arithmetic, not speed.
    return min(fitting, key=lambda p: (float(f"{p.step_s:.6e}"), p.device_bytes), default=None)


class _Replay:
    def __init__(self, blocks: Sequence[PlannedBlock], streamed: Sequence[int], slots: int, rate: float) -> None:
        self._blocks = blocks
        self._order = {block: position for position, block in enumerate(streamed)}
        self._streamed = streamed
        self._rate = rate
        self._schedule = Schedule(len(streamed), slots) if streamed else None
        self._ready = [0.0] * slots
        self._read = [0.0] * slots
        self._copy_s = 0.0
        self.compute_s = 0.0
        self.moved_bytes = 0
        self.spans: list[TraceSpan] = []

    def step(self) -> None:
        for index, block in enumerate(self._blocks):
            schedule, position = self._schedule, self._order.get(index)
            if schedule is None or position is None:
                self._compute(block)
                continue
            visit = schedule.enter(position)
            if visit.fetch is not None:
                self._copy(visit.fetch.block, visit.fetch.slot)
            if self._ready[visit.slot] > self.compute_s:
                self.spans.append(TraceSpan("stall", block.name, self.compute_s, self._ready[visit.slot]))
                self.compute_s = self._ready[visit.slot]
            for fetch in schedule.prefetch() if visit.fetch is not None else ():
                self._copy(fetch.block, fetch.slot)
            self._compute(block)
            self._read[visit.slot] = self.compute_s
            schedule.leave(position)
            for fetch in schedule.prefetch():
                self._copy(fetch.block, fetch.slot)

    def _compute(self, block: PlannedBlock) -> None:
        self.spans.append(TraceSpan("compute", block.name, self.compute_s, self.compute_s + block.compute_s))
        self.compute_s += block.compute_s

    def _copy(self, position: int, slot: int) -> None:
        block = self._blocks[self._streamed[position]]
        start = max(self._copy_s, self._read[slot])
        self._copy_s = self._ready[slot] = start + block.nbytes / self._rate
        self.moved_bytes += block.nbytes
        self.spans.append(TraceSpan("copy", block.name, start, self._copy_s, block.nbytes))
