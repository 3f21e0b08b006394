"""Shards cover a block once, whatever divides or not."""

from __future__ import annotations

import pytest

from omni_dlo.errors import PlanError
from omni_dlo.shards import cut

hypothesis = pytest.importorskip("hypothesis", reason="needs hypothesis: pip install hypothesis")
st = hypothesis.strategies


@hypothesis.settings(derandomize=True, max_examples=200, deadline=None)
@hypothesis.given(nbytes=st.integers(0, 5000), ranks=st.integers(1, 9), chunk=st.integers(9, 3000))
def test_every_byte_has_one_owner(nbytes: int, ranks: int, chunk: int) -> None:
    plan = cut(nbytes, ranks, chunk)
    block = list(range(nbytes))
    gathered: list[int | None] = [None] * plan.buffer_bytes
    for piece in plan.chunks:
        for rank in range(ranks):
            first, last = piece.mine(rank)
            at = piece.start + rank * piece.part
            gathered[at : at + last - first] = block[first:last]
    assert gathered[:nbytes] == block
    assert plan.shard_bytes == -(-nbytes // ranks)
    assert plan.buffer_bytes < nbytes + ranks


def test_a_chunk_smaller_than_the_group_is_refused() -> None:
    with pytest.raises(PlanError):
        cut(100, 8, 7)
