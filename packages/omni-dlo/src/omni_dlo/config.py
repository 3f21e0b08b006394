"""What a user decides about offloading, in one frozen object that checks itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from omni_dlo.errors import PlanError

if TYPE_CHECKING:
    import torch

    from omni_dlo.devices.base import Device
    from omni_dlo.plan import OffloadPlan

__all__ = ["HostStrategy", "OffloadConfig", "Transfer"]

Transfer = Literal["local", "allgather"]
HostStrategy = Literal["auto", "private", "staged", "registered"]


@dataclass(frozen=True, kw_only=True)
class OffloadConfig:
    """How a module is offloaded.

    Attributes:
        device: Where blocks compute: a torch device, its name, or a :class:`~omni_dlo.devices.base.Device` (the
            simulated one). ``"cpu"`` streams from host memory or a mapping into rotating CPU buffers.
        resident_blocks: How many blocks stay on the device whole, evenly spread over the stacks.
        buffers: Rotating device buffers, each as large as the largest streamed block. One is enough to run, two let
            a copy overlap the compute of the block before.
        transfer: ``"local"``: every process copies whole blocks. ``"allgather"``: every rank keeps 1/N of a block
            and the group rebuilds it.
        host: Where streamed weights wait. ``"auto"`` takes ``"registered"`` for a lease whose mapping fits
            ``registration_limit_bytes`` on a device that can register it, else ``"staged"`` for a lease, else
            ``"private"`` (pinned copies; on the CPU the module's own tensors).
        registration_limit_bytes: Most bytes of a lease that may be registered with the device; 0 never registers.
        registration_timeout_s: How long a registration may take before staging is used instead.
        staging_bytes: Size of each of the two pinned staging slots.
        chunk_bytes: Under ``"allgather"``, bytes of a block moved at a time, so that a chunk's copy overlaps the
            gather of the chunk before.
        group: ``torch.distributed`` process group for ``"allgather"``; None is the default group.
        peer_timeout_s: How long a rank waits for the others to ask for the same block.
        components: For pipelines: False keeps that encoder or VAE on the device whole, True permits what the plan
            declares; ``"default"`` speaks for those not named. None and {} mean the default, True.
        plan: Which modules are blocks; None discovers them.
        trace: Time copies and compute with device events, for :meth:`Offloader.timeline` and stall figures.
    """

    device: str | torch.device | Device = "cuda"
    resident_blocks: int = 0
    buffers: int = 2
    transfer: Transfer = "local"
    host: HostStrategy = "auto"
    registration_limit_bytes: int = 0
    registration_timeout_s: float = 30.0
    staging_bytes: int = 64 << 20
    chunk_bytes: int = 32 << 20
    group: object | None = None
    peer_timeout_s: float = 60.0
    components: Mapping[str, bool] | None = field(default=None)
    plan: OffloadPlan | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot mean anything.

        Raises:
            PlanError: A number out of its range or an unknown word.
        """
        for name, least in (("resident_blocks", 0), ("buffers", 1), ("staging_bytes", 4096), ("chunk_bytes", 4096)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise PlanError(f"{name} must be an integer of at least {least}, not {value!r}")
        limit = self.registration_limit_bytes
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not math.isfinite(limit) or limit < 0:
            raise PlanError(f"registration_limit_bytes must be finite and at least 0, not {limit!r}")
        for name in ("registration_timeout_s", "peer_timeout_s"):
            value = getattr(self, name)
            if not math.isfinite(value) or value <= 0:
                raise PlanError(f"{name} must be finite and above 0, not {value!r}")
        if self.transfer not in ("local", "allgather"):
            raise PlanError(f"transfer must be 'local' or 'allgather', not {self.transfer!r}")
        if self.host not in ("auto", "private", "staged", "registered"):
            raise PlanError(f"host must be 'auto', 'private', 'staged' or 'registered', not {self.host!r}")
