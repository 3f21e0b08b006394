"""The path for processors that reorder stores, forced on this one."""

from __future__ import annotations

import subprocess
import sys


def test_messages_flow_with_fences_wherever_order_matters(scope: str) -> None:
    source = f"""
import platform
platform.machine = lambda: "aarch64"
from omni_shmring import Transport, TransportConfig, fences, futex
assert not fences.STRONG_ORDER
futex._number = None  # and without a futex, whose number is another one there
config = TransportConfig(ring_bytes=8192)
with Transport("a", scope={scope!r}, config=config) as tx, Transport("b", scope={scope!r}) as rx:
    for n in range(500):
        tx.put("b", f"k:{{n}}", (n, bytes(n * 7)))
        if n % 3 == 0:
            assert tx.cancel("b", f"k:{{n}}")
        elif n % 3 == 1:
            assert rx.wait("a", f"k:{{n}}", timeout_s=5).payload == (n, bytes(n * 7))
        else:
            lease = rx.lease("a", f"k:{{n}}")
            assert lease.payload[0] == n
            lease.close()
    assert tx.stats().pending == 0
"""
    subprocess.run([sys.executable, "-c", source], check=True)
