"""Order of stores and loads between processes, in Python.

x86-64 keeps loads in order with loads and stores in order with stores (Intel SDM vol. 3A, 8.2.2), so publishing needs
nothing. Only "store mine, then look at yours" needs a full fence; a locked instruction is one, and taking a free
``threading.Lock`` executes one (``sem_trywait`` or a compare-and-swap, depending on the CPython release).

Elsewhere (aarch64) taking and releasing the lock twice is used wherever order matters: a release followed by an
acquire is ordered by the Arm memory model, and two critical sections cannot overlap one another.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable

STRONG_ORDER = platform.machine() in ("x86_64", "AMD64", "i686")
"""Whether the processor keeps plain stores in order, so that ``order`` may do nothing."""


def full_fence() -> Callable[[], None]:
    """A function after whose return every earlier store is visible before any later load happens."""
    lock = threading.Lock()
    acquire, release = lock.acquire, lock.release

    def once() -> None:
        acquire()
        release()

    def twice() -> None:
        acquire()
        release()
        acquire()
        release()

    return once if STRONG_ORDER else twice


def order_fence() -> Callable[[], None] | None:
    """A function that keeps stores before it before stores after it, loads likewise; None where the processor does."""
    return None if STRONG_ORDER else full_fence()
