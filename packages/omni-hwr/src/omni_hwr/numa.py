"""Which node's memory new pages come from, for the span of a block. Linux, by the raw system calls.

Page cache pages are allocated by the policy of the thread that faults them in, so the thread's policy is set while
pages are read and put back afterwards (set_mempolicy(2); ``mbind`` does nothing for file mappings on disks).
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_MPOL_DEFAULT = 0
_MPOL_PREFERRED = 1
_MAX_NODES = 1024
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}


@contextmanager
def memory_preferred(node: int | None, refusals: list[str]) -> Iterator[None]:
    """Prefer ``node`` for pages allocated in the block; a refusal is noted in ``refusals`` and changes nothing."""
    if node is None or not _set(_MPOL_PREFERRED, node, refusals):
        yield
        return
    try:
        yield
    finally:
        _set(_MPOL_DEFAULT, None, refusals)


def _set(mode: int, node: int | None, refusals: list[str]) -> bool:
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        refusals.append(f"numa_node: not known on {platform.machine()}")
        return False
    if node is not None and not 0 <= node < _MAX_NODES:
        refusals.append(f"numa_node: {node} is no node number")
        return False
    mask = (ctypes.c_ulong * (_MAX_NODES // (8 * ctypes.sizeof(ctypes.c_ulong))))()
    if node is not None:
        bits = 8 * ctypes.sizeof(ctypes.c_ulong)
        mask[node // bits] = 1 << (node % bits)
    libc = ctypes.CDLL(None, use_errno=True)
    pointer = ctypes.byref(mask) if node is not None else None
    size = ctypes.c_ulong(_MAX_NODES if node is not None else 0)
    if libc.syscall(ctypes.c_long(number), ctypes.c_int(mode), pointer, size) != 0:
        refusals.append(f"numa_node: {os.strerror(ctypes.get_errno())}")
        return False
    return True
