"""Private pinned copies: a block packed once, copied whole."""

from __future__ import annotations

import torch

from omni_dlo.capture import Unit
from omni_dlo.devices.base import Device, Stream

__all__ = ["PrivateSource"]


class PrivateSource:
    """One pinned block in the layout of the device buffer: a single copy moves it.

    The module's tensors become views of the pinned block, so the host holds each weight once.
    """

    whole = True

    def __init__(self, unit: Unit, device: Device) -> None:
        self._device = device
        self._pinned = device.pinned(unit.nbytes)
        with torch.no_grad():
            for segment, data in zip(unit.layout.segments, unit.segments()):
                self._pinned[segment.offset : segment.offset + segment.nbytes].copy_(data)
        last = unit.layout.segments[-1] if unit.layout.segments else None
        self.moved_bytes = last.offset + last.nbytes if last else 0
        self.buffer_bytes = unit.nbytes
        self._leaves = unit.leaves_in(self._pinned)

    def fill(self, buffer: torch.Tensor, stream: Stream, label: str) -> Stream:
        self._device.copy(buffer[: self.moved_bytes], self._pinned[: self.moved_bytes], stream, label)
        return stream

    def leaves(self) -> list[torch.Tensor] | None:
        return self._leaves

    def packed(self) -> torch.Tensor:
        return self._pinned
