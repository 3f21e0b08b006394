"""Sleeping on a word of shared memory (Linux futex, through libc's ``syscall``)."""

from __future__ import annotations

import ctypes
import math
import platform
import time

_NUMBERS = {
    "x86_64": 202,
    "aarch64": 98,
    "riscv64": 98,
    "loongarch64": 98,
    "ppc64le": 221,
}
"""The system call's number by machine (arch/*/include/uapi/asm/unistd.h)."""

_WAIT, _WAKE = 0, 1
_ALL = 0x7FFFFFFF
_POLL_S = 0.001


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (
    ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint,
)  # fmt: skip
_syscall.restype = ctypes.c_long
_number = _NUMBERS.get(platform.machine())


def wait(address: int, expected: int, timeout_s: float) -> bool:
    """Sleep until somebody wakes the word, or at most ``timeout_s``; at once when it no longer holds ``expected``.

    Whether somebody woke it. May return early for no reason. On a machine whose system call number is unknown it
    sleeps one millisecond.
    """
    if _number is None:
        time.sleep(min(timeout_s, _POLL_S))
        return False
    fraction, whole = math.modf(max(timeout_s, 0.0))
    limit = _Timespec(int(whole), int(fraction * 1e9))
    woken: int = _syscall(_number, address, _WAIT, expected, ctypes.addressof(limit), None, 0)
    return woken == 0


def wake_all(address: int) -> None:
    """Wake everybody who sleeps on the word."""
    if _number is not None:
        _syscall(_number, address, _WAKE, _ALL, None, None, 0)
