"""Real devices: any accelerator with torch's stream and event API, and the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np
import torch

from omni_dlo.cuda_runtime import CudaRuntime
from omni_dlo.devices.base import Device, Event, MemoryInfo, Stream
from omni_dlo.errors import DeviceUnavailableError
from omni_dlo.pinned import pinned_bytes_taken
from omni_dlo.registration import RegistrationRuntime

__all__ = ["AcceleratorDevice", "CpuDevice", "open_device"]


def open_device(device: str | torch.device | Device) -> Device:
    """The :class:`Device` for a torch device, its name, or a device object passed through.

    Raises:
        DeviceUnavailableError: No such device in this process, or one without streams and events.
    """
    if not isinstance(device, str | torch.device):
        return device
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise DeviceUnavailableError(f"{device!r} is not a torch device: {error}") from error
    if target.type == "cpu":
        return CpuDevice()
    if target.type == "meta":
        raise DeviceUnavailableError("blocks cannot compute on the meta device")
    module = getattr(torch, target.type, None)
    if module is None or not hasattr(module, "Stream") or not module.is_available():
        raise DeviceUnavailableError(
            f"device {str(target)!r} is not available here; choose device='cpu' or run where it is"
        )
    index = target.index if target.index is not None else module.current_device()
    if index >= module.device_count():
        raise DeviceUnavailableError(f"device {str(target)!r} is not there: {module.device_count()} devices exist")
    return AcceleratorDevice(torch.device(target.type, index), module)


class CpuDevice:
    """The CPU as compute device: copies happen when asked for, and streams and events are None."""

    name = "cpu"
    torch_device = torch.device("cpu")
    unified = True
    packs_in_thread = False

    def compute_stream(self) -> Stream:
        return None

    def new_stream(self, name: str) -> Stream:
        return None

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        return nullcontext()

    def record(self, stream: Stream) -> Event:
        return None

    def wait(self, stream: Stream, event: Event) -> None:
        """Nothing to wait for: copies are done when they return."""

    def wait_host(self, event: Event) -> None:
        """Nothing to wait for."""

    def elapsed_s(self, start: Event, end: Event) -> float | None:
        return None

    def empty(self, nbytes: int, name: str) -> torch.Tensor:
        return aligned_empty(nbytes)

    def release(self, buffer: torch.Tensor) -> None:
        """The memory goes with the last reference."""

    def pinned(self, nbytes: int) -> torch.Tensor:
        return aligned_empty(nbytes)

    def pinned_taken(self, nbytes: int) -> int:
        return 0

    def registration_runtime(self) -> RegistrationRuntime | None:
        return None

    def copy(self, destination: torch.Tensor, source: torch.Tensor, stream: Stream, label: str) -> None:
        destination.copy_(source)

    def copy_many(
        self, destinations: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], stream: Stream, label: str
    ) -> None:
        torch._foreach_copy_(list(destinations), list(sources))

    def gather(
        self,
        stream: Stream,
        work: Callable[[torch.Tensor], object],
        writes: torch.Tensor,
        reads: torch.Tensor,
        label: str,
    ) -> None:
        work(writes)

    def begin_read(self, buffer: torch.Tensor, reader: str) -> None:
        """Compute is over when it returns, so there is nothing to keep."""

    def end_read(self, buffer: torch.Tensor, reader: str) -> None:
        """See :meth:`begin_read`."""

    def synchronize(self) -> None:
        """Everything is done already."""

    def memory(self) -> MemoryInfo | None:
        return None

    def empty_cache(self) -> None:
        """The CPU allocator keeps no cache that torch could return."""


class AcceleratorDevice:
    """CUDA, ROCm, XPU or another backend whose ``torch.<type>`` module has streams and events."""

    unified = False
    packs_in_thread = True

    def __init__(self, torch_device: torch.device, module: ModuleType) -> None:
        self.torch_device = torch_device
        self.name = str(torch_device)
        self._module: Any = module

    def compute_stream(self) -> Stream:
        return self._module.current_stream(self.torch_device)

    def new_stream(self, name: str) -> Stream:
        return self._module.Stream(device=self.torch_device)

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        context: AbstractContextManager[object] = self._module.stream(stream)
        return context

    def record(self, stream: Stream) -> Event:
        event = self._module.Event(enable_timing=True)
        event.record(stream)
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        stream.wait_event(event)

    def wait_host(self, event: Event) -> None:
        event.synchronize()

    def elapsed_s(self, start: Event, end: Event) -> float | None:
        milliseconds: float = start.elapsed_time(end)
        return milliseconds / 1e3

    def empty(self, nbytes: int, name: str) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self.torch_device)

    def release(self, buffer: torch.Tensor) -> None:
        """The memory goes back to the caching allocator with the last reference."""

    def pinned(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def pinned_taken(self, nbytes: int) -> int:
        return pinned_bytes_taken(nbytes)

    def registration_runtime(self) -> RegistrationRuntime | None:
        if self.torch_device.type != "cuda" or torch.version.cuda is None:
            return None
        return CudaRuntime(self.torch_device.index)

    def copy(self, destination: torch.Tensor, source: torch.Tensor, stream: Stream, label: str) -> None:
        with self._module.stream(stream):
            destination.copy_(source, non_blocking=True)

    def copy_many(
        self, destinations: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], stream: Stream, label: str
    ) -> None:
        with self._module.stream(stream):
            for destination, source in zip(destinations, sources):
                destination.copy_(source, non_blocking=True)

    def gather(
        self,
        stream: Stream,
        work: Callable[[torch.Tensor], object],
        writes: torch.Tensor,
        reads: torch.Tensor,
        label: str,
    ) -> None:
        with self._module.stream(stream):
            work(writes)

    def begin_read(self, buffer: torch.Tensor, reader: str) -> None:
        """Events order readers and writers here."""

    def end_read(self, buffer: torch.Tensor, reader: str) -> None:
        """See :meth:`begin_read`."""

    def synchronize(self) -> None:
        self._module.synchronize(self.torch_device)

    def memory(self) -> MemoryInfo | None:
        if not hasattr(self._module, "mem_get_info"):
            return None
        free, total = self._module.mem_get_info(self.torch_device)
        return MemoryInfo(
            total,
            free,
            self._module.memory_allocated(self.torch_device),
            self._module.memory_reserved(self.torch_device),
        )

    def empty_cache(self) -> None:
        self._module.empty_cache()


def aligned_empty(nbytes: int) -> torch.Tensor:
    """``nbytes`` of plain host memory, uint8, that start on 256 bytes as a device allocation does."""
    spare = np.empty(nbytes + 256, dtype=np.uint8)
    skip = -spare.ctypes.data % 256
    # Through numpy the tensor has a storage that starts where it does.
    return torch.from_numpy(spare[skip : skip + nbytes])
