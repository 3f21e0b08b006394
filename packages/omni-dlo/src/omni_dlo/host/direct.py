"""Straight from where the tensors lie: a registered mapping, or host memory when the CPU computes."""

from __future__ import annotations

import torch

from omni_dlo.capture import Unit, pack_bytes
from omni_dlo.devices.base import Device, Stream

__all__ = ["DirectSource"]


class DirectSource:
    """One copy per segment; the module's tensors stay what they are."""

    whole = True

    def __init__(self, unit: Unit, device: Device) -> None:
        self._device = device
        self._unit = unit
        self._pairs = [
            (segment.offset, segment.offset + segment.nbytes, data)
            for segment, data in zip(unit.layout.segments, unit.segments())
            if segment.nbytes
        ]
        self.moved_bytes = unit.layout.payload_bytes
        self.buffer_bytes = unit.nbytes

    def fill(self, buffer: torch.Tensor, stream: Stream, label: str) -> Stream:
        for start, end, data in self._pairs:
            self._device.copy(buffer[start:end], data, stream, label)
        return stream

    def leaves(self) -> list[torch.Tensor] | None:
        return None

    def packed(self) -> torch.Tensor:
        return pack_bytes(self._unit)
