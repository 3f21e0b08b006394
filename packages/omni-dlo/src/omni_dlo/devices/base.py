"""What the scheduler needs of a device: streams, events, copies, memory. Nothing else of torch's accelerator API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from omni_dlo.registration import RegistrationRuntime

__all__ = ["Device", "Event", "MemoryInfo", "Stream"]

Stream = Any
"""A queue of device work, opaque to everyone but its device; None where the device has no queues."""

Event = Any
"""A point in a stream's queue, opaque to everyone but its device; None means it has already happened."""


@dataclass(frozen=True)
class MemoryInfo:
    """Device memory in bytes: of the card, and as this process's allocator sees it."""

    total_bytes: int
    free_bytes: int
    allocated_bytes: int
    reserved_bytes: int


class Device(Protocol):
    """A place where blocks compute.

    Work is ordered within a stream; across streams only by events. ``copy`` returns before its effect: the
    destination may be read, and the source overwritten, only after an event recorded behind it was waited for.
    """

    @property
    def name(self) -> str:
        """For people, for example ``cuda:0``."""

    @property
    def torch_device(self) -> torch.device:
        """Where torch sees tensors of this device."""

    @property
    def unified(self) -> bool:
        """True where compute reads host tensors as they are, so that nothing needs to move to be resident."""

    @property
    def packs_in_thread(self) -> bool:
        """True where packing a staging slot on the calling thread would delay the launch of compute."""

    def compute_stream(self) -> Stream:
        """The stream the caller's compute goes to now."""

    def new_stream(self, name: str) -> Stream:
        """A stream beside the compute stream."""

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        """Within it, torch operations of this thread go to ``stream``."""

    def record(self, stream: Stream) -> Event:
        """An event behind everything ``stream`` holds now."""

    def wait(self, stream: Stream, event: Event) -> None:
        """Later work of ``stream`` starts after ``event``."""

    def wait_host(self, event: Event) -> None:
        """Block the calling thread until ``event`` has happened."""

    def elapsed_s(self, start: Event, end: Event) -> float | None:
        """Seconds between two events that have happened, or None where the device does not time them."""

    def empty(self, nbytes: int, name: str) -> torch.Tensor:
        """``nbytes`` uninitialised bytes on the device, uint8, aligned to at least 256 bytes."""

    def release(self, buffer: torch.Tensor) -> None:
        """Give up a buffer from :meth:`empty`; the caller keeps no reference."""

    def pinned(self, nbytes: int) -> torch.Tensor:
        """``nbytes`` of host memory from which copies run asynchronously; plain memory where there is no such kind."""

    def pinned_taken(self, nbytes: int) -> int:
        """Bytes of page-locked memory that :meth:`pinned` takes for ``nbytes``."""

    def registration_runtime(self) -> RegistrationRuntime | None:
        """How to page-lock a mapping that exists, or None where that cannot be."""

    def copy(self, destination: torch.Tensor, source: torch.Tensor, stream: Stream, label: str) -> None:
        """Enqueue a byte copy between two uint8 tensors of one size, in either direction."""

    def copy_many(
        self, destinations: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], stream: Stream, label: str
    ) -> None:
        """:meth:`copy` for each pair, in order."""

    def gather(
        self,
        stream: Stream,
        work: Callable[[torch.Tensor], object],
        writes: torch.Tensor,
        reads: torch.Tensor,
        label: str,
    ) -> None:
        """Enqueue ``work(writes)``, a collective that fills its argument from every rank's ``reads``."""

    def begin_read(self, buffer: torch.Tensor, reader: str) -> None:
        """Compute of block ``reader`` starts to read ``buffer`` on the compute stream."""

    def end_read(self, buffer: torch.Tensor, reader: str) -> None:
        """Everything ``reader`` does with ``buffer`` has been enqueued."""

    def synchronize(self) -> None:
        """Block until all work of all streams is done."""

    def memory(self) -> MemoryInfo | None:
        """Memory figures, or None where the device reports none."""

    def empty_cache(self) -> None:
        """Return the allocator's cached memory to the device."""
