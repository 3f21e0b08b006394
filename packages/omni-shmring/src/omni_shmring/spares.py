"""Frames outside the ring whose files are used again.

Fresh pages of a shared-memory file system cost many times what copying into them does. So while they are few, the
files of large frames are kept mapped by both sides and written anew, each by the rule of the ring's data area: only
once a receiver has finished with the frame, or the producer has withdrawn it and nobody is at it.
"""

from __future__ import annotations

from omni_shmring import names
from omni_shmring.errors import NoSpaceError
from omni_shmring.layout import PAGE
from omni_shmring.mapping import Mapping, attach, create, unlink

SPARE_BYTES = 32 << 20
"""Most that one ring keeps in such files, in use and free together; frames past it get a file for once."""


class Spares:
    """The producer's files of one ring."""

    def __init__(self, directory: int, ring: names.RingName) -> None:
        self._directory = directory
        self._ring = ring
        self._mappings: dict[int, Mapping] = {}
        self._free: dict[int, list[int]] = {}
        self._nbytes = 0

    def take(self, nbytes: int, fresh_number: int) -> tuple[int, Mapping] | None:
        """(number, memory) of a file for a frame, a new one under ``fresh_number``; None where there is no room."""
        size = max(PAGE, 1 << (nbytes - 1).bit_length())
        size = size * 3 // 4 if nbytes <= size * 3 // 4 and size > PAGE else size
        free = self._free.get(size)
        if free:
            number = free.pop()
            return number, self._mappings[number]
        if self._nbytes + size > SPARE_BYTES:
            self.drop_free()
            if self._nbytes + size > SPARE_BYTES:
                return None
        try:
            mapping = create(self._directory, self._ring.segment(fresh_number), size, "a frame outside the ring")
        except NoSpaceError:
            return None  # the caller writes exactly what it needs, or says what that is
        self._mappings[fresh_number] = mapping
        self._nbytes += size
        return fresh_number, mapping

    def give_back(self, number: int) -> None:
        """Nobody needs the frame in this file any more."""
        self._free.setdefault(self._mappings[number].nbytes, []).append(number)

    def drop_free(self) -> bool:
        """Remove the files that are not in use; whether there were any."""
        found = [number for numbers in self._free.values() for number in numbers]
        self._free.clear()
        for number in found:
            mapping = self._mappings.pop(number)
            self._nbytes -= mapping.nbytes
            mapping.close()
            unlink(self._directory, self._ring.segment(number))
        return bool(found)

    def remove(self) -> None:
        """Remove all files."""
        for number in self._mappings:
            unlink(self._directory, self._ring.segment(number))
        self.let_go()

    def let_go(self) -> None:
        """Unmap all files and remove none."""
        for mapping in self._mappings.values():
            mapping.close()
        self._mappings.clear()
        self._free.clear()


class SpareViews:
    """A receiver's maps of one ring's files, kept while they come again."""

    def __init__(self, directory: int, ring: names.RingName) -> None:
        self._directory = directory
        self._ring = ring
        self._mappings: dict[int, Mapping] = {}
        self._nbytes = 0

    def look_up(self, number: int, nbytes: int) -> Mapping | None:
        """The file's memory; None when it is gone or shorter than ``nbytes``."""
        mapping = self._mappings.get(number)
        if mapping is None:
            mapping = attach(self._directory, self._ring.segment(number))
            if mapping is None:
                return None
            self._mappings[number] = mapping
            self._nbytes += mapping.nbytes
            # The oldest go first: their files have mostly been removed by now.
            while self._nbytes > SPARE_BYTES and len(self._mappings) > 1:
                oldest = self._mappings.pop(next(iter(self._mappings)))
                self._nbytes -= oldest.nbytes
                oldest.close()
        return mapping if mapping.nbytes >= nbytes else None

    def let_go(self) -> None:
        """Unmap; leases keep what they look at."""
        for mapping in self._mappings.values():
            mapping.close()
        self._mappings.clear()
