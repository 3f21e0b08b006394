"""The producer's own account of its data area. Pure, private to the producer, never read from shared memory.

Frames are handed out in a circle and may be given back in any order. When the last one comes back the next starts at
offset 0 again, so that an edge whose receiver keeps up stays within the same few pages, and in cache.
"""

from __future__ import annotations

from collections import deque

import msgspec

from omni_shmring.layout import ALIGN


class Block(msgspec.Struct):
    """One handed-out piece of the data area: ``[start, end)``."""

    start: int
    end: int
    free: bool = False


class DataSpace:
    """Hands out aligned pieces of ``capacity`` bytes in ring order."""

    __slots__ = ("_blocks", "_next", "capacity", "used")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._next = 0
        self._blocks: deque[Block] = deque()

    def allocate(self, nbytes: int) -> Block | None:
        """A block of at least ``nbytes``, or None when no contiguous piece of that size is free."""
        size = (nbytes + ALIGN - 1) & -ALIGN or ALIGN
        blocks = self._blocks
        if not blocks:
            start = 0
            if size > self.capacity:
                return None
        else:
            tail, start = blocks[0].start, self._next
            if start > tail:
                if start + size > self.capacity:
                    start = 0
                    if size > tail:
                        return None
            elif start + size > tail:
                return None
        self._next = end = start + size
        block = Block(start, end)
        blocks.append(block)
        self.used += size
        return block

    def give_back(self, block: Block) -> None:
        """Free a block; its bytes become available once every older one is free too."""
        block.free = True
        self.used -= block.end - block.start
        blocks = self._blocks
        while blocks and blocks[0].free:
            blocks.popleft()
        # The youngest may go at once as well: a retired latest frame makes room for its successor.
        while blocks and blocks[-1].free:
            self._next = blocks.pop().start

    def __len__(self) -> int:
        return len(self._blocks)
