"""The sending side of one edge: its ring (or rings, while one drains), what is pending, and what is retired."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from omni_shmring import layout, names, segments
from omni_shmring.codec import Frame
from omni_shmring.errors import BacklogError, NoSpaceError
from omni_shmring.inbox import Inbox
from omni_shmring.mapping import room_bytes, unlink
from omni_shmring.outring import OutRing
from omni_shmring.stats import Counters, EdgeStats
from omni_shmring.writer import Publication

log = logging.getLogger("omni_shmring")


@dataclass(frozen=True, slots=True)
class Route:
    """What an edge is: names for people, digests for files."""

    source: str
    dest: str
    source_digest: str
    dest_digest: str

    def __str__(self) -> str:
        return f"{self.source} -> {self.dest}"


class Outbound:
    """Puts to one destination. The caller holds the transport's lock."""

    def __init__(
        self,
        directory: int,
        route: Route,
        seed: int,
        instance: int,
        ring_bytes: int,
        lives: Callable[[int], bool],
        counters: Counters,
    ) -> None:
        self.route = route
        self.seed = seed
        self._directory = directory
        self._instance = instance
        self._ring_bytes = ring_bytes
        self._lives = lives
        self._counters = counters
        self._serial = 0
        self._told = False
        self.inbox = Inbox(directory, route.dest_digest, instance)
        self._draining: list[OutRing] = []
        try:
            self.ring = self._open_ring()
        except BaseException:
            self.inbox.close()
            raise

    def put(self, key: bytes, frame: Frame) -> tuple[OutRing, Publication]:
        """Publish a frame; an earlier unclaimed publication of the key is retired.

        Raises:
            NoSpaceError: it fits neither the ring nor the file system.
            BacklogError: the index cannot grow any more.
        """
        ring = self.ring
        writer = ring.writer
        if ring.degraded or writer.words[layout.W_STATE] != layout.STATE_OPEN:
            ring = self._renew()
            writer = ring.writer
        nbytes = frame.nbytes
        pending = writer.pending
        if pending:
            writer.sweep_oldest()
            if writer.full_index:
                self._make_slots(nbytes)
        publication = None
        if len(key) + nbytes <= ring.quarter_bytes:
            publication = writer.reserve(key, nbytes)
            if publication is None:
                self.sweep()
                publication = writer.reserve(key, nbytes)
        counters = self._counters
        if publication is not None:
            offset = writer.data_offset + publication.place
            if len(key) > layout.INLINE_KEY_BYTES:
                offset += layout.key_span(len(key))
            frame.write(writer.view, offset, ring.mapping.address + offset)
            counters.ring_puts += 1
            counters.ring_put_bytes += nbytes
        else:
            publication = self._put_outside(ring, key, frame)
            counters.segment_puts += 1
            counters.segment_put_bytes += nbytes
        if (key in pending or self._draining) and self._retire(key):
            counters.retired += 1
        writer.commit(publication)
        if writer.gone_outside:
            self._let_go_outside()
        self.inbox.ring()
        return ring, publication

    def pending_bytes_under(self, key: bytes) -> int:
        """Bytes that a new put of this key would free."""
        for ring in self._rings():
            earlier = ring.writer.pending.get(key)
            if earlier is not None:
                return earlier.nbytes + len(key)
        return 0

    def cancel(self, key: bytes) -> bool:
        """Retire exactly one key; True when it is certain that nobody got it."""
        done = self._retire(key)
        self._let_go_outside()
        self._counters.cancelled += done
        return done

    def cancel_prefix(self, prefix: bytes) -> int:
        """Retire the keys that are ``prefix`` and then digits only; how many of them nobody got."""
        done = 0
        for ring in self._rings():
            writer = ring.writer
            done += sum([writer.retire(publication) for publication in writer.chunks_of(prefix)])
        self._let_go_outside()
        self._counters.cancelled += done
        return done

    def sweep(self) -> None:
        """Take note of everything that receivers finished."""
        for ring in self._rings():
            ring.writer.sweep()
        self._let_go_outside()
        for ring in [ring for ring in self._draining if ring.idle]:
            self._draining.remove(ring)
            ring.remove(layout.STATE_CLOSED)
            self.inbox.announce_rings()

    def stats(self) -> EdgeStats:
        """The edge now."""
        self.sweep()
        writer = self.ring.writer
        return EdgeStats(
            dest=self.route.dest,
            pending=self.pending,
            pending_bytes=self.pending_bytes,
            ring_bytes=writer.geometry.data_bytes,
            ring_used_bytes=writer.space.used,
            rings=1 + len(self._draining),
        )

    @property
    def pending(self) -> int:
        """How many messages are unclaimed, as far as is known since the last sweep."""
        return sum(len(ring.writer.pending) for ring in self._rings())

    @property
    def pending_bytes(self) -> int:
        """Unclaimed bytes, as far as is known since the last sweep."""
        return sum(ring.writer.pending_bytes for ring in self._rings())

    def linger(self, on: bool) -> None:
        """Ask receivers to say when they took something."""
        for ring in self._rings():
            ring.writer.words[layout.W_LINGER] = int(on)

    def drained_word(self) -> tuple[int, int]:
        """(address, value) of the word that changes when a receiver takes something while this side lingers."""
        return self.ring.mapping.address + 8 * layout.W_DRAINED, self.ring.writer.words[layout.W_DRAINED] & 0xFFFFFFFF

    def close(self) -> int:
        """Close all rings; how many messages were dropped."""
        self.sweep()
        dropped = 0
        for ring in self._rings():
            dropped += sum([ring.writer.retire(p) for p in list(ring.writer.pending.values())])
        self._let_go_outside()
        for ring in self._rings():
            ring.remove(layout.STATE_CLOSED)
        self._draining.clear()
        self.inbox.announce_rings()
        self.inbox.close()
        return dropped

    def let_go(self) -> None:
        """Unmap everything and remove nothing (in a forked child)."""
        for ring in self._rings():
            ring.let_go()
        self.inbox.close()

    def _open_ring(self) -> OutRing:
        """A ring of the configured size, or one without a data area where there is no room for that."""
        try:
            ring = self._new_ring(self._ring_bytes)
        except NoSpaceError as error:
            if self._ring_bytes == 0:
                raise
            if not self._told:
                log.warning("edge %s runs without a ring for now: %s", self.route, error)
                self._told = True
            ring = self._new_ring(0)
            ring.degraded = True
        self.inbox.announce_rings()
        return ring

    def _new_ring(self, ring_bytes: int) -> OutRing:
        self._serial += 1
        name = names.RingName(self.route.dest_digest, self.route.source_digest, self._instance, self._serial)
        return OutRing(self._directory, name, ring_bytes, self.inbox, self._lives)

    def _rings(self) -> list[OutRing]:
        return [self.ring, *self._draining] if self._draining else [self.ring]

    def _renew(self) -> OutRing:
        """The ring has been set aside, or runs without a data area: start another where that is possible."""
        if not self.ring.writer.usable:
            return self._replace_condemned()
        if room_bytes(self._directory) >= layout.Geometry.for_ring(self._ring_bytes).file_bytes:
            try:
                fresh = self._new_ring(self._ring_bytes)
            except NoSpaceError:
                return self.ring  # somebody was faster; the edge goes on as it is
            # Room has returned. What is pending stays where it is until it has been taken.
            self._draining.append(self.ring)
            self.ring = fresh
            self.inbox.announce_rings()
            self.sweep()
        return self.ring

    def _replace_condemned(self) -> OutRing:
        """A receiver found the ring damaged: drop what it held, and start a fresh one."""
        broken = self.ring
        fresh = self._open_ring()
        lost = len(broken.writer.pending)
        log.error(
            "edge %s: a receiver found ring %s damaged; %d unclaimed messages lost", self.route, broken.name, lost
        )
        self._counters.dropped += lost
        self._counters.damaged += 1
        broken.remove(layout.STATE_CONDEMNED)
        self.ring = fresh
        return fresh

    def _make_slots(self, nbytes: int) -> None:
        self.sweep()
        if self.ring.writer.full_index:
            raise BacklogError(str(self.route), nbytes, self.pending_bytes, self.pending_bytes, self.pending)

    def _put_outside(self, ring: OutRing, key: bytes, frame: Frame) -> Publication:
        """Write a frame into a file of its own: one that is used again where the ring keeps few, else one for once."""
        writer, span = ring.writer, layout.key_span(len(key))
        if writer.gone_outside:
            self._let_go_outside()
        fresh = ring.segments + 1
        taken = None if ring.degraded else ring.spares.take(span + frame.nbytes, fresh)
        if taken is not None:
            number, mapping = taken
            ring.segments += number == fresh
            try:
                publication = writer.reserve_outside(key, frame.nbytes, number, layout.IN_SPARE)
            except BaseException:
                ring.spares.give_back(number)
                raise
            if span:
                mapping.view[: len(key)] = key
            frame.write(mapping.view, span, mapping.address + span)
            return publication
        ring.segments += 1
        publication = writer.reserve_outside(key, frame.nbytes, ring.segments, layout.IN_SEGMENT)
        buffers = frame.buffers()
        if span:
            buffers.insert(0, memoryview(key + bytes(span - len(key))))
        name = ring.name.segment(publication.place)
        try:
            try:
                segments.write(self._directory, name, buffers, span + frame.nbytes)
            except NoSpaceError:
                if not self._drop_spares():
                    raise
                segments.write(self._directory, name, buffers, span + frame.nbytes)
        except BaseException:
            writer.abandon(publication)
            raise
        return publication

    def _drop_spares(self) -> bool:
        """Make room: remove what is only kept for use again; whether there was any."""
        self.sweep()
        dropped = [ring.spares.drop_free() for ring in self._rings()]
        return any(dropped)

    def _retire(self, key: bytes) -> bool:
        for ring in self._rings():
            earlier = ring.writer.pending.get(key)
            if earlier is not None:
                return ring.writer.retire(earlier)
        return False

    def _let_go_outside(self) -> None:
        """See to the files of frames that nobody needs any more."""
        for ring in self._rings():
            gone = ring.writer.gone_outside
            while gone:
                publication = gone.pop()
                if publication.kind == layout.IN_SPARE:
                    ring.spares.give_back(publication.place)
                else:
                    unlink(self._directory, ring.name.segment(publication.place))
