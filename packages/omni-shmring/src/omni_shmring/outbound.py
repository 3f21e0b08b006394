"""The sending side of one edge: its ring (or rings, while one drains), what is pending, and what is retired."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from omni_shmring import layout, names, segments
from omni_shmring.codec import Frame
from omni_shmring.errors import BacklogError, NoSpaceError
from omni_shmring.inbox import Inbox
from omni_shmring.mapping import Mapping, create, room_bytes, unlink
from omni_shmring.stats import Counters, EdgeStats
from omni_shmring.writer import Publication, RingWriter

log = logging.getLogger("omni_shmring")

INDEX_FROM = 32
"""From how many pending messages on their keys are indexed by request."""


@dataclass(frozen=True, slots=True)
class Route:
    """What an edge is: names for people, digests for files."""

    source: str
    dest: str
    source_digest: str
    dest_digest: str

    def __str__(self) -> str:
        return f"{self.source} -> {self.dest}"


class OutRing:
    """One ring this process fills."""

    def __init__(
        self,
        directory: int,
        name: names.RingName,
        ring_bytes: int,
        inbox: Inbox,
        lives: Callable[[int], bool],
    ) -> None:
        """Create the ring's file and make it known to the stage. Raises NoSpaceError."""
        self.name = name
        self._directory = directory
        geometry = layout.Geometry.for_ring(ring_bytes)
        scratch = names.scratch_file(name.instance, f"ring.{name.dest}.{name.serial:x}")
        self.mapping = create(directory, scratch, geometry.file_bytes, f"a ring of {ring_bytes:,} bytes")
        self._chunks: list[Mapping] = []
        self.writer = RingWriter(
            self.mapping.view,
            geometry,
            grow=self._grow,
            receiver_lives=lambda entry: (holder := inbox.holder(entry)) != 0 and lives(holder),
            instance_lives=lives,
        )
        self.writer.format(name.instance)
        # Only now does it get its name: nobody sees a ring without its header.
        os.rename(scratch, str(name), src_dir_fd=directory, dst_dir_fd=directory)
        self.quarter_bytes = geometry.data_bytes // 4
        self.segments = 0

    def _grow(self, number: int) -> memoryview:
        mapping = create(self._directory, self.name.chunk(number), layout.CHUNK_BYTES, "a longer index")
        self._chunks.append(mapping)
        return mapping.view

    @property
    def idle(self) -> bool:
        """Whether nothing of it is pending or being copied."""
        return not self.writer.pending and not self.writer.limbo

    def remove(self, state: int) -> None:
        """Close the ring for its receivers, and its files for everybody."""
        self.writer.set_state(state)
        for publication in (*self.writer.pending.values(), *self.writer.limbo):
            if publication.kind == layout.IN_SEGMENT:
                unlink(self._directory, self.name.segment(publication.place))
        for number in range(len(self._chunks)):
            unlink(self._directory, self.name.chunk(number))
        unlink(self._directory, str(self.name))
        self.let_go()

    def let_go(self) -> None:
        """Unmap."""
        self.writer.close_views()
        for mapping in (*self._chunks, self.mapping):
            mapping.close()
        self._chunks.clear()


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
        self._pending: dict[bytes, tuple[OutRing, Publication]] = {}
        self._chunks_of: dict[bytes, dict[bytes, None]] = {}
        self._indexed = False
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
        if not writer.usable:
            ring = self._replace_condemned()
            writer = ring.writer
        elif ring.quarter_bytes * 4 < self._ring_bytes:
            ring = self._try_full_ring()
            writer = ring.writer
        writer.sweep_oldest(self._gone)
        nbytes = frame.nbytes
        publication = None
        if layout.key_span(len(key)) + nbytes <= ring.quarter_bytes:
            publication = self._reserve(writer, key, nbytes, True)
            if publication is None:
                self.sweep()
                publication = self._reserve(writer, key, nbytes, True)
        counters = self._counters
        if publication is not None:
            frame.write(writer.view, offset := writer.frame_offset(publication), ring.mapping.address + offset)
            counters.ring_puts += 1
            counters.ring_put_bytes += nbytes
        else:
            publication = self._reserve(writer, key, nbytes, False)
            assert publication is not None
            ring.segments += 1
            publication.place = ring.segments
            self._write_segment(ring, publication, frame)
            counters.segment_puts += 1
            counters.segment_put_bytes += nbytes
        earlier = self._pending.get(key)
        if earlier is not None and self._retire(key, *earlier):
            counters.retired += 1
        writer.commit(publication)
        self._pending[key] = (ring, publication)
        if self._indexed or len(self._pending) > INDEX_FROM:
            self._index(key)
        self.inbox.ring()
        counters.puts += 1
        counters.put_bytes += nbytes
        return ring, publication

    def pending_bytes_under(self, key: bytes) -> int:
        """Bytes that a new put of this key would free."""
        earlier = self._pending.get(key)
        return 0 if earlier is None else earlier[1].nbytes + len(key)

    def cancel(self, key: bytes) -> bool:
        """Retire exactly one key; True when it is certain that nobody got it."""
        earlier = self._pending.get(key)
        done = earlier is not None and self._retire(key, *earlier)
        self._counters.cancelled += done
        return done

    def cancel_prefix(self, prefix: bytes) -> int:
        """Retire the keys that are ``prefix`` and then digits only; how many of them nobody got."""
        keys = self._chunks_of.get(prefix.rstrip(names.DIGITS), {}) if self._indexed else self._pending
        shortest = len(prefix) + 1
        chunks = [key for key in keys if len(key) >= shortest and key.startswith(prefix)]
        if not self._indexed:
            chunks = [key for key in chunks if not key[len(prefix) :].strip(names.DIGITS)]
        return sum([self.cancel(key) for key in chunks])

    def sweep(self) -> None:
        """Take note of everything that receivers finished."""
        self.ring.writer.sweep(self._gone)
        for ring in list(self._draining):
            ring.writer.sweep(self._gone)
            if ring.idle:
                self._draining.remove(ring)
                ring.remove(layout.STATE_CLOSED)
                self.inbox.announce_rings()

    def stats(self) -> EdgeStats:
        """The edge now."""
        self.sweep()
        writer = self.ring.writer
        return EdgeStats(
            dest=self.route.dest,
            pending=len(self._pending),
            pending_bytes=self.pending_bytes,
            ring_bytes=writer.geometry.data_bytes,
            ring_used_bytes=writer.space.used,
            rings=1 + len(self._draining),
        )

    @property
    def pending(self) -> int:
        """How many messages are unclaimed, as far as is known since the last sweep."""
        return len(self._pending)

    @property
    def pending_bytes(self) -> int:
        """Unclaimed bytes, as far as is known since the last sweep."""
        return sum(ring.writer.pending_bytes for ring in (self.ring, *self._draining))

    def linger(self, on: bool) -> None:
        """Ask receivers to say when they took something."""
        for ring in (self.ring, *self._draining):
            ring.writer.words[layout.W_LINGER] = int(on)

    def drained_word(self) -> tuple[int, int]:
        """(address, value) of the word that changes when a receiver takes something while this side lingers."""
        return self.ring.mapping.address + 8 * layout.W_DRAINED, self.ring.writer.words[layout.W_DRAINED] & 0xFFFFFFFF

    def close(self) -> int:
        """Close all rings; how many messages were dropped."""
        self.sweep()
        dropped = 0
        for ring in (self.ring, *self._draining):
            dropped += sum([ring.writer.retire(p) for p in list(ring.writer.pending.values())])
            ring.remove(layout.STATE_CLOSED)
        self._draining.clear()
        self.inbox.announce_rings()
        self.inbox.close()
        return dropped

    def let_go(self) -> None:
        """Unmap everything and remove nothing (in a forked child)."""
        for ring in (self.ring, *self._draining):
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
        self.inbox.announce_rings()
        return ring

    def _new_ring(self, ring_bytes: int) -> OutRing:
        self._serial += 1
        name = names.RingName(self.route.dest_digest, self.route.source_digest, self._instance, self._serial)
        return OutRing(self._directory, name, ring_bytes, self.inbox, self._lives)

    def _try_full_ring(self) -> OutRing:
        """Room has returned: start a ring of the configured size and let the other drain."""
        if room_bytes(self._directory) >= layout.Geometry.for_ring(self._ring_bytes).file_bytes:
            try:
                fresh = self._new_ring(self._ring_bytes)
            except NoSpaceError:
                return self.ring  # somebody was faster; the edge goes on as it is
            self._draining.append(self.ring)
            self.ring = fresh
            self.inbox.announce_rings()
            self.sweep()
        return self.ring

    def _replace_condemned(self) -> OutRing:
        """A receiver found the ring damaged: drop what it held, and start a fresh one."""
        broken = self.ring
        fresh = self._open_ring()
        lost = [p.key for p in broken.writer.pending.values()]
        for key in lost:
            self._forget(key)
        log.error(
            "edge %s: a receiver found ring %s damaged; %d unclaimed messages lost", self.route, broken.name, len(lost)
        )
        self._counters.dropped += len(lost)
        self._counters.damaged += 1
        broken.remove(layout.STATE_CONDEMNED)
        self.ring = fresh
        return fresh

    def _reserve(self, writer: RingWriter, key: bytes, nbytes: int, in_ring: bool) -> Publication | None:
        if writer.full_index:
            self.sweep()
            if writer.full_index:
                raise BacklogError(str(self.route), nbytes, self.pending_bytes, self.pending_bytes, self.pending)
        return writer.reserve(key, nbytes, in_ring)

    def _write_segment(self, ring: OutRing, publication: Publication, frame: Frame) -> None:
        key = publication.key
        buffers = frame.buffers()
        if span := layout.key_span(len(key)):
            buffers.insert(0, memoryview(key + bytes(span - len(key))))
        try:
            segments.write(self._directory, ring.name.segment(publication.place), buffers, span + frame.nbytes)
        except BaseException:
            ring.writer.abandon(publication)
            raise

    def _retire(self, key: bytes, ring: OutRing, publication: Publication) -> bool:
        certain = ring.writer.retire(publication)
        self._remove_segment(ring, publication)
        self._forget(key)
        return certain

    def _gone(self, publication: Publication) -> None:
        """A receiver has finished with it."""
        found = self._pending.get(publication.key)
        if found is not None and found[1] is publication:
            self._remove_segment(found[0], publication)
            self._forget(publication.key)

    def _index(self, key: bytes) -> None:
        """Keep keys by what precedes their last digits, so that a request's chunks are found without a search.

        Only while many are pending: few are searched faster than they are indexed.
        """
        for each in (key,) if self._indexed else self._pending:
            self._chunks_of.setdefault(each.rstrip(names.DIGITS), {})[each] = None
        self._indexed = True

    def _forget(self, key: bytes) -> None:
        self._pending.pop(key, None)
        if self._indexed:
            prefix = key.rstrip(names.DIGITS)
            group = self._chunks_of.get(prefix)
            if group is not None:
                group.pop(key, None)
                if not group:
                    del self._chunks_of[prefix]
            self._indexed = bool(self._pending)

    def _remove_segment(self, ring: OutRing, publication: Publication) -> None:
        if publication.kind == layout.IN_SEGMENT:
            unlink(self._directory, ring.name.segment(publication.place))
