"""The ring against a model: whatever is put, taken, cancelled, leased or left half-way, in whatever order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from omni_shmring import layout
from omni_shmring.errors import DamagedError
from omni_shmring.reader import Claim, RingReader
from omni_shmring.writer import Publication, RingWriter

hypothesis = pytest.importorskip("hypothesis", reason="waits for hypothesis: pip install hypothesis")
from hypothesis import stateful  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

GEOMETRY = layout.Geometry(slots=64, data_bytes=4096)
RECEIVERS = 3


class Ring:
    """A ring over plain memory, with receivers that can be declared dead."""

    def __init__(self, geometry: layout.Geometry = GEOMETRY) -> None:
        self.memory = bytearray(geometry.file_bytes)
        self.chunks: list[bytearray] = []
        self.dead: set[int] = set()
        self.count = memoryview(bytearray(8)).cast("Q")
        self.count[0] = RECEIVERS
        self.writer = RingWriter(
            memoryview(self.memory),
            geometry,
            grow=self.grow,
            receiver_lives=lambda entry: entry not in self.dead,
            instance_lives=lambda instance: instance - 100 not in self.dead,
        )
        self.writer.format(7)

    def grow(self, number: int) -> memoryview:
        assert number == len(self.chunks)
        self.chunks.append(bytearray(layout.CHUNK_BYTES))
        return memoryview(self.chunks[-1])

    def reader(self, entry: int) -> RingReader:
        return RingReader(
            memoryview(self.memory),
            "test",
            entry=entry,
            receivers=self.count,
            chunk=lambda number: memoryview(self.chunks[number]) if number < len(self.chunks) else None,
            segment_key=lambda number, nbytes: None,
            receiver_lives=lambda other: other not in self.dead,
            instance_lives=lambda instance: instance - 100 not in self.dead,
        )


def put(ring: Ring, key: bytes, content: bytes) -> Publication | None:
    """Publish, as the driver does: reserve, write, retire the earlier one, commit."""
    writer = ring.writer
    writer.sweep_oldest()
    publication = writer.reserve(key, len(content))
    if publication is None:
        writer.sweep()
        publication = writer.reserve(key, len(content))
        if publication is None:
            return None
    at = writer.data_offset + publication.place + layout.key_span(len(key))
    writer.view[at : at + len(content)] = content
    earlier = writer.pending.get(key)
    if earlier is not None:
        writer.retire(earlier)
    writer.commit(publication)
    return publication


def read(reader: RingReader, claim: Claim) -> bytes:
    return bytes(reader.view[claim.place : claim.place + claim.nbytes])


KEYS = [b"", b"a", b"req-1:0", b"req-1:1", b"req-1:12", b"req-2:0", b"k" * 89, b"x" * 400]


class RingMachine(stateful.RuleBasedStateMachine):
    """Exactly once, the latest of each key, and no byte of space lost."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = Ring()
        self.readers: list[RingReader | None] = [self.ring.reader(n) for n in range(RECEIVERS)]
        self.standing: dict[bytes, bytes] = {}
        self.held: dict[int, tuple[Claim, bytes, bool]] = {}
        self.number = 0

    def claimed(self, key: bytes) -> bool:
        return any(claim.key == key and key in self.standing for claim, _, _ in self.held.values())

    @stateful.rule(key=st.sampled_from(KEYS), size=st.integers(0, 1500))
    def put(self, key: bytes, size: int) -> None:
        self.number += 1
        content = self.number.to_bytes(4, "little") * (size // 4)
        if put(self.ring, key, content) is not None:
            self.standing[key] = content

    @stateful.rule(key=st.sampled_from(KEYS), who=st.integers(0, RECEIVERS - 1))
    def get(self, key: bytes, who: int) -> None:
        reader = self.readers[who]
        if reader is None or (who in self.held and not self.held[who][2]):
            return
        reader.poll()
        claim = reader.claim(key)
        busy = [h for other, h in self.held.items() if h[1] == self.standing.get(key) and h[0].key == key]
        if key in self.standing and not busy:
            assert claim is not None
            assert read(reader, claim) == self.standing.pop(key)
            reader.finish(claim)
        else:
            assert claim is None

    @stateful.rule(key=st.sampled_from(KEYS), who=st.integers(0, RECEIVERS - 1), lease=st.booleans())
    def begin(self, key: bytes, who: int, lease: bool) -> None:
        """Claim and stop there: in the middle of a copy, or holding a lease."""
        reader = self.readers[who]
        if reader is None or who in self.held or any(h[0].key == key for h in self.held.values()):
            return
        reader.poll()
        claim = reader.claim(key)
        if claim is not None:
            if lease:
                reader.hold(claim, 100 + who)
            self.held[who] = (claim, self.standing[key], lease)

    @stateful.rule(who=st.integers(0, RECEIVERS - 1))
    def end(self, who: int) -> None:
        if who in self.held:
            claim, content, _ = self.held.pop(who)
            reader = self.readers[who]
            assert reader is not None
            # Whatever the producer did meanwhile, the bytes under a claim have stayed.
            assert read(reader, claim) == content
            reader.finish(claim)
            if self.standing.get(claim.key) == content:
                del self.standing[claim.key]

    @stateful.rule(who=st.integers(0, RECEIVERS - 1))
    def die(self, who: int) -> None:
        """A receiver dies, also half-way; a successor takes its entry. What it held is there for the next."""
        self.held.pop(who, None)
        self.ring.dead.add(who)
        self.readers[who] = None

    @stateful.rule(who=st.integers(0, RECEIVERS - 1))
    def come_back(self, who: int) -> None:
        if self.readers[who] is None:
            # Leases of the dead are of an instance that never returns; only the entry does.
            self.ring.writer.words[layout.W_BUSY + who] = 0
            for key in list(self.standing):
                self._release_dead_lease(key)
            self.ring.dead.discard(who)
            self.readers[who] = self.ring.reader(who)

    def _release_dead_lease(self, key: bytes) -> None:
        publication = self.ring.writer.pending.get(key)
        if publication is not None:
            _, words, index, base = self.ring.writer._chunk(publication.slot)
            at = index.claims + publication.slot - base
            if words[at] not in (layout.UNCLAIMED, layout.CONSUMED) and words[at] - 100 in self.ring.dead:
                words[at] = layout.UNCLAIMED

    @stateful.rule(key=st.sampled_from(KEYS))
    def cancel(self, key: bytes) -> None:
        publication = self.ring.writer.pending.get(key)
        if publication is not None:
            certain = self.ring.writer.retire(publication)
            content = self.standing.pop(key, None)
            assert certain == (
                content is not None and not any(h[1] == content and h[0].key == key for h in self.held.values())
            )

    @stateful.rule(prefix=st.sampled_from([b"req-1:", b"req-1:1", b"", b"a"]))
    def cancel_prefix(self, prefix: bytes) -> None:
        found = {p.key for p in self.ring.writer.chunks_of(prefix)}
        expected = {
            key for key in self.ring.writer.pending
            if key.startswith(prefix) and len(key) > len(prefix) and key[len(prefix) :].isdigit()
        }  # fmt: skip
        assert found == expected
        for publication in self.ring.writer.chunks_of(prefix):
            self.ring.writer.retire(publication)
            self.standing.pop(publication.key, None)

    @stateful.invariant()
    def accounts_agree(self) -> None:
        writer = self.ring.writer
        writer.sweep()
        assert set(self.standing) <= set(writer.pending)
        assert writer.pending_bytes == sum(p.nbytes + len(p.key) for p in writer.pending.values())
        blocks = [p.block for p in (*writer.pending.values(), *writer.limbo) if p.block is not None]
        assert writer.space.used == sum(b.end - b.start for b in blocks)
        spans = sorted((b.start, b.end) for b in blocks)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        if not blocks:
            assert len(writer.space) == 0


RingMachine.TestCase.settings = hypothesis.settings(
    max_examples=120, stateful_step_count=60, derandomize=True, deadline=None
)
TestRing = RingMachine.TestCase


def test_a_thousand_wraps_deliver_every_frame() -> None:
    ring = Ring()
    reader = ring.reader(0)
    waiting: list[tuple[bytes, bytes]] = []
    for number in range(3000):
        key, content = b"%d" % number, number.to_bytes(4, "little") * (number % 200)
        while put(ring, key, content) is None:
            first, expected = waiting.pop(0)
            reader.poll()
            claim = reader.claim(first)
            assert claim is not None
            assert read(reader, claim) == expected
            reader.finish(claim)
        waiting.append((key, content))
    assert len(waiting) > 1


def test_the_index_grows_and_a_late_reader_finds_everything() -> None:
    ring = Ring(layout.Geometry(slots=64, data_bytes=1 << 20))
    for number in range(2500):
        assert put(ring, b"k%d" % number, number.to_bytes(4, "little")) is not None
    assert len(ring.chunks) == 3
    reader = ring.reader(0)
    reader.poll()
    for number in reversed(range(2500)):
        claim = reader.claim(b"k%d" % number)
        assert claim is not None
        assert read(reader, claim) == number.to_bytes(4, "little")
        reader.finish(claim)
    ring.writer.sweep()
    assert ring.writer.pending == {}


def test_an_index_that_cannot_grow_changes_nothing() -> None:
    ring = Ring(layout.Geometry(slots=64, data_bytes=1 << 20))

    def no_room(number: int) -> memoryview:
        raise OSError("no room")

    ring.writer._grow = no_room
    for number in range(64):
        put(ring, b"k%d" % number, b"x")
    used = ring.writer.space.used
    with pytest.raises(OSError, match="no room"):
        put(ring, b"one more", b"x")
    assert ring.writer.space.used == used
    ring.writer.retire(ring.writer.pending[b"k0"])
    assert put(ring, b"one more", b"x") is not None


def test_a_reader_that_falls_behind_keeps_no_more_than_there_is() -> None:
    ring = Ring()
    reader = ring.reader(0)
    for number in range(20_000):
        publication = put(ring, b"k%d" % number, b"x")
        assert publication is not None
        reader.poll()
        ring.writer.retire(publication)
    assert len(reader.index) <= 2 * RingReader.PRUNE_AT


@pytest.mark.parametrize("offset", range(64))
def test_a_damaged_header_or_head_word_is_told(offset: int) -> None:
    ring = Ring()
    put(ring, b"k", b"content")
    at = offset if offset < 48 else 8 * layout.W_HEAD + offset % 8
    ring.memory[at] ^= 0xA5

    def use() -> Any:
        reader = ring.reader(0)
        reader.poll()
        return reader.claim(b"k")

    if 32 <= at < 40:  # the producer's number, which the driver holds against the file's name
        assert use() is not None
    else:
        with pytest.raises(DamagedError):
            use()
