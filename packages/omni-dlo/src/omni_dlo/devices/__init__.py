"""Devices behind one small protocol: torch's accelerators, the CPU, and a simulated one for tests and plans."""

from __future__ import annotations

from omni_dlo.devices.base import Device, Event, MemoryInfo, Stream
from omni_dlo.devices.simulated import SimulatedDevice
from omni_dlo.devices.torch_device import AcceleratorDevice, CpuDevice, open_device

__all__ = [
    "AcceleratorDevice",
    "CpuDevice",
    "Device",
    "Event",
    "MemoryInfo",
    "SimulatedDevice",
    "Stream",
    "open_device",
]
