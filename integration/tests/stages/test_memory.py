from __future__ import annotations

import ctypes
import pathlib

from omni_serve.stages.memory import give_back

_BLOCK = 4096
_COUNT = 20_000


def resident_bytes() -> int:
    line = next(x for x in pathlib.Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_what_was_freed_between_what_is_still_held_goes_back_to_the_system() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    # Small enough for the heap, and the last one pins its top: free() alone gives nothing back.
    blocks = [libc.malloc(_BLOCK) for _ in range(_COUNT)]
    last = libc.malloc(_BLOCK)
    for block in blocks:
        ctypes.memset(block, 1, _BLOCK)
    for block in blocks:
        libc.free(block)
    before = resident_bytes()
    given = give_back()
    after = resident_bytes()
    libc.free(last)
    if hasattr(libc, "malloc_trim"):
        assert given
        assert before - after > _COUNT * _BLOCK // 2
    else:
        assert not given
