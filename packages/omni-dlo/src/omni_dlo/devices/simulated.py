"""A device made of rules instead of silicon, for tests and plans.

Its memory is host memory, its compute is the CPU's, and it is merciless where a real device is merely fast:

* A copy takes effect only when somebody waits for it, so a missing wait computes with poison or with the block
  before.
* Every buffer keeps its readers, and a copy into it must be ordered, by events, after the end of each; a copy that is
  not is reported by the names of both.
* A buffer that is released while work on it is pending is reported too.

It has a clock: copies take bytes / bandwidth, blocks take the compute time they were given, streams advance alone and
meet at events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from omni_dlo.devices.base import Event, MemoryInfo, Stream
from omni_dlo.devices.torch_device import aligned_empty
from omni_dlo.errors import SimulatedHazardError
from omni_dlo.registration import RegistrationRuntime

__all__ = ["SimulatedDevice", "SimulatedSpan"]

POISON = 0xFF
"""Fills fresh memory: NaN in every float format of torch, so that a read before the copy shows."""


@dataclass(frozen=True)
class SimulatedSpan:
    """Something that occupied a stream from ``start_s`` to ``end_s`` on the simulated clock."""

    stream: str
    name: str
    start_s: float
    end_s: float
    nbytes: int


@dataclass
class _Stream:
    name: str
    time_s: float = 0.0
    ticks: int = 0
    # What this stream is known to come after: per stream, how many of its operations.
    seen: dict[str, int] = field(default_factory=dict)
    queue: deque[tuple[int, Callable[[], None]]] = field(default_factory=deque)


@dataclass(frozen=True)
class _Event:
    stream: _Stream
    tick: int
    time_s: float
    seen: Mapping[str, int]


@dataclass
class _Read:
    reader: str
    stream: str
    ended_at: int | None


@dataclass
class _Buffer:
    name: str
    nbytes: int
    reads: list[_Read] = field(default_factory=list)
    writes: list[tuple[str, int]] = field(default_factory=list)


class SimulatedDevice:
    """See the module's text.

    Args:
        memory_bytes: Size of the device; an allocation beyond it raises ``torch.OutOfMemoryError``.
        h2d_bytes_per_s: Rate of copies from or to the host.
        gather_bytes_per_s: Rate of collectives, in bytes that arrive.
        compute_s: Seconds that a block computes, by its name; ``compute_default_s`` for those not named.
        runtime: What registers host mappings, or None.
    """

    unified = False
    packs_in_thread = False

    def __init__(
        self,
        memory_bytes: int = 1 << 40,
        h2d_bytes_per_s: float = 25e9,
        gather_bytes_per_s: float = 100e9,
        compute_s: Mapping[str, float] | None = None,
        compute_default_s: float = 0.0,
        runtime: RegistrationRuntime | None = None,
    ) -> None:
        self.name = "simulated"
        self.torch_device = torch.device("cpu")
        self.memory_bytes = memory_bytes
        self.h2d_bytes_per_s = h2d_bytes_per_s
        self.gather_bytes_per_s = gather_bytes_per_s
        self.compute_s = dict(compute_s or {})
        self.compute_default_s = compute_default_s
        self.runtime = runtime
        self.spans: list[SimulatedSpan] = []
        self.log: list[str] = []
        self.pinned_bytes = 0
        self.peak_bytes = 0
        self.cache_flushes = 0
        self._host_time_s = 0.0
        self._compute = _Stream("compute")
        self._streams = [self._compute]
        self._buffers: dict[int, _Buffer] = {}

    # Clock and memory, for whoever measures.

    @property
    def now_s(self) -> float:
        """The latest time any stream has reached."""
        return max(stream.time_s for stream in self._streams)

    @property
    def compute_time_s(self) -> float:
        """The time the compute stream has reached."""
        return self._compute.time_s

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all buffers not released."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def memory(self) -> MemoryInfo | None:
        used = self.allocated_bytes
        return MemoryInfo(self.memory_bytes, self.memory_bytes - used, used, used)

    def empty_cache(self) -> None:
        self.cache_flushes += 1

    def empty(self, nbytes: int, name: str) -> torch.Tensor:
        if self.allocated_bytes + nbytes > self.memory_bytes:
            raise torch.OutOfMemoryError(
                f"simulated device: {nbytes} bytes for {name}, {self.memory_bytes - self.allocated_bytes} free"
            )
        buffer = aligned_empty(nbytes).fill_(POISON)
        self._buffers[self._key(buffer)] = _Buffer(name, nbytes)
        self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
        return buffer

    def release(self, buffer: torch.Tensor) -> None:
        known = self._buffers.get(self._key(buffer))
        if known is None:
            raise SimulatedHazardError("freed-twice", "a buffer that the device does not have")
        for read in known.reads:
            if read.ended_at is None:
                raise SimulatedHazardError("freed-in-use", f"{known.name} while {read.reader} reads it")
        for stream in self._streams:
            if any(name == stream.name and tick in {t for t, _ in stream.queue} for name, tick in known.writes):
                raise SimulatedHazardError("freed-in-use", f"{known.name} while {stream.name} still fills it")
        del self._buffers[self._key(buffer)]
        buffer.fill_(POISON)

    def pinned(self, nbytes: int) -> torch.Tensor:
        self.pinned_bytes += nbytes
        return aligned_empty(nbytes)

    def pinned_taken(self, nbytes: int) -> int:
        return nbytes

    def registration_runtime(self) -> RegistrationRuntime | None:
        return self.runtime

    # Streams and events.

    def compute_stream(self) -> Stream:
        return self._compute

    def new_stream(self, name: str) -> Stream:
        label = f"{name}#{len(self._streams)}" if name in {known.name for known in self._streams} else name
        stream = _Stream(label, time_s=self.now_s)
        self._streams.append(stream)
        return stream

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        return nullcontext()

    def record(self, stream: Stream) -> Event:
        self._say(f"record {stream.name}@{stream.ticks}")
        return _Event(stream, stream.ticks, stream.time_s, {**stream.seen, stream.name: stream.ticks})

    def wait(self, stream: Stream, event: Event) -> None:
        if event is None:
            return
        self._say(f"wait {stream.name} for {event.stream.name}@{event.tick}")
        stream.time_s = max(stream.time_s, event.time_s)
        for name, tick in event.seen.items():
            stream.seen[name] = max(stream.seen.get(name, 0), tick)
        # Compute runs when it is called, so what it waits for must be true by then. A queue that waits for another
        # queue carries the wait in order.
        if stream is self._compute:
            self._settle(event)
        else:
            self._enqueue(stream, lambda: self._settle(event))

    def wait_host(self, event: Event) -> None:
        if event is None:
            return
        self._say(f"host waits for {event.stream.name}@{event.tick}")
        self._host_time_s = max(self._host_time_s, event.time_s)
        self._settle(event)

    def elapsed_s(self, start: Event, end: Event) -> float | None:
        return float(end.time_s - start.time_s)

    def synchronize(self) -> None:
        self._say("synchronize")
        self._host_time_s = max(self._host_time_s, self.now_s)
        for stream in self._streams:
            self._drain(stream, stream.ticks)
        for stream in self._streams:
            for other in self._streams:
                stream.seen[other.name] = other.ticks

    # Work.

    def copy(self, destination: torch.Tensor, source: torch.Tensor, stream: Stream, label: str) -> None:
        self._transfer(
            stream, lambda: destination.copy_(source), destination, source.numel(), self.h2d_bytes_per_s, label
        )

    def copy_many(
        self, destinations: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], stream: Stream, label: str
    ) -> None:
        for destination, source in zip(destinations, sources):
            self.copy(destination, source, stream, label)

    def gather(
        self,
        stream: Stream,
        work: Callable[[torch.Tensor], object],
        writes: torch.Tensor,
        reads: torch.Tensor,
        label: str,
    ) -> None:
        # A collective takes part in program order, as the host of a real device enqueues it, or ranks would wait for
        # one another crosswise; its effect waits like that of a copy.
        self._drain(stream, stream.ticks)
        arrived = torch.empty_like(writes)
        work(arrived)
        self._transfer(stream, lambda: writes.copy_(arrived), writes, writes.numel(), self.gather_bytes_per_s, label)
        source = self._buffers.get(self._key(reads))
        if source is not None:
            source.reads.append(_Read(label, stream.name, stream.ticks))

    def begin_read(self, buffer: torch.Tensor, reader: str) -> None:
        self._say(f"begin {reader}")
        self._buffers[self._key(buffer)].reads.append(_Read(reader, self._compute.name, None))

    def end_read(self, buffer: torch.Tensor, reader: str) -> None:
        self._say(f"end {reader}")
        self.compute(reader)
        for read in reversed(self._buffers[self._key(buffer)].reads):
            if read.reader == reader and read.ended_at is None:
                read.ended_at = self._compute.ticks
                return

    def compute(self, name: str) -> None:
        """Advance the compute stream by the time block ``name`` takes."""
        stream = self._compute
        start = max(stream.time_s, self._host_time_s)
        stream.time_s = start + self.compute_s.get(name, self.compute_default_s)
        stream.ticks += 1
        self.spans.append(SimulatedSpan(stream.name, name, start, stream.time_s, 0))

    def _transfer(
        self, stream: _Stream, work: Callable[[], object], writes: torch.Tensor, nbytes: int, rate: float, label: str
    ) -> None:
        self._say(f"copy {label} on {stream.name}")
        start = max(stream.time_s, self._host_time_s)
        stream.time_s = start + nbytes / rate
        self.spans.append(SimulatedSpan(stream.name, label, start, stream.time_s, nbytes))
        buffer = self._buffers.get(self._key(writes))
        if buffer is not None:
            for read in buffer.reads:
                after = stream.ticks if read.stream == stream.name else stream.seen.get(read.stream, 0)
                if read.ended_at is None or after < read.ended_at:
                    raise SimulatedHazardError(
                        "overwrite", f"copy of {label} into {buffer.name} while {read.reader} may still read it"
                    )
            for name, tick in buffer.writes:
                if name != stream.name and stream.seen.get(name, 0) < tick:
                    raise SimulatedHazardError(
                        "overwrite", f"{label} writes {buffer.name} on {stream.name} before {name} has finished it"
                    )
            buffer.reads.clear()
        self._enqueue(stream, work)
        if buffer is not None:
            buffer.writes = [(n, t) for n, t in buffer.writes if n != stream.name] + [(stream.name, stream.ticks)]

    def _enqueue(self, stream: _Stream, work: Callable[[], object]) -> None:
        stream.ticks += 1

        def call() -> None:
            work()

        if stream is self._compute:
            call()
        else:
            stream.queue.append((stream.ticks, call))

    def _settle(self, event: _Event) -> None:
        self._drain(event.stream, event.tick)

    def _drain(self, stream: _Stream, tick: int) -> None:
        while stream.queue and stream.queue[0][0] <= tick:
            stream.queue.popleft()[1]()

    def _key(self, tensor: torch.Tensor) -> int:
        return tensor.untyped_storage().data_ptr()

    def _say(self, text: str) -> None:
        self.log.append(text)
