"""One ring as a receiver has it: the map of its file, its producer's pulse, the frames outside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from omni_shmring import futex, layout, names, segments
from omni_shmring.errors import DamagedError
from omni_shmring.inbox import Inbox
from omni_shmring.liveness import Pulse
from omni_shmring.mapping import Mapping, attach, unlink
from omni_shmring.reader import Claim, RingReader
from omni_shmring.segments import Segment, open_segment
from omni_shmring.spares import SpareViews


@dataclass(frozen=True, slots=True)
class Home:
    """What a receiver needs of its transport: the directory, its own inbox and entry, and who it is."""

    directory: int
    inbox: Inbox
    entry: int
    instance: int
    lives: Callable[[int], bool]
    found_dead: Callable[[], None]


class InRing:
    """One ring this process reads."""

    def __init__(self, home: Home, name: names.RingName, mapping: Mapping, channel: str) -> None:
        """Attach. Raises DamagedError when it is not a sound ring."""
        self.name = name
        self.channel = channel
        self.mapping = mapping
        self.verified_s = -1.0
        self._home = home
        self._chunks: list[Mapping] = []
        self._spares = SpareViews(home.directory, name)
        self.reader = RingReader(
            mapping.view,
            channel,
            entry=home.entry,
            receivers=home.inbox.receiver_count,
            chunk=self._chunk,
            segment_key=self._segment_key,
            receiver_lives=lambda entry: (holder := home.inbox.holder(entry)) != 0 and home.lives(holder),
            instance_lives=home.lives,
        )
        if self.reader.instance != name.instance:
            raise DamagedError(channel, "its header names another producer than its file")
        self.pulse = Pulse(home.directory, name.source, name.instance)

    def _chunk(self, number: int) -> memoryview | None:
        mapping = attach(self._home.directory, self.name.chunk(number))
        if mapping is None:
            return None
        if mapping.nbytes != layout.CHUNK_BYTES:
            mapping.close()
            raise DamagedError(self.channel, f"part {number} of its index has {mapping.nbytes:,} bytes")
        self._chunks.append(mapping)
        return mapping.view

    def _segment_key(self, number: int, nbytes: int) -> bytes | None:
        return segments.read_start(self._home.directory, self.name.segment(number), nbytes)

    def frame(self, claim: Claim) -> tuple[memoryview, Segment | None]:
        """(the claimed frame, its file if that is for once). Raises DamagedError when it is not there as described."""
        if claim.kind == layout.IN_RING:
            return self.mapping.view[claim.place : claim.place + claim.nbytes], None
        span = layout.key_span(len(claim.key))
        end = span + claim.nbytes
        if claim.kind == layout.IN_SPARE:
            spare = self._spares.look_up(claim.place, end)
            if spare is not None:
                return spare.view[span:end], None
        else:
            segment = open_segment(self._home.directory, self.name.segment(claim.place), end)
            if segment is not None:
                return segment.view[span:], segment
        raise DamagedError(self.channel, f"frame {claim.place} outside the ring is gone or has another size")

    def finish(self, claim: Claim) -> None:
        """The frame has been taken: its space goes back to the producer."""
        reader = self.reader
        reader.finish(claim)
        if claim.kind == layout.IN_SEGMENT:
            # The producer would remove it too, at its next sweep.
            unlink(self._home.directory, self.name.segment(claim.place))
        if reader.words[layout.W_LINGER]:
            self.tell_lingering()

    def tell_lingering(self) -> None:
        """Wake a producer that waits in close() for this."""
        words = self.reader.words
        words[layout.W_DRAINED] = (words[layout.W_DRAINED] + 1) & 0xFFFFFFFF
        futex.wake_all(self.mapping.address + 8 * layout.W_DRAINED)

    def let_go(self) -> None:
        """Unmap; leases keep what they look at."""
        self.reader.close_views()
        self._spares.let_go()
        for mapping in (*self._chunks, self.mapping):
            mapping.close()
        self._chunks.clear()
        self.pulse.close()
