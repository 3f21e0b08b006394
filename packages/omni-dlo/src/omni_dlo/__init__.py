"""Layerwise weight offload: streams blocks from host to device, exact to the bit."""

from __future__ import annotations

from omni_dlo.config import OffloadConfig
from omni_dlo.devices import Device, SimulatedDevice
from omni_dlo.errors import OffloadError
from omni_dlo.lease import Lease
from omni_dlo.offloader import Offloader
from omni_dlo.plan import OffloadPlan
from omni_dlo.report import Explanation, OffloadStats

__version__ = "0.1.0"

__all__ = [
    "Device",
    "Explanation",
    "Lease",
    "OffloadConfig",
    "OffloadError",
    "OffloadPlan",
    "OffloadStats",
    "Offloader",
    "SimulatedDevice",
]
