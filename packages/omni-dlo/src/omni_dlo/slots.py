"""The rotating device buffers, and the order of copies, reads and copies in each."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from omni_dlo.devices.base import Device, Event
from omni_dlo.host.base import HostSource

__all__ = ["CopyEngine", "CopySpan", "Slot"]


@dataclass(frozen=True)
class CopySpan:
    """Events around one copy, for a trace."""

    name: str
    start: Event
    end: Event
    nbytes: int


class Slot:
    """One device buffer.

    Attributes:
        buffer: Its bytes.
        ready: Event behind the copy that filled it.
        read: Event behind the last compute that read it.
    """

    __slots__ = ("buffer", "index", "pending", "read", "ready", "version")

    def __init__(self, index: int, buffer: torch.Tensor) -> None:
        self.index = index
        self.buffer = buffer
        self.ready: Event = None
        self.read: Event = None
        self.pending: Future[None] | None = None
        self.version = 0


class CopyEngine:
    """Fills slots on a copy stream of its own, never before the last reader of the slot has finished.

    Args:
        device: Where the slots are.
        in_thread: Pack staging windows on a worker thread, which :meth:`close` joins.
        trace: Keep the events around each copy.
    """

    def __init__(self, device: Device, *, in_thread: bool, trace: bool) -> None:
        self._device = device
        self._stream = device.new_stream("copy")
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="omni-dlo-pack") if in_thread else None
        self._trace = trace
        self.moved_bytes = 0
        self.copies = 0
        self.spans: list[CopySpan] = []

    def fill(self, slot: Slot, source: HostSource, label: str) -> None:
        """Start to fill ``slot`` from ``source``."""
        self.moved_bytes += source.moved_bytes
        self.copies += 1
        if self._worker is None:
            self._fill(slot, source, label, slot.read)
        else:
            slot.pending = self._worker.submit(self._fill, slot, source, label, slot.read)

    def complete(self, slot: Slot) -> None:
        """Make the compute stream wait until ``slot`` is filled."""
        if slot.pending is not None:
            pending, slot.pending = slot.pending, None
            pending.result()
        if slot.ready is not None:
            self._device.wait(self._device.compute_stream(), slot.ready)
            slot.ready = None

    def drain(self) -> None:
        """Wait, on the host, for every copy asked for."""
        if self._worker is not None:
            self._worker.submit(lambda: None).result()
        self._device.synchronize()

    def close(self) -> None:
        """Drain and end the worker. May be called again."""
        if self._worker is not None:
            self._worker.shutdown(wait=True)
            self._worker = None
        self._device.synchronize()

    def _fill(self, slot: Slot, source: HostSource, label: str, last_read: Event) -> None:
        # Bytes neither want gradients nor are they inference tensors, so the caller's modes do not matter here.
        if last_read is not None:
            self._device.wait(self._stream, last_read)
        start = self._device.record(self._stream) if self._trace else None
        last = source.fill(slot.buffer, self._stream, label)
        slot.ready = self._device.record(last)
        if self._trace:
            self.spans.append(CopySpan(label, start, slot.ready, source.moved_bytes))
