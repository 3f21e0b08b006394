"""Waiting in several event loops, across processes, and while the loop goes away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from omni_shmring import Transport


async def test_a_message_from_another_process_wakes_the_loop(scope: str, child: Callable[..., Any]) -> None:
    source = """
        import sys
        from omni_shmring import Transport
        with Transport("a", scope=sys.argv[1]) as tx:
            for n in range(20):
                sys.stdin.readline()
                tx.put("b", f"k:{n}", n)
    """
    with Transport("b", scope=scope) as rx:
        other = child(source, scope)
        for number in range(20):
            waiting = asyncio.ensure_future(rx.wait_async("a", f"k:{number}", timeout_s=60))
            await asyncio.sleep(0)
            other.say()
            got = await waiting
            assert got is not None
            assert got.payload == number
        assert other.finish() == 0


def test_two_loops_wait_on_one_transport(scope: str) -> None:
    results: list[object] = []

    def loop(key: str) -> None:
        async def wait() -> None:
            got = await rx.wait_async("a", key, timeout_s=60)
            results.append(got and got.payload)

        asyncio.run(wait())

    with Transport("a", scope=scope) as tx, Transport("b", scope=scope) as rx:
        threads = [threading.Thread(target=loop, args=(f"k{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        for number in range(3):
            tx.put("b", f"k{number}", number)
        for thread in threads:
            thread.join()
    assert sorted(map(str, results)) == ["0", "1", "2"]


def test_a_loop_after_another(scope: str) -> None:
    with Transport("a", scope=scope) as tx, Transport("b", scope=scope) as rx:
        for number in range(3):

            async def wait(key: str) -> object:
                task = asyncio.ensure_future(rx.wait_async("a", key))
                await asyncio.sleep(0)
                tx.put("b", key, key)
                got = await task
                return got and got.payload

            assert asyncio.run(wait(f"k{number}")) == f"k{number}"


async def test_a_successor_of_the_producer_is_found_by_a_wait_under_way(scope: str) -> None:
    with Transport("b", scope=scope) as rx:
        first = Transport("a", scope=scope)
        first.put("b", "x", 1)
        task = asyncio.ensure_future(rx.wait_async("a", "k", timeout_s=60))
        await asyncio.sleep(0)
        first.close(linger_s=0)
        with Transport("a", scope=scope) as second:
            second.put("b", "k", "from the second")
            got = await task
        assert got is not None
        assert got.payload == "from the second"


async def test_a_fan_in_of_several_producers(scope: str) -> None:
    with Transport("b", scope=scope) as rx:
        producers = [Transport("a", scope=scope) for _ in range(4)]
        for number, tx in enumerate(producers):
            tx.put("b", f"k{number}", number)
        found = await asyncio.gather(*[rx.wait_async("a", f"k{n}", timeout_s=60) for n in range(4)])
        assert [got and got.payload for got in found] == [0, 1, 2, 3]
        for tx in producers:
            tx.close()
