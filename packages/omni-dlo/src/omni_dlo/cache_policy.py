"""When cached device memory may be kept between components."""

from __future__ import annotations

from omni_dlo.devices.base import MemoryInfo

__all__ = ["MAX_CACHED_SHARE", "MIN_FREE_SHARE", "may_keep_cache"]

MAX_CACHED_SHARE = 0.25
"""Cached but unallocated memory may be at most this part of the device."""

MIN_FREE_SHARE = 0.05
"""At least this part of the device must be free."""


def may_keep_cache(memory: MemoryInfo | None) -> bool:
    """Whether the allocator may keep its cache; without figures it may not."""
    if memory is None or memory.total_bytes <= 0:
        return False
    cached = memory.reserved_bytes - memory.allocated_bytes
    return cached <= MAX_CACHED_SHARE * memory.total_bytes and memory.free_bytes >= MIN_FREE_SHARE * memory.total_bytes
