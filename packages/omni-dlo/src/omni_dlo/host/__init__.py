"""Where streamed weights wait on the host, and how a block gets from there into a device buffer."""

from __future__ import annotations

from omni_dlo.host.base import HostSource
from omni_dlo.host.direct import DirectSource
from omni_dlo.host.private import PrivateSource
from omni_dlo.host.staged import StagedSource, StagingSlots

__all__ = ["DirectSource", "HostSource", "PrivateSource", "StagedSource", "StagingSlots"]
