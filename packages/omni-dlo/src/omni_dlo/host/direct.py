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
        pairs = [pair for pair in zip(unit.layout.segments, unit.segments()) if pair[0].nbytes]
        self._places = [(segment.offset, segment.offset + segment.nbytes) for segment, _ in pairs]
        self._sources = [data for _, data in pairs]
        self._targets: dict[int, list[torch.Tensor]] = {}
        self.moved_bytes = unit.layout.payload_bytes
        self.buffer_bytes = unit.nbytes

    def fill(self, buffer: torch.Tensor, stream: Stream, label: str) -> Stream:
        targets = self._targets.get(id(buffer))
        if targets is None:
            # A slot's buffer lives as long as its sources, so its identity may stand for it.
            targets = self._targets[id(buffer)] = [buffer[start:end] for start, end in self._places]
        self._device.copy_many(targets, self._sources, stream, label)
        return stream

    def leaves(self) -> list[torch.Tensor] | None:
        return None

    def packed(self) -> torch.Tensor:
        return pack_bytes(self._unit)
