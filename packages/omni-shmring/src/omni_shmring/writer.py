"""The producer's half of a ring, over any writable memory. Pure: no file, no clock, no process.

Order of a publication: reserve a slot and a block (private), write the frame, write the body, then the mark, then the
head word. A producer that dies before the mark has published nothing; one that dies between mark and head word has
published a frame that a receiver finds when it looks at the whole index. Both are dead all the same: what a dead
producer left is never delivered.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from omni_shmring import layout
from omni_shmring.fences import full_fence, order_fence
from omni_shmring.space import Block, DataSpace


class Publication:
    """One message between its put and the producer's learning what became of it."""

    __slots__ = ("block", "key", "kind", "mark", "nbytes", "number", "place", "slot")

    def __init__(self, key: bytes, slot: int, nbytes: int, block: Block | None) -> None:
        self.key = key
        self.slot = slot
        self.nbytes = nbytes
        self.block = block
        self.kind = layout.IN_RING if block is not None else layout.IN_SEGMENT
        self.place = 0 if block is None else block.start
        """Offset in the data area, or the number of its segment."""
        self.number = 0
        self.mark = 0


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
        self.pending: dict[int, Publication] = {}
        self.limbo: list[Publication] = []
        self.pending_bytes = 0
        self._grow = grow
        self._receiver_lives = receiver_lives
        self._instance_lives = instance_lives
        self._fence = full_fence()
        self._order = order_fence()
        self._number = 0
        self._taken = 0
        index = geometry.index
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

    def set_state(self, state: int) -> None:
        """Tell receivers that this ring is closed or condemned."""
        self.words[layout.W_STATE] = state

    def reserve(self, key: bytes, nbytes: int, in_ring: bool) -> Publication | None:
        """A slot, and room for key and frame in the data area; None when the ring has no such room now."""
        block = None
        if in_ring:
            block = self.space.allocate(layout.key_span(len(key)) + nbytes)
            if block is None:
                return None
        if not self._free_slots:
            try:
                self._lengthen()
            except BaseException:
                if block is not None:
                    self.space.give_back(block)
                raise
        return Publication(key, self._free_slots.pop(), nbytes, block)

    def frame_offset(self, publication: Publication) -> int:
        """Where in the ring's memory a reserved frame is to be written."""
        assert publication.block is not None
        return self.data_offset + publication.block.start + layout.key_span(len(publication.key))

    def abandon(self, publication: Publication) -> None:
        """Undo a reservation that was not committed."""
        if publication.block is not None:
            self.space.give_back(publication.block)
        self._free_slots.append(publication.slot)

    def commit(self, publication: Publication) -> int:
        """Make a written frame visible to receivers; return its mark."""
        words, key, slot = self.words, publication.key, publication.slot
        self._number = number = self._number + 1
        publication.number = number
        publication.mark = mark = layout.pack_mark(number, slot)
        place = publication.place
        if publication.block is not None and len(key) > layout.INLINE_KEY_BYTES:
            at = self.data_offset + place
            self.view[at : at + len(key)] = key
        body = layout.pack_body(mark, words[layout.W_HEAD], place, publication.nbytes, publication.kind, key)
        chunk, chunk_words, index, base = self._chunk(slot)
        at = index.bodies + (slot - base) * layout.BODY_BYTES
        chunk[at : at + len(body)] = body
        if self._order is not None:
            self._order()
        chunk_words[index.marks + slot - base] = mark
        if self._order is not None:
            self._order()
        words[layout.W_HEAD] = mark
        self.pending[number] = publication
        self.pending_bytes += publication.nbytes + len(key)
        return mark

    def sweep_oldest(self, gone: Callable[[Publication], None]) -> None:
        """Take note of finished publications, oldest first, up to the first one that is not finished."""
        pending = self.pending
        while pending:
            publication = next(iter(pending.values()))
            _, chunk_words, index, base = self._chunk(publication.slot)
            if chunk_words[index.claims + publication.slot - base] != layout.CONSUMED:
                return
            self._finish(publication)
            gone(publication)

    def sweep(self, gone: Callable[[Publication], None]) -> None:
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
            self._finish(publication)
            gone(publication)

    def retire(self, publication: Publication) -> bool:
        """Withdraw a publication; True when it is certain that nobody got or will get it."""
        if self.pending.pop(publication.number, None) is None:
            return False
        self.pending_bytes -= publication.nbytes + len(publication.key)
        _, chunk_words, index, base = self._chunk(publication.slot)
        if chunk_words[index.claims + publication.slot - base] == layout.CONSUMED:
            self._recycle(publication)
            return False
        chunk_words[index.marks + publication.slot - base] = 0
        self._fence()
        return self._release_or_wait(publication)

    def close_views(self) -> None:
        """Let go of the memory, so that its mapping can be closed."""
        for chunk, chunk_words, _, _ in self._chunks[1:]:
            chunk_words.release()
            chunk.release()
        del self._chunks[:]
        self.words.release()
        self.view.release()

    def _chunk(self, slot: int) -> tuple[memoryview, memoryview, layout.Index, int]:
        first = self.geometry.slots
        return self._chunks[0 if slot < first else 1 + (slot - first) // layout.CHUNK_SLOTS]

    def _lengthen(self) -> None:
        view = self._grow(len(self._chunks) - 1)
        base = self._slots
        self._chunks.append((view, view.cast("Q"), layout.Index(0, layout.CHUNK_SLOTS), base))
        self._slots += layout.CHUNK_SLOTS
        self._free_slots.extend(range(self._slots - 1, base - 1, -1))

    @property
    def full_index(self) -> bool:
        """Whether every slot that can exist is taken."""
        return not self._free_slots and self._slots + layout.CHUNK_SLOTS > layout.MAX_SLOTS

    def _finish(self, publication: Publication) -> None:
        del self.pending[publication.number]
        self.pending_bytes -= publication.nbytes + len(publication.key)
        self._recycle(publication)

    def _recycle(self, publication: Publication) -> None:
        """Make slot and space reusable. The mark goes first: who reads claim, then mark, never sees a free claim
        under a standing mark."""
        _, chunk_words, index, base = self._chunk(publication.slot)
        at = publication.slot - base
        chunk_words[index.marks + at] = 0
        if self._order is not None:
            self._order()
        chunk_words[index.claims + at] = layout.UNCLAIMED
        if publication.block is not None:
            self.space.give_back(publication.block)
        self._free_slots.append(publication.slot)

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
        return claim != layout.CONSUMED
