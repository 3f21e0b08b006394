"""Tensors that lie on the device whole for as long as the offloader is attached, and their way home."""

from __future__ import annotations

import torch

from omni_dlo.capture import Tracked, Unit
from omni_dlo.devices.base import Device

__all__ = ["Home", "Resident"]


class Home:
    """Where the tensors of a unit were before they were moved.

    Args:
        unit: The unit, not yet moved.
        keep: Keep the memory they had (a lease's mapping costs nothing), else it is let go and made anew.
    """

    def __init__(self, unit: Unit, *, keep: bool) -> None:
        self._unit = unit
        self._devices = [leaf.device for leaf in unit.segments()]
        self._before = [
            (tracked, tracked.tensor, [leaf.data for leaf in tracked.leaves])
            if keep or tracked.wrapped or tracked.tensor.device.type == "meta"
            else None
            for tracked in unit.tensors
        ]

    def restore(self, packed: torch.Tensor, *, changed: bool) -> None:
        """Bring every tensor back, from its old memory or, where that is gone or ``changed``, from ``packed``."""
        if not changed and all(before is not None for before in self._before):
            for before in self._before:
                if before is not None:
                    give_back(*before)
            return
        with torch.inference_mode(False), torch.no_grad():
            fresh = []
            for segment, device in zip(self._unit.layout.segments, self._devices):
                data = torch.empty(segment.nbytes, dtype=torch.uint8, device=device)
                fresh.append(data.copy_(packed[segment.offset : segment.offset + segment.nbytes]))
            leaves = self._unit.leaves_apart(fresh)
            at = 0
            for tracked in self._unit.tensors:
                mine = leaves[at : at + len(tracked.leaves)]
                at += len(tracked.leaves)
                if tracked.sites:
                    tracked.point_at(mine)


def give_back(tracked: Tracked, original: torch.Tensor, leaves: list[torch.Tensor]) -> None:
    """Make ``tracked`` the object and memory it was."""
    if not tracked.sites:
        return
    if tracked.tensor is not original:
        tracked.replace(original, leaves)
    elif not tracked.wrapped:
        tracked.point_at(leaves)


class Resident:
    """A unit on the device.

    On a device that computes on host memory nothing moves; the object then only remembers its tensors.
    """

    def __init__(self, unit: Unit, device: Device, *, keep_home: bool) -> None:
        self.unit = unit
        self._device = device
        self._buffer: torch.Tensor | None = None
        self.nbytes = 0
        if device.unified or not unit.tensors:
            return
        self._home = Home(unit, keep=keep_home)
        buffer = device.empty(unit.nbytes, f"resident {unit.name}")
        try:
            with torch.inference_mode(False), torch.no_grad():
                stream = device.compute_stream()
                for segment, data in zip(unit.layout.segments, unit.segments()):
                    device.copy(buffer[segment.offset : segment.offset + segment.nbytes], data, stream, unit.name)
                device.wait_host(device.record(stream))
                for tracked, leaves in _shares(unit, unit.leaves_in(buffer)):
                    tracked.point_at(leaves)
        except BaseException:
            device.release(buffer)
            raise
        unit.forget_anchors()
        self._buffer = buffer
        self._version = buffer._version
        self.nbytes = unit.nbytes

    def restore(self) -> None:
        """Bring the tensors home, with what was written into them meanwhile. May be called again."""
        buffer, self._buffer = self._buffer, None
        if buffer is None:
            return
        self._home.restore(buffer, changed=buffer._version != self._version)
        self.nbytes = 0
        self._device.release(buffer)


def _shares(unit: Unit, leaves: list[torch.Tensor]) -> list[tuple[Tracked, list[torch.Tensor]]]:
    """Each member with its own leaves."""
    shares, at = [], 0
    for tracked in unit.tensors:
        shares.append((tracked, leaves[at : at + len(tracked.leaves)]))
        at += len(tracked.leaves)
    return shares
