"""Times from the events around copies and compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omni_dlo.devices.base import Device
from omni_dlo.report import TraceSpan
from omni_dlo.slots import CopySpan
from omni_dlo.streamer import ComputeSpan

__all__ = ["Measured", "measure"]


@dataclass(frozen=True)
class Measured:
    """Spans on one clock that starts at the first event; stall and overlap over all of them, None without clocks."""

    spans: tuple[TraceSpan, ...]
    stall_s: float | None
    overlap: float | None


def measure(device: Device, copies: Sequence[CopySpan], computes: Sequence[ComputeSpan]) -> Measured:
    """Read the events. The device is drained first, so call it after a run, not within."""
    if not copies and not computes:
        return Measured((), None, None)
    device.synchronize()
    origin = copies[0].start if copies else computes[0].asked
    spans: list[TraceSpan] = []
    stall = 0.0
    copied: list[tuple[float, float]] = []
    computed: list[tuple[float, float]] = []
    for copy in copies:
        start, end = device.elapsed_s(origin, copy.start), device.elapsed_s(origin, copy.end)
        if start is None or end is None:
            return Measured((), None, None)
        copied.append((start, end))
        spans.append(TraceSpan("copy", copy.name, start, end, copy.nbytes))
    for compute in computes:
        asked = device.elapsed_s(origin, compute.asked)
        start, end = device.elapsed_s(origin, compute.start), device.elapsed_s(origin, compute.end)
        if asked is None or start is None or end is None:
            return Measured((), None, None)
        stall += max(0.0, start - asked)
        computed.append((start, end))
        if start > asked:
            spans.append(TraceSpan("stall", compute.name, asked, start))
        spans.append(TraceSpan("compute", compute.name, start, end))
    busy = sum(end - start for start, end in copied)
    hidden = sum(_common(copy, computed) for copy in copied)
    return Measured(tuple(spans), stall, hidden / busy if busy else None)


def _common(span: tuple[float, float], others: Sequence[tuple[float, float]]) -> float:
    return sum(max(0.0, min(span[1], end) - max(span[0], start)) for start, end in others)
