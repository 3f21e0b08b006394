"""What the offloader says of itself: statistics, an explanation for people, a Chrome trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from omni_dlo.placement import Placement
from omni_dlo.units import format_bytes

__all__ = [
    "Explanation",
    "OffloadStats",
    "StackReport",
    "TraceSpan",
    "chrome_trace",
    "explain_placement",
    "render_text",
]


@dataclass(frozen=True)
class OffloadStats:
    """Counts since attach.

    Attributes:
        block_runs: Calls of streamed blocks.
        copies: Copies of a block to the device, prefetched or not.
        moved_bytes: Bytes those copies moved from host to device in this process.
        late_copies: Copies that started only when their block did.
        resident_bytes: Device bytes of what stays: outside the blocks, and resident blocks.
        buffer_bytes: Device bytes of the rotating buffers.
        extra_bytes: Device bytes of tensors that joined after attach.
        pinned_bytes: Page-locked host bytes, as the allocator takes them.
        stall_s: Seconds that compute waited for copies, or None without ``trace``.
        overlap: Part of the copy time that compute hid, 0 … 1, or None without ``trace``.
    """

    block_runs: int
    copies: int
    moved_bytes: int
    late_copies: int
    resident_bytes: int
    buffer_bytes: int
    extra_bytes: int
    pinned_bytes: int
    stall_s: float | None
    overlap: float | None

    @property
    def device_bytes(self) -> int:
        """All device bytes the offloader holds."""
        return self.resident_bytes + self.buffer_bytes + self.extra_bytes


@dataclass(frozen=True)
class StackReport:
    """One stack: how many blocks stream, how many stay, and their bytes."""

    name: str
    why: str
    streamed: tuple[str, ...]
    resident: tuple[str, ...]
    streamed_bytes: int
    resident_bytes: int
    largest_bytes: int


@dataclass(frozen=True)
class Explanation:
    """What goes where and why; ``str()`` is for people."""

    device: str
    host: str
    stacks: tuple[StackReport, ...]
    outside_bytes: int
    shared: tuple[str, ...]
    buffers: int
    buffer_bytes: int
    whole_bytes: int
    components: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"Offload to {self.device}: {self.host}."]
        for stack in self.stacks:
            total = len(stack.streamed) + len(stack.resident)
            lines.append(
                f"  {stack.name}: {total} blocks ({stack.why}); {len(stack.streamed)} stream "
                f"({format_bytes(stack.streamed_bytes)}), {len(stack.resident)} stay "
                f"({format_bytes(stack.resident_bytes)}); largest {format_bytes(stack.largest_bytes)}"
            )
            if stack.resident:
                lines.append(f"    stay: {', '.join(stack.resident)}")
        lines.append(f"  outside the stacks, on the device: {format_bytes(self.outside_bytes)}")
        if self.shared:
            lines.append(f"    because several modules share them: {', '.join(self.shared)}")
        lines.extend(f"  {line}" for line in self.components)
        lines.append(f"  rotating buffers: {self.buffers} of {format_bytes(self.buffer_bytes)}")
        held = self.outside_bytes + sum(s.resident_bytes for s in self.stacks) + self.buffers * self.buffer_bytes
        lines.append(f"  device memory for weights: {format_bytes(held)} instead of {format_bytes(self.whole_bytes)}")
        return "\n".join(lines)


def explain_placement(
    placement: Placement,
    whys: dict[str, str],
    *,
    device: str,
    host: str,
    buffers: int,
    buffer_bytes: int,
    components: Sequence[str],
) -> Explanation:
    """Put a placement into words."""
    stacks = []
    for name, why in whys.items():
        blocks = [block for block in placement.blocks if block.stack == name]
        sizes = {block.name: sum(tracked.nbytes for tracked in block.tensors) for block in blocks}
        streamed = tuple(block.name for block in blocks if not block.resident)
        resident = tuple(block.name for block in blocks if block.resident)
        stacks.append(
            StackReport(
                name, why, streamed, resident,
                sum(sizes[block] for block in streamed), sum(sizes[block] for block in resident),
                max(sizes.values(), default=0),
            )
        )  # fmt: skip
    outside = sum(tracked.nbytes for tracked in placement.rest)
    whole = outside + sum(stack.streamed_bytes + stack.resident_bytes for stack in stacks)
    return Explanation(
        device, host, tuple(stacks), outside, placement.shared, buffers, buffer_bytes, whole, tuple(components)
    )


@dataclass(frozen=True)
class TraceSpan:
    """Something that took from ``start_s`` to ``end_s`` on the row ``lane``."""

    lane: str
    name: str
    start_s: float
    end_s: float
    nbytes: int = 0


def chrome_trace(spans: Sequence[TraceSpan]) -> str:
    """``spans`` as JSON in Chrome's Trace Event Format (complete events, microseconds)."""
    lanes = {lane: index for index, lane in enumerate(dict.fromkeys(span.lane for span in spans))}
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": lane}} for lane, tid in lanes.items()
    ]
    events += [
        {
            "ph": "X", "name": span.name, "pid": 1, "tid": lanes[span.lane],
            "ts": span.start_s * 1e6, "dur": (span.end_s - span.start_s) * 1e6,
            "args": {"bytes": span.nbytes} if span.nbytes else {},
        }
        for span in spans
    ]  # fmt: skip
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def render_text(spans: Sequence[TraceSpan], width: int = 72) -> str:
    """``spans`` as one line of characters per lane: alternating shades for one span after the other, blank for idle."""
    if not spans:
        return "(nothing ran)"
    start, end = min(span.start_s for span in spans), max(span.end_s for span in spans)
    scale = width / (end - start) if end > start else 0.0
    lanes: dict[str, list[str]] = {}
    shades: dict[str, int] = {}
    for span in spans:
        row = lanes.setdefault(span.lane, [" "] * width)
        shades[span.lane] = 1 - shades.get(span.lane, 1)
        first = min(int((span.start_s - start) * scale), width - 1)
        last = max(first + 1, min(round((span.end_s - start) * scale), width))
        if span.end_s > span.start_s:
            row[first:last] = ["█▒"[shades[span.lane]]] * (last - first)
    label = max(len(lane) for lane in lanes)
    return "\n".join(f"{lane:>{label}} │{''.join(row)}│" for lane, row in lanes.items())
