"""What a strategy offers for one block."""

from __future__ import annotations

from typing import Protocol

import torch

from omni_dlo.devices.base import Stream

__all__ = ["HostSource"]


class HostSource(Protocol):
    """The host side of one unit."""

    @property
    def moved_bytes(self) -> int:
        """Bytes from host to device that one :meth:`fill` moves."""

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the device buffer that :meth:`fill` writes."""

    @property
    def whole(self) -> bool:
        """Whether this process holds the unit's full bytes on the host."""

    def fill(self, buffer: torch.Tensor, stream: Stream, label: str) -> Stream:
        """Enqueue everything that makes ``buffer`` hold the unit; return the stream whose end completes it."""

    def leaves(self) -> list[torch.Tensor] | None:
        """Full host tensors for the unit's leaves, or None where they stay the ones they are."""

    def packed(self) -> torch.Tensor:
        """The unit's present bytes in its layout, uint8, on the host; read when tensors go home."""
