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

        self._versions: list[int | None] = []

    def moved(self) -> None:
        """The tensors are where they go: what is written to them from here on is what comes home."""
        self._versions = [_version(tracked.tensor) for tracked in self._unit.tensors]

    def restore(self, packed: torch.Tensor) -> None:
        """Bring every tensor back.

        Its old memory serves where that was kept and nothing was written since; else fresh memory is filled from
        ``packed``, the unit's present bytes.
        """
        segments = self._unit.segments_of_members()
        written = {
            segment
            for tracked, before, version, mine in zip(self._unit.tensors, self._before, self._versions, segments)
            if before is None or version is None or _version(tracked.tensor) != version
            for segment in mine
        }
        with torch.inference_mode(False), torch.no_grad():
            fresh = [
                self._copy(packed, index) if index in written else torch.empty(0, dtype=torch.uint8)
                for index in range(len(self._devices))
            ]
            for tracked, before, mine, leaves in zip(
                self._unit.tensors, self._before, segments, self._unit.leaves_apart(fresh, written)
            ):
                if not tracked.sites:
                    continue
                if before is not None and not written.intersection(mine):
                    give_back(*before)
                else:
                    tracked.point_at(leaves)

    def _copy(self, packed: torch.Tensor, index: int) -> torch.Tensor:
        segment = self._unit.layout.segments[index]
        data = torch.empty(segment.nbytes, dtype=torch.uint8, device=self._devices[index])
        return data.copy_(packed[segment.offset : segment.offset + segment.nbytes])


def _version(tensor: torch.Tensor) -> int | None:
    try:
        return tensor._version
    except RuntimeError:
        # Tensors made under inference mode are not counted: take them for written.
        return None


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
        self._home.moved()
        self._buffer = buffer
        self.nbytes = unit.nbytes

    def restore(self) -> None:
        """Bring the tensors home, with what was written into them meanwhile. May be called again."""
        buffer, self._buffer = self._buffer, None
        if buffer is None:
            return
        self._home.restore(buffer)
        self.nbytes = 0
        self._device.release(buffer)


def _shares(unit: Unit, leaves: list[torch.Tensor]) -> list[tuple[Tracked, list[torch.Tensor]]]:
    """Each member with its own leaves."""
    shares, at = [], 0
    for tracked in unit.tensors:
        shares.append((tracked, leaves[at : at + len(tracked.leaves)]))
        at += len(tracked.leaves)
    return shares
