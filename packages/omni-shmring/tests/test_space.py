"""The data area's account against the plainest model of it."""

from __future__ import annotations

import pytest

from omni_shmring.space import Block, DataSpace

hypothesis = pytest.importorskip("hypothesis", reason="waits for hypothesis: pip install hypothesis")
st = hypothesis.strategies


@hypothesis.settings(max_examples=300, derandomize=True, deadline=None)
@hypothesis.given(st.lists(st.integers(-6, 1100), max_size=80))
def test_blocks_never_overlap_and_all_space_comes_back(steps: list[int]) -> None:
    """Positive: allocate so many bytes. Otherwise: free the block at that position from the end."""
    space, live = DataSpace(4096), list[Block]()
    for step in steps:
        if step > 0:
            block = space.allocate(step)
            if block is None:
                assert live, "an empty space has room for anything that fits"
            else:
                assert block.start % 64 == 0
                assert step <= block.end - block.start < step + 64
                assert 0 <= block.start < block.end <= 4096
                assert all(block.end <= other.start or other.end <= block.start for other in live)
                live.append(block)
        elif live:
            space.give_back(live.pop(step % len(live)))
        assert space.used == sum(block.end - block.start for block in live)
    for block in live:
        space.give_back(block)
    assert len(space) == 0
    whole = space.allocate(4096)
    assert whole is not None
    assert whole.start == 0


def test_an_edge_that_keeps_up_stays_at_the_start() -> None:
    space = DataSpace(4096)
    for _ in range(100):
        block = space.allocate(1000)
        assert block is not None
        assert block.start == 0
        space.give_back(block)


def test_what_is_too_large_is_refused() -> None:
    assert DataSpace(4096).allocate(4097) is None
    assert DataSpace(0).allocate(0) is None
