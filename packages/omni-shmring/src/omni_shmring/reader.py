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

The functions that run for every message are written out flat: a call costs as much as the loads it would wrap.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from omni_shmring import layout
from omni_shmring.errors import DamagedError
from omni_shmring.fences import full_fence, order_fence

_crc32 = zlib.crc32
_unpack = layout.BODY.unpack_from
_OUTSIDE = (layout.IN_SEGMENT, layout.IN_SPARE)

Chunk = tuple[memoryview, memoryview, layout.Index, int]


class Claim(msgspec.Struct):
    """A publication that this receiver alone holds until it finishes or steps back."""

    key: bytes
    mark: int
    kind: int
    place: int
    """Offset of its frame in the ring's memory, or the number of its segment."""
    nbytes: int
    words: memoryview
    at: int
    """Where in ``words`` its claim word is."""


class RingReader:
    """Finds and claims publications.

    Args:
        view: The ring's memory.
        name: The channel's name, for errors.
        entry: This receiver's entry in its stage's inbox; None to look only, without a claim ever.
        receivers: One word: how many entries of the inbox have ever been used.
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
        receivers: memoryview,
        chunk: Callable[[int], memoryview | None],
        segment_key: Callable[[int, int], bytes | None],
        receiver_lives: Callable[[int], bool],
        instance_lives: Callable[[int], bool],
    ) -> None:
        self.view = view
        self.name = name
        self.words = words = view.cast("Q")
        self.geometry = self._check_header()
        self.instance = words[layout.W_INSTANCE]
        self.index: dict[bytes, layout.Entry] = {}
        """What has been published and not yet been taken from here, by key."""
        self._first = self.geometry.slots
        self._data_offset = self.geometry.data_offset
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
        self._chunks: list[Chunk] = [(view, words, self.geometry.index, 0)]
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

    def poll(self) -> None:
        """Learn of new publications. One word is compared when there are none."""
        head = self.words[layout.W_HEAD]
        seen = self._seen
        if head == seen:
            return
        if self._order is not None:
            self._order()
        if (head >> 8) % 251 != head & 0xFF or head >> 26 <= seen >> 26:
            raise DamagedError(self.name, f"its head word {head:#x} cannot follow {seen:#x}")
        found = self._read(head)
        if found is not None and found[1][2] == seen:
            self.index[found[0]] = found[1]  # the usual case: one new publication
        else:
            self._catch_up(seen >> 26, found)
        self._seen = head
        if len(self.index) > self._prune_at:
            self._prune()

    def claim(self, key: bytes) -> Claim | None:
        """Take hold of the publication under ``key``; None when there is none to be had now."""
        entry = self.index.get(key)
        if entry is None:
            return None
        _, mark, _, place, nbytes, kind, key_length = entry
        words, me = self.words, self._entry
        slot = mark >> 8 & layout.MAX_SLOTS - 1
        chunk = self._chunks[0] if slot < self._first else self._chunk(slot)
        if chunk is None:
            return None
        _, chunk_words, index, base = chunk
        words[me] = mark
        self._fence()
        count = self._receivers[0]
        if count > 1:
            for other in range(min(count, layout.MAX_RECEIVERS)):
                at = layout.W_BUSY + other
                if words[at] == mark and at != me and self._receiver_lives(other):
                    words[me] = 0
                    return None
        at = index.claims + slot - base
        previous = chunk_words[at]
        if self._order is not None:
            self._order()
        if previous == layout.CONSUMED or chunk_words[index.marks + slot - base] != mark:
            words[me] = 0
            del self.index[key]
            return None
        if previous != layout.UNCLAIMED and self._instance_lives(previous):
            words[me] = 0
            return None
        if kind == layout.IN_RING:
            place += self._data_offset
            if key_length > layout.INLINE_KEY_BYTES:
                place += layout.key_span(key_length)
        return Claim(key, mark, kind, place, nbytes, chunk_words, at)

    def claim_exact(self, key: bytes, mark: int) -> Claim | None:
        """Take hold of the publication a descriptor names; None when it is gone, taken, or of another key."""
        self.poll()
        found = self.index.get(key)
        return self.claim(key) if found is not None and found[1] == mark else None

    def finish(self, claim: Claim) -> None:
        """The frame has been copied: nobody else gets it, and its space goes back to the producer."""
        if self._order is not None:
            self._order()
        claim.words[claim.at] = layout.CONSUMED
        if self._order is not None:
            self._order()
        words = self.words
        words[self._entry] = 0
        words[self._taken] += 1
        found = self.index.get(claim.key)
        if found is not None and found[1] == claim.mark:
            del self.index[claim.key]

    def step_back(self) -> None:
        """Leave the claimed publication to whoever asks next."""
        self.words[self._entry] = 0

    def hold(self, claim: Claim, instance: int) -> None:
        """Turn a claim into a lease of ``instance``: it outlasts this call, not its holder. End it with finish."""
        claim.words[claim.at] = instance
        if self._order is not None:
            self._order()
        self.words[self._entry] = 0

    def standing(self) -> list[tuple[bytes, int]]:
        """(key, frame bytes) of everything unclaimed, oldest first."""
        found = []
        for key, entry in sorted(self._scan(0), key=lambda item: item[1][1]):
            slot = layout.mark_slot(entry[1])
            chunk = self._chunk(slot)
            if chunk is not None and chunk[1][chunk[2].claims + slot - chunk[3]] != layout.CONSUMED:
                found.append((key, entry[4]))
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
        if size < layout.HEADER_BYTES or words[0] != layout.MAGIC or words[layout.W_FORMAT] != layout.FORMAT:
            raise DamagedError(self.name, "its header is not that of a ring of this version")
        geometry = layout.Geometry(words[layout.W_SLOTS], words[layout.W_DATA_BYTES])
        if geometry.header_check != words[layout.W_HEADER_CHECK] or geometry.file_bytes != size:
            raise DamagedError(self.name, f"its header disagrees with its size of {size:,} bytes")
        return geometry

    def _chunk(self, slot: int) -> Chunk | None:
        first = self._first
        number = 0 if slot < first else 1 + (slot - first) // layout.CHUNK_SLOTS
        while len(self._chunks) <= number:
            known = len(self._chunks) - 1
            view = self._chunk_view(known)
            if view is None:
                return None
            base = first + known * layout.CHUNK_SLOTS
            self._chunks.append((view, view.cast("Q"), layout.Index(0, layout.CHUNK_SLOTS), base))
        return self._chunks[number]

    def _catch_up(self, seen: int, found: tuple[bytes, layout.Entry] | None) -> None:
        """Several are new: follow them back from the latest, or search the index where one is gone already."""
        new: list[tuple[bytes, layout.Entry]] = []
        while found is not None:
            new.append(found)
            before = found[1][2]
            if before >> 26 <= seen:
                new.reverse()
                break
            found = self._read(before)
        else:
            new = sorted(self._scan(seen), key=lambda item: item[1][1])
        self.index.update(new)

    def _read(self, mark: int) -> tuple[bytes, layout.Entry] | None:
        """Key and entry of a publication; None when its slot no longer holds it."""
        slot = mark >> 8 & layout.MAX_SLOTS - 1
        chunk = self._chunks[0] if slot < self._first else self._chunk(slot)
        if chunk is None:
            raise DamagedError(self.name, f"publication {mark >> 26} names slot {slot}, which is not there")
        view, chunk_words, index, base = chunk
        at = index.marks + slot - base
        if chunk_words[at] != mark:
            return None
        offset = index.bodies + (slot - base) * layout.BODY_BYTES
        entry: layout.Entry = _unpack(view, offset)
        check, written, previous, place, nbytes, kind, key_length = entry
        fields_at = offset + layout.CHECK_BYTES
        if key_length <= layout.INLINE_KEY_BYTES:
            raw = bytes(view[fields_at : offset + layout.FIELDS_BYTES + key_length])
            key = raw[layout.FIELDS_BYTES - layout.CHECK_BYTES :]
        else:
            if kind == layout.IN_RING:
                start = self._data_offset + place
                far: bytes | None = bytes(self.view[start : start + key_length])
            else:
                far = self._segment_key(place, key_length)
            key = far or b""
            raw = bytes(view[fields_at : offset + layout.FIELDS_BYTES]) + key
        if (
            written == mark
            and check == _crc32(raw)
            and previous >> 26 < mark >> 26
            and (place + nbytes <= self.geometry.data_bytes if kind == layout.IN_RING else kind in _OUTSIDE)
        ):
            return key, entry
        if self._order is not None:
            self._order()
        if chunk_words[at] != mark:
            return None  # recycled while we read it
        raise DamagedError(self.name, f"the index entry of publication {mark >> 26} fails its check")

    def _scan(self, seen: int) -> Iterator[tuple[bytes, layout.Entry]]:
        """Every standing publication after number ``seen``, from the whole index."""
        number = 0
        while True:
            slot = 0 if number == 0 else self._first + (number - 1) * layout.CHUNK_SLOTS
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
                    yield found
            number += 1

    def _prune(self) -> None:
        """Forget keys whose publication is gone, so that what nobody asks for does not pile up here."""
        for key, entry in list(self.index.items()):
            slot = layout.mark_slot(entry[1])
            chunk = self._chunk(slot)
            if chunk is None or chunk[1][chunk[2].marks + slot - chunk[3]] != entry[1]:
                del self.index[key]
        self._prune_at = max(self.PRUNE_AT, 2 * len(self.index))
