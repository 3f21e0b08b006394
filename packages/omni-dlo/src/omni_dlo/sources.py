"""Chooses the host strategy and makes one source per block."""

from __future__ import annotations

import warnings

from omni_dlo.capture import Unit
from omni_dlo.config import OffloadConfig
from omni_dlo.devices.base import Device
from omni_dlo.errors import RegistrationError
from omni_dlo.host.base import HostSource
from omni_dlo.host.direct import DirectSource
from omni_dlo.host.private import PrivateSource
from omni_dlo.host.sharded import GatherStage, ShardedSource
from omni_dlo.host.staged import StagedSource, StagingSlots
from omni_dlo.lease import Lease
from omni_dlo.peers import GroupAgreement
from omni_dlo.registration import Registration, register_mapping
from omni_dlo.streamer import Agreement

__all__ = ["SourceFactory"]


class SourceFactory:
    """Makes :class:`HostSource` objects of one strategy.

    Attributes:
        strategy: ``direct``, ``private``, ``staged``, ``registered`` or ``sharded``.
        why: For :meth:`Offloader.explain`.
        stranded: Whether part of the lease's mapping may stay registered, so that the lease must stay open.
        agreement: What ranks tell each other.
    """

    def __init__(self, device: Device, config: OffloadConfig, lease: Lease | None) -> None:
        self._device = device
        self._staging: StagingSlots | None = None
        self._registration: Registration | None = None
        self.stranded = False
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
        if lease is None or config.host == "staged" or config.registration_limit_bytes == 0:
            if config.host == "registered":
                raise RegistrationError("capability", "host='registered' needs a lease and registration_limit_bytes")
            return "staged", "blocks pass through two pinned windows"
        return self._register(config, lease)

    def _register(self, config: OffloadConfig, lease: Lease) -> tuple[str, str]:
        """Register the lease's mapping, or say why staging is used instead."""
        runtime = self._device.registration_runtime()
        try:
            if runtime is None:
                raise RegistrationError("capability", f"{self._device.name} registers no host memory")
            self._registration = register_mapping(
                lease.regions,
                runtime,
                limit_bytes=int(config.registration_limit_bytes),
                timeout_s=config.registration_timeout_s,
            )
        except RegistrationError as error:
            if config.host == "registered" and error.reason in ("budget", "capability"):
                raise
            # Something of the mapping is, or may yet become, registered: it must outlive this process's use of it.
            self.stranded = error.reason in ("timeout", "rollback")
            if error.reason not in ("budget", "capability"):
                warnings.warn(f"{error}; staging is used instead", RuntimeWarning, stacklevel=2)
            return "staged", f"blocks pass through two pinned windows ({error})"
        return "registered", "blocks are copied straight from the registered mapping"

    @property
    def in_thread(self) -> bool:
        """Whether filling a slot takes the host long enough to be worth a thread."""
        return self.strategy == "staged" and self._device.packs_in_thread

    def make(self, unit: Unit) -> HostSource:
        """The source of ``unit``."""
        if self._group is not None:
            sharded = ShardedSource(unit, self._device, self._group, self._chunk_bytes)
            self._sharded.append(sharded)
            self.pinned_bytes += self._device.pinned_taken(sharded.pinned_bytes)
            return sharded
        if self.strategy in ("direct", "registered"):
            return DirectSource(unit, self._device)
        if self.strategy == "private":
            source = PrivateSource(unit, self._device)
            self.pinned_bytes += self._device.pinned_taken(source.packed().numel())
            return source
        if self._staging is None:
            self._staging = StagingSlots(self._device, self._staging_bytes)
            self.pinned_bytes += 2 * self._device.pinned_taken(self._staging_bytes)
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
        if self._registration is not None:
            registration, self._registration = self._registration, None
            try:
                registration.close()
            except RegistrationError:
                self.stranded = True
                raise
