"""Which block lies in which buffer, and what to fetch next. A pure state machine: no tensors, no devices.

The schedule learns the order in which blocks really run. It predicts a successor from the last two blocks, else from
the last one, else from the order the blocks were built in, so that a skipped, repeated, reversed or early-exited pass
costs at most a late copy.
"""

from __future__ import annotations

from typing import NamedTuple

from omni_dlo.errors import ScheduleError

__all__ = ["Fetch", "Schedule", "Visit"]


class Fetch(NamedTuple):
    """Copy ``block`` into ``slot``; whoever read that slot before must have finished on the device."""

    block: int
    slot: int


class Visit(NamedTuple):
    """What a block that starts finds.

    Attributes:
        slot: The buffer its parameters point into.
        fetch: The copy to make first, or None where the block is there or under way.
    """

    slot: int
    fetch: Fetch | None


class Schedule:
    """Residency of ``blocks`` streamed blocks in ``slots`` buffers.

    Call :meth:`enter` when a block starts and :meth:`leave` when it ends, in any order; call :meth:`prefetch` after
    either and make the copies it returns.

    Args:
        blocks: How many blocks are streamed, named 0 … blocks - 1 in the order they were built.
        slots: How many buffers rotate among them.
    """

    def __init__(self, blocks: int, slots: int) -> None:
        if blocks < 1 or slots < 1:
            raise ScheduleError(f"a schedule needs at least one block and one buffer, not {blocks} and {slots}")
        self.blocks = blocks
        self.slots = min(slots, blocks)
        self._slot_of: dict[int, int] = {}
        self._holds: list[int | None] = [None] * self.slots
        self._running: list[int] = []
        self._recent: list[int] = []
        self._after_one: dict[int, int] = {}
        self._after_two: dict[tuple[int, int], int] = {}
        self._last_use: list[int] = [-1] * self.slots
        self._clock = 0

    def slot_of(self, block: int) -> int | None:
        """The buffer that holds ``block`` or is being filled with it."""
        return self._slot_of.get(block)

    def running(self) -> tuple[int, ...]:
        """The blocks that have started and not ended, outermost first."""
        return tuple(self._running)

    def enter(self, block: int) -> Visit:
        """``block`` starts now.

        Raises:
            ScheduleError: Every buffer belongs to a block that still runs (blocks nested in blocks).
        """
        self._learn(block)
        slot = self._slot_of.get(block)
        fetch = None
        if slot is None:
            slot = self._victim(keep=())
            if slot is None:
                raise ScheduleError(
                    f"block {block} starts inside blocks {self._running} and all {self.slots} buffers are theirs; "
                    f"set buffers to at least {len(set(self._running)) + 1}"
                )
            fetch = self._assign(block, slot)
        self._running.append(block)
        self._clock += 1
        self._last_use[slot] = self._clock
        return Visit(slot, fetch)

    def leave(self, block: int) -> None:
        """``block`` has ended, normally or by raising."""
        for index in range(len(self._running) - 1, -1, -1):
            if self._running[index] == block:
                del self._running[index]
                return
        raise ScheduleError(f"block {block} ended but never started")

    def prefetch(self) -> list[Fetch]:
        """The copies to start now, soonest needed first."""
        if self.slots == 1 and self._running:
            return []
        held = self._slot_of
        running = self._running
        room = self.slots - (len(set(running)) if running else 0)
        wanted: list[int] = []
        missing = False
        for block in self.predict(self.slots):
            if room == 0:
                break
            if block not in running:
                wanted.append(block)
                missing = missing or block not in held
                room -= 1
        if not missing:
            return []
        fetches = []
        for block in wanted:
            if block in self._slot_of:
                continue
            slot = self._victim(keep=tuple(wanted))
            if slot is None:
                break
            fetches.append(self._assign(block, slot))
        return fetches

    def predict(self, count: int) -> list[int]:
        """Up to ``count`` different blocks expected next, soonest first."""
        two, one, blocks = self._after_two, self._after_one, self.blocks
        if not self._recent:
            before, last = -1, blocks - 1
        else:
            before, last = self._recent[0] if len(self._recent) == 2 else -1, self._recent[-1]
        found: list[int] = []
        for _ in range(2 * blocks):
            following = two.get((before, last))
            if following is None:
                following = one.get(last)
                if following is None:
                    following = (last + 1) % blocks
            before, last = last, following
            if following not in found:
                found.append(following)
                if len(found) == count:
                    break
        return found

    def forget(self, block: int) -> None:
        """The copy of ``block`` in a buffer is stale: fetch it anew before its next use. Not while it runs."""
        if block in self._running:
            return
        slot = self._slot_of.pop(block, None)
        if slot is not None:
            self._holds[slot] = None

    def reset(self) -> None:
        """Forget what the buffers hold and what order was learned; nothing may be running."""
        if self._running:
            raise ScheduleError(f"blocks {self._running} still run")
        self._slot_of.clear()
        self._holds = [None] * self.slots
        self._recent.clear()
        self._after_one.clear()
        self._after_two.clear()

    def _learn(self, block: int) -> None:
        if self._recent:
            self._after_one[self._recent[-1]] = block
        if len(self._recent) == 2:
            self._after_two[(self._recent[0], self._recent[1])] = block
        self._recent = [*self._recent[-1:], block]

    def _victim(self, keep: tuple[int, ...]) -> int | None:
        """The buffer to overwrite: an empty one, else the least recently used that nobody needs."""
        best: int | None = None
        for slot, held in enumerate(self._holds):
            if held is None:
                return slot
            if held in self._running or held in keep:
                continue
            if best is None or self._last_use[slot] < self._last_use[best]:
                best = slot
        return best

    def _assign(self, block: int, slot: int) -> Fetch:
        held = self._holds[slot]
        if held is not None:
            del self._slot_of[held]
        self._holds[slot] = block
        self._slot_of[block] = slot
        # A buffer being filled for later is the last to be taken for something else.
        self._clock += 1
        self._last_use[slot] = self._clock
        return Fetch(block, slot)
