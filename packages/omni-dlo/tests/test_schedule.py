"""The schedule is never wrong, and learns to be early."""

from __future__ import annotations

import pytest

from omni_dlo.errors import ScheduleError
from omni_dlo.schedule import Schedule

hypothesis = pytest.importorskip("hypothesis", reason="needs hypothesis: pip install hypothesis")
st = hypothesis.strategies


class Device:
    """What each slot holds, by the copies the schedule asked for."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.holds: dict[int, int] = {}
        self.busy: list[int] = []
        self.copies = 0
        self.late = 0

    def fetch(self, block: int, slot: int) -> None:
        assert slot not in self.busy, "a buffer in use is overwritten"
        self.holds[slot] = block
        self.copies += 1

    def run(self, block: int, inside: tuple[int, ...] = ()) -> None:
        visit = self.schedule.enter(block)
        if visit.fetch is not None:
            self.late += 1
            self.fetch(visit.fetch.block, visit.fetch.slot)
        assert self.holds[visit.slot] == block, "a block runs on another block's weights"
        self.busy.append(visit.slot)
        self.prefetch()
        for other in inside:
            self.run(other)
        assert self.holds[visit.slot] == block
        self.busy.remove(visit.slot)
        self.schedule.leave(block)
        self.prefetch()

    def prefetch(self) -> None:
        for fetch in self.schedule.prefetch():
            self.fetch(fetch.block, fetch.slot)


@hypothesis.settings(derandomize=True, max_examples=300, deadline=None)
@hypothesis.given(data=st.data(), blocks=st.integers(1, 7), slots=st.integers(1, 4))
def test_any_sequence_finds_its_weights(data: st.DataObject, blocks: int, slots: int) -> None:
    device = Device(Schedule(blocks, slots))
    for block in data.draw(st.lists(st.integers(0, blocks - 1), max_size=40)):
        if data.draw(st.booleans()) and data.draw(st.booleans()):
            device.schedule.forget(data.draw(st.integers(0, blocks - 1)))
        device.run(block)
    assert device.schedule.running() == ()


@hypothesis.settings(derandomize=True, max_examples=100, deadline=None)
@hypothesis.given(
    blocks=st.integers(2, 8), slots=st.integers(2, 4), order=st.permutations(range(8)), steps=st.integers(3, 5)
)
def test_a_repeated_order_is_learned(blocks: int, slots: int, order: list[int], steps: int) -> None:
    device = Device(Schedule(blocks, slots))
    once = [block for block in order if block < blocks]
    for step in range(steps):
        late, copies = device.late, device.copies
        for block in once:
            device.run(block)
        if step >= 2:
            assert device.late == late, "a block was not prefetched"
            assert device.copies - copies == (blocks if blocks > device.schedule.slots else 0)


def test_nested_blocks_have_a_buffer_each_or_are_refused() -> None:
    Device(Schedule(4, 2)).run(0, (1, 1))
    with pytest.raises(ScheduleError, match="buffers"):
        Device(Schedule(4, 1)).run(0, (1,))


def test_leaving_what_never_started_is_refused() -> None:
    with pytest.raises(ScheduleError):
        Schedule(2, 1).leave(0)
    with pytest.raises(ScheduleError):
        Schedule(0, 1)
