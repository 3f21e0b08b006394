"""Predicts a step's time and memory before anyone buys a card. Pure: the real schedule, a clock, no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omni_dlo.errors import PlanError
from omni_dlo.folder import ModelShape
from omni_dlo.plan import spread
from omni_dlo.report import TraceSpan
from omni_dlo.schedule import Fetch, Schedule

__all__ = ["Hardware", "Prediction", "best", "predict"]

ALIGN_BYTES = 64
"""Rounding of what a buffer takes; tensors inside it are aligned anyway."""


@dataclass(frozen=True)
class Hardware:
    """What the plan is for.

    Attributes:
        memory_bytes: Device memory that the weights may take.
        h2d_bytes_per_s: Host-to-device rate of pinned memory.
        compute_bytes_per_s: Weight bytes that compute passes through in a second: a block of n bytes computes for
            n / compute_bytes_per_s. Its peak is the memory bandwidth of the device (batch 1); a measured block time
            gives the true one.
    """

    memory_bytes: int
    h2d_bytes_per_s: float
    compute_bytes_per_s: float


@dataclass(frozen=True)
class Prediction:
    """One choice of resident blocks.

    Attributes:
        resident_blocks: Blocks that stay.
        device_bytes: Everything outside the stacks, resident blocks, and buffers.
        buffer_bytes: The rotating buffers' part of that.
        moved_bytes: Copied to the device in every step.
        step_s: One pass through all blocks, once the order is known.
        compute_s: The part of it in which blocks compute.
        stall_s: The part of it in which compute waits for copies.
        spans: Copies, stalls and compute of that pass, on a clock that starts with it.
    """

    resident_blocks: int
    device_bytes: int
    buffer_bytes: int
    moved_bytes: int
    step_s: float
    compute_s: float
    stall_s: float
    spans: tuple[TraceSpan, ...]

    def fits(self, hardware: Hardware) -> bool:
        """Whether the weights fit; activations are the user's to leave room for."""
        return self.device_bytes <= hardware.memory_bytes


def predict(shape: ModelShape, hardware: Hardware, resident_blocks: int, buffers: int = 2) -> Prediction:
    """Play one steady pass.

    Raises:
        PlanError: More resident blocks than there are, or no buffer.
    """
    entries = [(f"{stack.name}.{i}", nbytes) for stack in shape.stacks for i, nbytes in enumerate(stack.block_bytes)]
    if not 0 <= resident_blocks <= len(entries):
        raise PlanError(f"resident_blocks is {resident_blocks}; the model has {len(entries)} blocks")
    if buffers < 1:
        raise PlanError(f"buffers is {buffers}; at least one is needed")
    stay = set(spread(len(entries), resident_blocks))
    streamed = [index for index in range(len(entries)) if index not in stay]
    largest = max((-(-entries[i][1] // ALIGN_BYTES) * ALIGN_BYTES for i in streamed), default=0)
    slots = min(buffers, len(streamed))
    resident = shape.outside_bytes + sum(entries[i][1] for i in stay)
    spans = _play(entries, streamed, slots, hardware)
    start = min((s.start_s for s in spans if s.lane != "copy"), default=0.0)
    end = max((s.end_s for s in spans if s.lane != "copy"), default=0.0)
    moved = sum(s.nbytes for s in spans if s.lane == "copy")
    return Prediction(
        resident_blocks=resident_blocks,
        device_bytes=resident + largest * slots,
        buffer_bytes=largest * slots,
        moved_bytes=moved,
        step_s=end - start,
        compute_s=sum(s.end_s - s.start_s for s in spans if s.lane == "compute"),
        stall_s=sum(s.end_s - s.start_s for s in spans if s.lane == "stall"),
        spans=tuple(TraceSpan(s.lane, s.name, s.start_s - start, s.end_s - start, s.nbytes) for s in spans),
    )


def best(shape: ModelShape, hardware: Hardware, buffers: int = 2) -> tuple[Prediction, list[Prediction]]:
    """The fastest choice that fits, with the fewest resident blocks among equals, and every choice.

    Raises:
        PlanError: Not even buffers and what is outside the stacks fit.
    """
    total = sum(len(stack.block_bytes) for stack in shape.stacks)
    every = [predict(shape, hardware, count, buffers) for count in range(total + 1)]
    fitting = [one for one in every if one.fits(hardware)]
    if not fitting:
        least = min(one.device_bytes for one in every)
        raise PlanError(
            f"{shape.name} needs at least {least:,} bytes on the device (what is outside its blocks, and the buffers), "
            f"and {hardware.memory_bytes:,} are there; try fewer buffers"
        )
    return min(fitting, key=lambda one: (round(one.step_s, 9), one.resident_blocks)), every


def _play(entries: Sequence[tuple[str, int]], streamed: list[int], slots: int, hardware: Hardware) -> list[TraceSpan]:
    """Three passes, of which the last counts: the first finds buffers empty, the second learns the order."""
    schedule = Schedule(len(streamed), slots) if streamed else None
    position = {index: place for place, index in enumerate(streamed)}
    ready = [0.0] * max(slots, 1)
    free = [0.0] * max(slots, 1)
    copy_at = compute_at = 0.0
    spans: list[TraceSpan] = []

    def copy(fetch: Fetch) -> None:
        nonlocal copy_at
        name, nbytes = entries[streamed[fetch.block]]
        # The host runs ahead of the device: a copy waits for the one before it and for its buffer's last reader.
        start = max(copy_at, free[fetch.slot])
        copy_at = start + nbytes / hardware.h2d_bytes_per_s
        ready[fetch.slot] = copy_at
        spans.append(TraceSpan("copy", name, start, copy_at, nbytes))

    for turn in range(3):
        if turn == 2:
            spans.clear()
        for index, (name, nbytes) in enumerate(entries):
            asked = compute_at
            place = position.get(index)
            if schedule is not None and place is not None:
                visit = schedule.enter(place)
                if visit.fetch is not None:
                    copy(visit.fetch)
                compute_at = max(compute_at, ready[visit.slot])
                for fetch in schedule.prefetch():
                    copy(fetch)
                if compute_at > asked:
                    spans.append(TraceSpan("stall", name, asked, compute_at, 0))
            start = compute_at
            compute_at += nbytes / hardware.compute_bytes_per_s
            spans.append(TraceSpan("compute", name, start, compute_at, 0))
            if schedule is not None and place is not None:
                free[visit.slot] = compute_at
                schedule.leave(place)
                for fetch in schedule.prefetch():
                    copy(fetch)
    return spans
