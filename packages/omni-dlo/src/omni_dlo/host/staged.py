"""Through two pinned staging slots: pageable memory or a mapping, packed a window at a time."""

from __future__ import annotations

import torch

from omni_dlo.capture import Unit, pack_bytes
from omni_dlo.devices.base import Device, Event, Stream

__all__ = ["StagedSource", "StagingSlots"]


class StagingSlots:
    """Two pinned windows that all blocks pass through in turn.

    While the device copies one away, the host packs the other; a window is packed again only after the copy that
    read it has happened.
    """

    def __init__(self, device: Device, nbytes: int) -> None:
        self.nbytes = nbytes
        self._device = device
        self._windows = [device.pinned(nbytes), device.pinned(nbytes)]
        self._copied: list[Event] = [None, None]
        self._next = 0

    def take(self) -> tuple[int, torch.Tensor]:
        """The next window, free to be packed."""
        index = self._next
        self._next = 1 - index
        if self._copied[index] is not None:
            self._device.wait_host(self._copied[index])
        return index, self._windows[index]

    def sent(self, index: int, event: Event) -> None:
        """``event`` happens when the copy out of window ``index`` is done."""
        self._copied[index] = event

    def close(self) -> None:
        """Let the windows go; every copy out of them must have happened."""
        self._windows = []


class StagedSource:
    """Windows of the packed block, each filled from the segments that lie in it."""

    whole = True

    def __init__(self, unit: Unit, device: Device, slots: StagingSlots) -> None:
        self._device = device
        self._unit = unit
        self._slots = slots
        self.buffer_bytes = unit.nbytes
        placed = [(segment.offset, data) for segment, data in zip(unit.layout.segments, unit.segments())]
        end = placed[-1][0] + placed[-1][1].numel() if placed else 0
        self.moved_bytes = end
        self._windows: list[tuple[int, int, list[tuple[int, torch.Tensor]]]] = []
        for start in range(0, end, slots.nbytes):
            stop = min(start + slots.nbytes, end)
            parts = []
            for offset, data in placed:
                first, last = max(offset, start), min(offset + data.numel(), stop)
                if first < last:
                    parts.append((first - start, data[first - offset : last - offset]))
            self._windows.append((start, stop, parts))

    def fill(self, buffer: torch.Tensor, stream: Stream, label: str) -> Stream:
        for start, stop, parts in self._windows:
            index, window = self._slots.take()
            for at, data in parts:
                window[at : at + data.numel()].copy_(data)
            self._device.copy(buffer[start:stop], window[: stop - start], stream, label)
            self._slots.sent(index, self._device.record(stream))
        return stream

    def leaves(self) -> list[torch.Tensor] | None:
        return None

    def packed(self) -> torch.Tensor:
        return pack_bytes(self._unit)
