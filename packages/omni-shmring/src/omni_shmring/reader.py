"""A receiver's half of a ring, over any writable memory. Pure: no file, no clock, no process.

Exactly one receiver takes a publication, without a lock and without compare-and-swap, by the rule of hazard pointers:

1. Write the publication's mark into one's own ``busy`` word; full fence.
2. If another living receiver's busy word holds the same mark, step back (write 0).
3. Read the claim word, then the mark. Claimed, or the mark is gone: step back.
4. Copy. Then write CONSUMED into the claim word, then 0 into the busy word.

Two receivers cannot both pass step 2: the fence makes at least one see the other. Who comes later sees CONSUMED, or
that the producer has withdrawn the mark. A receiver that dies in between leaves its mark in a busy word whose owner is
dead, and the next receiver ignores that. The producer withdraws a publication by clearing the mark, fence, and looking
at the same busy words, so it never reuses memory that somebody copies from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from omni_shmring import layout
from omni_shmring.errors import DamagedError
from omni_shmring.fences import full_fence, order_fence


class Claim:
    """A publication that this receiver alone holds until it finishes or steps back.

    ``body.place`` is the offset of its frame in the ring's memory, or the number of its segment.
    """

    __slots__ = ("at", "body", "claims", "mark")

    def __init__(self, mark: int, body: layout.Body, claims: memoryview, at: int) -> None:
        self.mark = mark
        self.body = body
        self.claims = claims
        self.at = at


class RingReader:
    """Finds and claims publications.

    Args:
        view: The ring's memory.
        name: The channel's name, for errors.
        entry: This receiver's entry in its stage's inbox; None to look only, without a claim ever.
        receivers: How many entries of the inbox have ever been used.
        chunk: Gives the memory of a further part of the index; None when it is not there.
        segment_key: Reads the first bytes of a segment (number, length), where a long key stands.
        receiver_lives: Whether the receiver at an entry lives.
        instance_lives: Whether an instance lives.

    Raises:
        DamagedError: the header is not that of a ring, or disagrees with the memory's size.
    """

    PRUNE_AT = 512

    def __init__(
        self,
        view: memoryview,
        name: str,
        *,
        entry: int | None,
        receivers: Callable[[], int],
        chunk: Callable[[int], memoryview | None],
        segment_key: Callable[[int, int], bytes | None],
        receiver_lives: Callable[[int], bool],
        instance_lives: Callable[[int], bool],
    ) -> None:
        self.view = view
        self.name = name
        self.words = words = view.cast("Q")
        self.geometry = self._check_header()
        self._first = self.geometry.slots
        self.instance = words[layout.W_INSTANCE]
        self.index: dict[bytes, tuple[int, layout.Body]] = {}
        self._entry = layout.W_BUSY + (entry or 0)
        self._taken = layout.W_TAKEN + (entry or 0)
        self._receivers = receivers
        self._chunk_view = chunk
        self._segment_key = segment_key
        self._receiver_lives = receiver_lives
        self._instance_lives = instance_lives
        self._fence = full_fence()
        self._order = order_fence()
        self._seen = 0
        self._prune_at = self.PRUNE_AT
        self._chunks: list[tuple[memoryview, memoryview, layout.Index, int]] = [
            (view, words, self.geometry.index, 0),
        ]
        if entry is not None:
            words[self._entry] = 0

    @property
    def open(self) -> bool:
        """Whether the producer still uses this ring."""
        return self.words[layout.W_STATE] == layout.STATE_OPEN

    @property
    def lingering(self) -> bool:
        """Whether the producer waits in close() for receivers."""
        return self.words[layout.W_LINGER] != 0

    def condemn(self) -> None:
        """Tell the producer to start a fresh ring."""
        self.words[layout.W_STATE] = layout.STATE_CONDEMNED

    def poll(self) -> bool:
        """Learn of new publications; True when there were any. One word is compared when there are none."""
        head = self.words[layout.W_HEAD]
        if head == self._seen:
            return False
        if self._order is not None:
            self._order()
        if not layout.mark_holds(head) or layout.mark_number(head) <= layout.mark_number(self._seen):
            raise DamagedError(self.name, f"its head word {head:#x} cannot follow {self._seen:#x}")
        seen = layout.mark_number(self._seen)
        found = self._read(head)
        if found is not None and found[0].previous == self._seen:
            # The usual case: one new publication.
            self.index[found[1]] = (head, found[0])
            self._seen = head
            if len(self.index) > self._prune_at:
                self._prune()
            return True
        new: list[tuple[bytes, tuple[int, layout.Body]]] = []
        walk = head
        while layout.mark_number(walk) > seen:
            if found is None:
                new = sorted(self._scan(seen), key=lambda item: item[1][0])
                break
            new.append((found[1], (walk, found[0])))
            walk = found[0].previous
            if layout.mark_number(walk) > seen:
                found = self._read(walk)
        else:
            new.reverse()
        self.index.update(new)
        self._seen = head
        if len(self.index) > self._prune_at:
            self._prune()
        return True

    def claim(self, key: bytes) -> Claim | None:
        """Take hold of the publication under ``key``; None when there is none to be had now."""
        found = self.index.get(key)
        return None if found is None else self.claim_mark(key, *found)

    def claim_mark(self, key: bytes, mark: int, body: layout.Body) -> Claim | None:
        """Take hold of one exact publication; None when it is gone or another receiver is at it."""
        words, me = self.words, self._entry
        slot = mark >> 8 & layout.MAX_SLOTS - 1
        chunk = self._chunks[0] if slot < self._first else self._chunk(slot)
        if chunk is None:
            return None
        _, chunk_words, index, base = chunk
        words[me] = mark
        self._fence()
        count = self._receivers()
        if count > 1:
            for entry in range(layout.W_BUSY, layout.W_BUSY + count):
                if words[entry] == mark and entry != me and self._receiver_lives(entry - layout.W_BUSY):
                    words[me] = 0
                    return None
        at = index.claims + slot - base
        previous = chunk_words[at]
        if self._order is not None:
            self._order()
        if previous == layout.CONSUMED or chunk_words[index.marks + slot - base] != mark:
            words[me] = 0
            self._forget(key, mark)
            return None
        if previous != layout.UNCLAIMED and self._instance_lives(previous):
            words[me] = 0
            return None
        return Claim(mark, body, chunk_words, at)

    def claim_exact(self, key: bytes, mark: int) -> Claim | None:
        """Take hold of the publication a descriptor names; None when it is gone, taken, or of another key."""
        if not layout.mark_holds(mark) or self._chunk(layout.mark_slot(mark)) is None:
            return None
        found = self._read(mark)
        return self.claim_mark(key, mark, found[0]) if found is not None and found[1] == key else None

    def finish(self, claim: Claim, key: bytes) -> None:
        """The frame has been copied: nobody else gets it, and its space goes back to the producer."""
        if self._order is not None:
            self._order()
        claim.claims[claim.at] = layout.CONSUMED
        if self._order is not None:
            self._order()
        words = self.words
        words[self._entry] = 0
        words[self._taken] += 1
        self._forget(key, claim.mark)

    def step_back(self, claim: Claim) -> None:
        """Leave the publication to whoever asks next."""
        self.words[self._entry] = 0

    def hold(self, claim: Claim, instance: int) -> None:
        """Turn a claim into a lease of ``instance``: it outlasts this call, not its holder."""
        claim.claims[claim.at] = instance
        if self._order is not None:
            self._order()
        self.words[self._entry] = 0

    def release(self, claim: Claim, key: bytes) -> None:
        """End a lease: the frame counts as taken."""
        claim.claims[claim.at] = layout.CONSUMED
        self.words[self._taken] += 1
        self._forget(key, claim.mark)

    def standing(self) -> list[tuple[bytes, int]]:
        """(key, frame bytes) of everything unclaimed, oldest first."""
        found = []
        for key, (mark, body) in sorted(self._scan(0), key=lambda item: item[1][0]):
            chunk = self._chunk(layout.mark_slot(mark))
            if chunk is not None and chunk[1][chunk[2].claims + layout.mark_slot(mark) - chunk[3]] != layout.CONSUMED:
                found.append((key, body.nbytes))
        return found

    def close_views(self) -> None:
        """Let go of the memory, so that its mapping can be closed; leases keep their own."""
        for view, chunk_words, _, _ in self._chunks[1:]:
            chunk_words.release()
            view.release()
        del self._chunks[:]
        self.index.clear()
        self.words.release()

    def _check_header(self) -> layout.Geometry:
        words, size = self.words, len(self.view)
        if words[layout.W_MAGIC] != layout.MAGIC or words[layout.W_FORMAT] != layout.FORMAT:
            raise DamagedError(self.name, "its header is not that of a ring of this version")
        geometry = layout.Geometry(words[layout.W_SLOTS], words[layout.W_DATA_BYTES])
        if geometry.header_check != words[layout.W_HEADER_CHECK] or geometry.file_bytes != size:
            raise DamagedError(self.name, f"its header disagrees with its size of {size:,} bytes")
        return geometry

    def _chunk(self, slot: int) -> tuple[memoryview, memoryview, layout.Index, int] | None:
        first = self.geometry.slots
        number = 0 if slot < first else 1 + (slot - first) // layout.CHUNK_SLOTS
        while len(self._chunks) <= number:
            known = len(self._chunks) - 1
            view = self._chunk_view(known)
            if view is None:
                return None
            base = first + known * layout.CHUNK_SLOTS
            self._chunks.append((view, view.cast("Q"), layout.Index(0, layout.CHUNK_SLOTS), base))
        return self._chunks[number]

    def _read(self, mark: int) -> tuple[layout.Body, bytes] | None:
        """Body and key of a publication; None when its slot no longer holds it."""
        slot = layout.mark_slot(mark)
        chunk = self._chunk(slot)
        if chunk is None:
            raise DamagedError(
                self.name, f"publication {layout.mark_number(mark)} names slot {slot}, which is not there"
            )
        view, chunk_words, index, base = chunk
        at = index.marks + slot - base
        if chunk_words[at] != mark:
            return None
        offset = index.bodies + (slot - base) * layout.BODY_BYTES
        written, body, check = layout.unpack_body(view, offset)
        key: bytes | None
        if body.key_bytes <= layout.INLINE_KEY_BYTES:
            start = offset + layout.BODY_BYTES - layout.INLINE_KEY_BYTES
            key = bytes(view[start : start + body.key_bytes])
        elif body.kind == layout.IN_RING:
            start = self.geometry.data_offset + body.place
            key = bytes(self.view[start : start + body.key_bytes])
        else:
            key = self._segment_key(body.place, body.key_bytes)
        sound = (
            key is not None
            and written == mark
            and check == layout.body_check(mark, body, key)
            and body.previous >> 26 < mark >> 26
        )
        if sound and key is not None:
            if body.kind == layout.IN_RING:
                end = body.place + layout.key_span(body.key_bytes) + body.nbytes
                if end > self.geometry.data_bytes:
                    raise DamagedError(self.name, f"a frame ends at {end:,} in a ring of {self.geometry.data_bytes:,}")
                body.place += self.geometry.data_offset + layout.key_span(body.key_bytes)
            return body, key
        if self._order is not None:
            self._order()
        if chunk_words[at] != mark:
            return None  # recycled while we read it
        raise DamagedError(self.name, f"the index entry of publication {layout.mark_number(mark)} fails its check")

    def _forget(self, key: bytes, mark: int) -> None:
        found = self.index.get(key)
        if found is not None and found[0] == mark:
            del self.index[key]

    def _scan(self, seen: int) -> Iterator[tuple[bytes, tuple[int, layout.Body]]]:
        """Every standing publication after number ``seen``, from the whole index."""
        number = 0
        while True:
            slot = 0 if number == 0 else self.geometry.slots + (number - 1) * layout.CHUNK_SLOTS
            chunk = self._chunk(slot)
            if chunk is None:
                return
            _, chunk_words, index, _ = chunk
            marks = np.asarray(chunk_words[index.marks : index.marks + index.slots])
            later = marks[marks >= np.uint64(seen + 1 << 26)].tolist()
            del marks
            for mark in later:
                if not layout.mark_holds(mark):
                    raise DamagedError(self.name, f"the mark {mark:#x} in its index fails its check")
                found = self._read(mark)
                if found is not None:
                    yield found[1], (mark, found[0])
            number += 1

    def _prune(self) -> None:
        """Forget keys whose publication is gone, so that what nobody asks for does not pile up here."""
        for key, (mark, _) in list(self.index.items()):
            chunk = self._chunk(layout.mark_slot(mark))
            if chunk is None or chunk[1][chunk[2].marks + layout.mark_slot(mark) - chunk[3]] != mark:
                del self.index[key]
        self._prune_at = max(self.PRUNE_AT, 2 * len(self.index))
