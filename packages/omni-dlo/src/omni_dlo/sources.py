"""Chooses the host strategy and makes one source per block."""

from __future__ import annotations

from omni_dlo.capture import Unit
from omni_dlo.config import OffloadConfig
from omni_dlo.devices.base import Device
from omni_dlo.host.base import HostSource
from omni_dlo.host.direct import DirectSource
from omni_dlo.host.private import PrivateSource
from omni_dlo.host.sharded import GatherStage, ShardedSource
from omni_dlo.host.staged import StagedSource, StagingSlots
from omni_dlo.lease import Lease
from omni_dlo.peers import GroupAgreement
from omni_dlo.streamer import Agreement

__all__ = ["SourceFactory"]


class SourceFactory:
    """Makes :class:`HostSource` objects of one strategy.

    Attributes:
        strategy: ``direct``, ``private``, ``staged``, ``registered`` or ``sharded``.
        why: For :meth:`Offloader.explain`.
        agreement: What ranks tell each other.
    """

    def __init__(self, device: Device, config: OffloadConfig, lease: Lease | None) -> None:
        self._device = device
        self._staging: StagingSlots | None = None
        self.strategy, self.why = self._choose(config, lease)
        self._chunk_bytes = config.chunk_bytes
        self._sharded: list[ShardedSource] = []
        self._stage: GatherStage | None = None
        self._group = GroupAgreement(config.group, config.peer_timeout_s) if self.strategy == "sharded" else None
        self.agreement: Agreement = self._group if self._group is not None else Agreement()
        self._staging_bytes = config.staging_bytes
        self.pinned_bytes = 0

    def _choose(self, config: OffloadConfig, lease: Lease | None) -> tuple[str, str]:
        if config.transfer == "allgather":
            return "sharded", "each rank keeps a shard of every block and the group gathers it"
        if self._device.unified:
            return "direct", "the CPU computes, so blocks are copied from where they lie"
        if config.host == "private" or (config.host == "auto" and lease is None):
            return "private", "each block has one packed pinned copy"
        return "staged", "blocks pass through two pinned windows"

    @property
    def in_thread(self) -> bool:
        """Whether filling a slot takes the host long enough to be worth a thread."""
        return self.strategy == "staged" and self._device.packs_in_thread

    def make(self, unit: Unit) -> HostSource:
        """The source of ``unit``."""
        if self._group is not None:
            sharded = ShardedSource(unit, self._device, self._group, self._chunk_bytes)
            self._sharded.append(sharded)
            self.pinned_bytes += sharded.pinned_bytes
            return sharded
        if self.strategy == "direct":
            return DirectSource(unit, self._device)
        if self.strategy == "private":
            source = PrivateSource(unit, self._device)
            self.pinned_bytes += source.packed().numel()
            return source
        if self._staging is None:
            self._staging = StagingSlots(self._device, self._staging_bytes)
            self.pinned_bytes += 2 * self._staging_bytes
        return StagedSource(unit, self._device, self._staging)

    def open_stage(self) -> int:
        """Make the device windows that shards pass through; their bytes, 0 where there are no shards."""
        if self._group is None or not self._sharded:
            return 0
        part = max(source.plan.largest_part for source in self._sharded)
        self._stage = GatherStage(self._device, self._group.group, part)
        for source in self._sharded:
            source.stage = self._stage
        return self._stage.nbytes

    def close_stage(self) -> None:
        """Release the device windows; all copies and gathers must be done. May be called again."""
        if self._stage is not None:
            self._stage.close()
            self._stage = None

    def close(self) -> None:
        """Give up what the sources share. May be called again."""
        if self._group is not None:
            self._group.close()
        if self._staging is not None:
            self._staging.close()
            self._staging = None
