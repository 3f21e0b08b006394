"""The producer's half of a ring, over any writable memory. Pure: no file, no clock, no process.

Order of a publication: reserve a slot and a block (private), write the frame, write the body, then the mark, then the
head word. A producer that dies before the mark has published nothing; one that dies between mark and head word has
published a frame that a receiver finds when it looks at the whole index. Both are dead all the same: what a dead
producer left is never delivered.

The functions that run for every message are written out flat: a call costs as much as the stores it would wrap.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import msgspec
import numpy as np

from omni_shmring import layout
from omni_shmring.fences import full_fence, order_fence
from omni_shmring.keys import INDEX_FROM, KeyIndex
from omni_shmring.space import Block, DataSpace

_crc32 = zlib.crc32
_pack = layout.CHECKED.pack


class Publication(msgspec.Struct):
    """One message between its put and the producer's learning what became of it."""

    key: bytes
    slot: int
    nbytes: int
    block: Block | None
    place: int
    """Offset in the data area, or the number of its segment."""
    kind: int = layout.IN_RING
    mark: int = 0


class RingWriter:
    """Publishes frames and learns which of them are gone.

    Args:
        view: The ring's memory: header, index, data area.
        geometry: Its sizes.
        grow: Makes the index longer by one chunk of 1,024 slots and returns its memory; it may raise, and the
            reservation then fails with that error, having changed nothing.
        receiver_lives: Whether the receiver at an entry of the inbox lives; asked only about one that is copying.
        instance_lives: Whether an instance lives; asked only about one that holds a lease.
    """

    def __init__(
        self,
        view: memoryview,
        geometry: layout.Geometry,
        *,
        grow: Callable[[int], memoryview],
        receiver_lives: Callable[[int], bool],
        instance_lives: Callable[[int], bool],
    ) -> None:
        self.view = view
        self.words = view.cast("Q")
        self.geometry = geometry
        self.data_offset = geometry.data_offset
        self.space = DataSpace(geometry.data_bytes)
        self.pending: dict[bytes, Publication] = {}
        """By key, oldest publication first."""
        self.limbo: list[Publication] = []
        self.pending_bytes = 0
        self.gone_outside: list[Publication] = []
        """Those whose file nobody needs any more; the driver removes or keeps it, and empties the list."""
        self._keys = KeyIndex()
        self._grow = grow
        self._receiver_lives = receiver_lives
        self._instance_lives = instance_lives
        self._fence = full_fence()
        self._order = order_fence()
        self._number = 0
        self._head = 0
        self._taken = 0
        index = geometry.index
        self._first = geometry.slots
        self._chunks: list[tuple[memoryview, memoryview, layout.Index, int]] = [(view, self.words, index, 0)]
        self._free_slots = list(range(geometry.slots - 1, -1, -1))
        self._slots = geometry.slots

    def format(self, instance: int) -> None:
        """Write the header of a fresh (all zero) ring; it is open from here on."""
        words, geometry = self.words, self.geometry
        words[layout.W_MAGIC] = layout.MAGIC
        words[layout.W_FORMAT] = layout.FORMAT
        words[layout.W_SLOTS] = geometry.slots
        words[layout.W_DATA_BYTES] = geometry.data_bytes
        words[layout.W_INSTANCE] = instance
        words[layout.W_HEADER_CHECK] = geometry.header_check
        words[layout.W_STATE] = layout.STATE_OPEN

    @property
    def usable(self) -> bool:
        """Whether nobody has set this ring aside."""
        return self.words[layout.W_STATE] == layout.STATE_OPEN

    @property
    def full_index(self) -> bool:
        """Whether every slot that can exist is taken."""
        return not self._free_slots and self._slots + layout.CHUNK_SLOTS > layout.MAX_SLOTS

    def set_state(self, state: int) -> None:
        """Tell receivers that this ring is closed or condemned."""
        self.words[layout.W_STATE] = state

    def reserve(self, key: bytes, nbytes: int) -> Publication | None:
        """A slot, and room for key and frame in the data area; None when the ring has no such room now."""
        block = self.space.allocate(
            nbytes if len(key) <= layout.INLINE_KEY_BYTES else nbytes + layout.key_span(len(key))
        )
        if block is None:
            return None
        if not self._free_slots:
            try:
                self._lengthen()
            except BaseException:
                self.space.give_back(block)
                raise
        return Publication(key, self._free_slots.pop(), nbytes, block, block.start)

    def reserve_outside(self, key: bytes, nbytes: int, segment: int, kind: int) -> Publication:
        """A slot for a frame in a file of its own."""
        if not self._free_slots:
            self._lengthen()
        return Publication(key, self._free_slots.pop(), nbytes, None, segment, kind)

    def abandon(self, publication: Publication) -> None:
        """Undo a reservation that was not committed."""
        if publication.block is not None:
            self.space.give_back(publication.block)
        self._free_slots.append(publication.slot)

    def commit(self, publication: Publication) -> None:
        """Make a written frame visible to receivers. Its key must not be pending."""
        key, slot = publication.key, publication.slot
        key_length, place = len(key), publication.place
        kind = publication.kind
        self._number = number = self._number + 1
        joined = number << 18 | slot
        publication.mark = mark = joined << 8 | joined % 251
        if slot < self._first:
            chunk, chunk_words, index, at = self.view, self.words, self._chunks[0][2], slot
        else:
            chunk, chunk_words, index, base = self._chunk(slot)
            at = slot - base
        fields = _pack(mark, self._head, place, publication.nbytes, kind, key_length)
        checked = fields + key
        start = index.bodies + at * layout.BODY_BYTES
        if key_length <= layout.INLINE_KEY_BYTES:
            body = _crc32(checked).to_bytes(4, "little") + checked
        else:
            body = _crc32(checked).to_bytes(4, "little") + fields
            if kind == layout.IN_RING:
                self.view[self.data_offset + place : self.data_offset + place + key_length] = key
        chunk[start : start + len(body)] = body
        if self._order is not None:
            self._order()
        chunk_words[index.marks + at] = mark
        if self._order is not None:
            self._order()
        self.words[layout.W_HEAD] = self._head = mark
        pending = self.pending
        pending[key] = publication
        self.pending_bytes += publication.nbytes + key_length
        if self._keys.active:
            self._keys.add(key)
        elif len(pending) > INDEX_FROM:
            self._keys.build(pending)

    def sweep_oldest(self) -> None:
        """Take note of finished publications, oldest first, up to the first one that is not finished."""
        pending = self.pending
        while pending:
            publication = next(iter(pending.values()))
            slot = publication.slot
            _, chunk_words, index, base = self._chunks[0] if slot < self._first else self._chunk(slot)
            if chunk_words[index.claims + slot - base] != layout.CONSUMED:
                return
            self._forget(publication)
            self._recycle(publication)

    def sweep(self) -> None:
        """Take note of everything receivers finished; costs a look at 64 words when they finished nothing."""
        if self.limbo:
            waiting, self.limbo = self.limbo, []
            for publication in waiting:
                self._release_or_wait(publication)
        taken = sum(self.words[layout.W_TAKEN : layout.W_TAKEN + layout.MAX_RECEIVERS].tolist())
        if taken == self._taken:
            return
        self._taken = taken
        finished: set[int] = set()
        for _, chunk_words, index, base in self._chunks:
            claims = np.asarray(chunk_words[index.claims : index.claims + index.slots])
            finished.update((np.flatnonzero(claims == np.uint64(layout.CONSUMED)) + base).tolist())
            del claims
        for publication in [p for p in self.pending.values() if p.slot in finished]:
            self._forget(publication)
            self._recycle(publication)

    def retire(self, publication: Publication) -> bool:
        """Withdraw a pending publication; True when it is certain that nobody got or will get it."""
        self._forget(publication)
        slot = publication.slot
        _, chunk_words, index, base = self._chunk(slot)
        if chunk_words[index.claims + slot - base] == layout.CONSUMED:
            self._recycle(publication)
            return False
        chunk_words[index.marks + slot - base] = 0
        self._fence()
        return self._release_or_wait(publication)

    def chunks_of(self, prefix: bytes) -> list[Publication]:
        """The pending publications whose key is ``prefix`` and then digits only."""
        return [self.pending[key] for key in self._keys.chunks(prefix, self.pending)]

    def close_views(self) -> None:
        """Let go of the memory, so that its mapping can be closed."""
        for chunk, chunk_words, _, _ in self._chunks[1:]:
            chunk_words.release()
            chunk.release()
        del self._chunks[:]
        self.words.release()
        self.view.release()

    def _chunk(self, slot: int) -> tuple[memoryview, memoryview, layout.Index, int]:
        first = self._first
        return self._chunks[0 if slot < first else 1 + (slot - first) // layout.CHUNK_SLOTS]

    def _lengthen(self) -> None:
        view = self._grow(len(self._chunks) - 1)
        base = self._slots
        self._chunks.append((view, view.cast("Q"), layout.Index(0, layout.CHUNK_SLOTS), base))
        self._slots += layout.CHUNK_SLOTS
        self._free_slots.extend(range(self._slots - 1, base - 1, -1))

    def _forget(self, publication: Publication) -> None:
        """It is pending no longer."""
        key = publication.key
        del self.pending[key]
        self.pending_bytes -= publication.nbytes + len(key)
        if self._keys.active:
            self._keys.discard(key)
        if publication.kind == layout.IN_SEGMENT:
            # Whoever still looks at it has it mapped.
            self.gone_outside.append(publication)

    def _recycle(self, publication: Publication) -> None:
        """Make slot and space reusable. The mark goes first: who reads claim, then mark, never sees a free claim
        under a standing mark."""
        slot = publication.slot
        _, chunk_words, index, base = self._chunks[0] if slot < self._first else self._chunk(slot)
        at = slot - base
        chunk_words[index.marks + at] = 0
        if self._order is not None:
            self._order()
        chunk_words[index.claims + at] = layout.UNCLAIMED
        if publication.block is not None:
            self.space.give_back(publication.block)
        elif publication.kind == layout.IN_SPARE:
            self.gone_outside.append(publication)
        self._free_slots.append(slot)

    def _release_or_wait(self, publication: Publication) -> bool:
        """Recycle a withdrawn publication unless a living receiver is at it; then look again at the next sweep."""
        _, chunk_words, index, base = self._chunk(publication.slot)
        busy = self.words[layout.W_BUSY : layout.W_BUSY + layout.MAX_RECEIVERS].tolist()
        if publication.mark in busy and any(
            mark == publication.mark and self._receiver_lives(entry) for entry, mark in enumerate(busy)
        ):
            self.limbo.append(publication)
            return False
        claim = chunk_words[index.claims + publication.slot - base]
        if claim not in (layout.UNCLAIMED, layout.CONSUMED) and self._instance_lives(claim):
            self.limbo.append(publication)
            return False
        self._recycle(publication)
        return bool(claim != layout.CONSUMED)
