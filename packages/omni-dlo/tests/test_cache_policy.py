"""The allocator's cache is kept only within both bounds."""

from __future__ import annotations

import pytest

from omni_dlo.cache_policy import may_keep_cache
from omni_dlo.devices import MemoryInfo


@pytest.mark.parametrize(
    ("free", "allocated", "reserved", "keep"),
    [(50, 20, 45, True), (50, 20, 46, False), (5, 60, 70, True), (4, 60, 70, False), (100, 0, 0, True)],
)
def test_bounds(free: int, allocated: int, reserved: int, keep: bool) -> None:
    assert may_keep_cache(MemoryInfo(100, free, allocated, reserved)) is keep


def test_without_figures_the_cache_goes() -> None:
    assert not may_keep_cache(None)
    assert not may_keep_cache(MemoryInfo(0, 0, 0, 0))
