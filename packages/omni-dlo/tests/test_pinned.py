"""Pinned memory is counted as it is taken."""

from __future__ import annotations

import pytest

from omni_dlo.pinned import pinned_bytes_taken


@pytest.mark.parametrize(
    ("asked", "taken"), [(0, 0), (1, 1), (3, 4), (4096, 4096), (4097, 8192), (int(1.1 * 2**30), 2 << 30)]
)
def test_the_caching_allocator_rounds_to_powers_of_two(asked: int, taken: int) -> None:
    """pytorch/pytorch#95823: a 1.1 GiB shard takes 2 GiB."""
    assert pinned_bytes_taken(asked) == taken
    assert pinned_bytes_taken(asked, allocator="exact") == asked


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        pinned_bytes_taken(-1)
    with pytest.raises(ValueError, match="allocator"):
        pinned_bytes_taken(1, allocator="magic")
