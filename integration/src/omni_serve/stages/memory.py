"""Giving freed memory back to the system: a stage that waits holds its weights and little else."""

from __future__ import annotations

import ctypes


def give_back() -> bool:
    """Return what the C heap keeps of freed memory; whether there was any. False where the C library cannot.

    glibc keeps freed memory for the next allocation. After loading weights, or after a long clause, that is tens of
    megabytes that nobody needs for as long as the stage waits (``malloc_trim(3)``). Takes up to tens of milliseconds,
    so it is for the moment when nothing is left to do. Callable from any thread.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))
