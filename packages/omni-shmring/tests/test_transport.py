"""The facade: what an engine calls, within one process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

import numpy as np
import pytest

from omni_shmring import (
    BacklogError,
    ClosedError,
    DecodeError,
    DescriptorError,
    ForkedError,
    InvalidArgumentError,
    Transport,
)

Open = Callable[..., Transport]


def test_a_message_arrives_once_as_it_was_sent(open_transport: Open) -> None:
    tx, rx = open_transport("thinker"), open_transport("talker")
    assert rx.get("thinker", "req-1:0") is None
    tx.put("talker", "req-1:0", {"codes": np.arange(28), "finished": False})
    got = rx.get("thinker", "req-1:0")
    assert got is not None
    assert got.payload["finished"] is False
    assert got.payload["codes"].tolist() == list(range(28))
    assert got.nbytes > 28 * 8
    assert rx.get("thinker", "req-1:0") is None


def test_put_copies_before_it_returns_and_the_receiver_owns_what_it_gets(open_transport: Open) -> None:
    tx, rx = open_transport("a"), open_transport("b")
    for size in (16, 5_000, 300_000):
        array = np.full(size, 7.0)
        tx.put("b", "x", array)
        array[:] = 0
        first = rx.get("a", "x")
        assert first is not None
        tx.put("b", "y", np.full(size, 9.0))
        first.payload[0] = 1
        second = rx.get("a", "y")
        assert second is not None
        assert (first.payload[1:] == 7).all()
        assert (second.payload == 9).all()


@pytest.mark.parametrize("payload", [{}, 0, False, "", None, [], b"", (), 0.0])
def test_empty_and_false_values_arrive_as_themselves(open_transport: Open, payload: object) -> None:
    tx, rx = open_transport("a"), open_transport("b")
    tx.put("b", "k", payload)
    got = rx.get("a", "k")
    assert got is not None
    assert type(got.payload) is type(payload)
    assert got.payload == payload


@pytest.mark.parametrize("ring_bytes", [0, 4096, 4 << 20])
def test_putting_a_key_again_retires_the_unclaimed_one(open_transport: Open, ring_bytes: int) -> None:
    tx, rx = open_transport("a", ring_bytes=ring_bytes), open_transport("b")
    small, large = b"s", bytes(2 << 20)
    for earlier, later in ((small, large), (large, small), (small, b"t"), (large, bytes(3 << 20))):
        tx.put("b", "k", earlier)
        tx.put("b", "k", later)
        got = rx.get("a", "k")
        assert got is not None
        assert got.payload == later
        assert rx.get("a", "k") is None
    stats = tx.stats()
    assert (stats.retired, stats.pending, stats.pending_bytes) == (4, 0, 0)


def test_a_descriptor_names_one_publication(open_transport: Open) -> None:
    tx, rx = open_transport("a", ring_bytes=4096), open_transport("b")
    old = tx.put("b", "k", 1)
    new = tx.put("b", "k", 2)
    assert rx.get("a", "k", old) is None
    got = rx.get("a", "k", new.to_bytes())
    assert got is not None
    assert got.payload == 2
    for number in range(500):  # the ring wraps, and slots are used again
        tx.put("b", "k", bytes(700))
        assert rx.get("a", "k", old) is None
        assert rx.get("a", "k", new) is None
        assert rx.get("a", "k") is not None, number


def test_a_descriptor_of_another_edge_or_key_is_refused(open_transport: Open) -> None:
    tx, rx, other = open_transport("a"), open_transport("b"), open_transport("c")
    descriptor = tx.put("b", "k", 1)
    with pytest.raises(DescriptorError):
        rx.get("a", "other", descriptor)
    with pytest.raises(DescriptorError):
        rx.get("c", "k", descriptor)
    with pytest.raises(DescriptorError):
        other.get("a", "k", descriptor)
    assert rx.get("a", "k", descriptor) is not None


def test_cancel_retires_exactly_that_key(open_transport: Open) -> None:
    tx, rx = open_transport("a"), open_transport("b")
    for key in ("req-1", "req-10", "req-1:0"):
        tx.put("b", key, key)
    assert tx.cancel("b", "req-1")
    assert not tx.cancel("b", "req-1")
    assert not tx.cancel("nobody", "req-1")
    assert rx.get("a", "req-1") is None
    assert rx.get("a", "req-10") is not None
    assert rx.get("a", "req-1:0") is not None


def test_cancel_prefix_takes_the_chunks_of_one_request(open_transport: Open) -> None:
    tx, rx = open_transport("a", ring_bytes=4096), open_transport("b")
    keep = ("req-1:", "req-1:x", "req-10:0", "req-1:0:0", "req-2:0", "req-1:0x", "req-1:²")
    for number in range(30):
        tx.put("b", f"req-1:{number}", bytes(200 * number))  # ring and segments
    for key in keep:
        tx.put("b", key, key)
    assert tx.cancel_prefix("b", "req-1:") == 30
    assert tx.cancel_prefix("b", "req-1:") == 0
    assert all(rx.get("a", f"req-1:{number}") is None for number in range(30))
    assert all(rx.get("a", key) is not None for key in keep)
    assert tx.stats().pending_bytes == 0


def test_a_prefix_that_ends_with_digits(open_transport: Open) -> None:
    tx = open_transport("a")
    for key in ("1", "12", "123", "2", "21"):
        tx.put("b", key, key)
    assert tx.cancel_prefix("b", "12") == 1
    assert tx.cancel_prefix("b", "1") == 1
    assert tx.cancel_prefix("b", "") == 3


def test_max_pending_bytes_bounds_a_producer_over_all_edges(open_transport: Open) -> None:
    tx, rx = open_transport("a", ring_bytes=4096, max_pending_bytes=100_000), open_transport("b")
    tx.put("b", "0", bytes(40_000))
    tx.put("c", "0", bytes(40_000))
    with pytest.raises(BacklogError) as caught:
        tx.put("b", "1", bytes(40_000))
    assert caught.value.edge == "a -> b"
    assert caught.value.limit_bytes == 100_000
    assert 80_000 < caught.value.pending_bytes < 81_000
    tx.put("b", "0", bytes(50_000))  # replaces what it retires
    got = rx.get("a", "0")
    assert got is not None
    assert len(got.payload) == 50_000
    tx.put("b", "1", bytes(40_000))
    assert tx.stats().refusals == 1


def test_what_is_put_faster_than_it_is_taken_arrives_in_any_order_asked(open_transport: Open) -> None:
    tx, rx = open_transport("a", ring_bytes=4096), open_transport("b")
    for number in range(3000):
        tx.put("b", f"m:{number}", number)
    stats = tx.stats()
    assert stats.pending == 3000
    assert stats.segment_puts > 0
    assert stats.ring_puts > 0
    for number in reversed(range(3000)):
        got = rx.get("a", f"m:{number}")
        assert got is not None
        assert got.payload == number
    assert tx.stats().pending == 0


def test_names_are_any_text_or_integer(open_transport: Open) -> None:
    name = "../ stage\n\0\N{SNOWMAN}" * 50
    tx, rx = open_transport(name), open_transport(7)
    tx.put(7, "k", 1)
    assert rx.get(name, "k") is not None
    tx.put("7", "k", 2)  # an integer is its digits
    assert rx.get(name, "k") is not None


@pytest.mark.parametrize("name", ["", None, 1.5, True, b"x", "\ud800"])
def test_a_bad_stage_name_is_refused(open_transport: Open, name: object) -> None:
    with pytest.raises(InvalidArgumentError):
        open_transport(name)
    tx = open_transport("good")
    with pytest.raises(InvalidArgumentError):
        tx.put(name, "k", 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError):
        tx.get(name, "k")  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0, 88, 89, 65_535])
@pytest.mark.parametrize("ring_bytes", [0, 1 << 20])
def test_keys_up_to_their_limit(open_transport: Open, length: int, ring_bytes: int) -> None:
    tx, rx = open_transport("a", ring_bytes=ring_bytes), open_transport("b")
    key = "é" * (length // 2) + "x" * (length % 2)
    descriptor = tx.put("b", key, "value")
    assert rx.get("a", key[:-1] + "?") is None
    got = rx.get("a", key, descriptor)
    assert got is not None
    assert got.payload == "value"


@pytest.mark.parametrize("key", ["x" * 65_536, None, 5, b"k", "\udc00"])
def test_a_bad_key_is_refused(open_transport: Open, key: object) -> None:
    tx = open_transport("a")
    for call in (lambda: tx.put("b", key, 1), lambda: tx.get("b", key), lambda: tx.cancel("b", key)):  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError):
            call()


def test_wait_wakes_for_a_message_and_ends_at_its_timeout(open_transport: Open) -> None:
    tx, rx = open_transport("a"), open_transport("b")
    assert rx.wait("a", "k", timeout_s=0.05) is None
    waiting = threading.Event()
    found: list[object] = []

    def receive() -> None:
        waiting.set()
        found.append(rx.wait("a", "k"))

    thread = threading.Thread(target=receive)
    thread.start()
    waiting.wait()
    tx.put("b", "k", 5)
    thread.join()
    assert getattr(found[0], "payload", None) == 5
    with pytest.raises(InvalidArgumentError):
        rx.wait("a", "k", timeout_s=-1)


async def test_waiting_in_a_loop(open_transport: Open) -> None:
    tx, rx = open_transport("a"), open_transport("b")
    threads = threading.active_count()
    waits = [asyncio.ensure_future(rx.wait_async("a", f"k{n}")) for n in range(50)]
    await asyncio.sleep(0)
    for number in reversed(range(50)):
        tx.put("b", f"k{number}", number)
    values = [got.payload for got in await asyncio.gather(*waits) if got is not None]
    assert values == list(range(50))
    assert await rx.wait_async("a", "late", timeout_s=0.02) is None
    assert threading.active_count() == threads


async def test_a_cancelled_wait_loses_nothing(open_transport: Open) -> None:
    tx, rx = open_transport("a"), open_transport("b")
    for _ in range(200):
        task = asyncio.ensure_future(rx.wait_async("a", "k"))
        await asyncio.sleep(0)
        tx.put("b", "k", 1)
        task.cancel()
        try:
            got = await task
        except asyncio.CancelledError:
            got = rx.get("a", "k")
        assert got is not None


async def test_closing_ends_waits_with_an_error(open_transport: Open) -> None:
    rx = open_transport("b")
    task = asyncio.ensure_future(rx.wait_async("a", "k"))
    await asyncio.sleep(0.01)
    rx.close()
    with pytest.raises(ClosedError):
        await task


def test_a_lease_is_read_only_and_holds_its_space(open_transport: Open) -> None:
    tx, rx = open_transport("a", ring_bytes=4096), open_transport("b")
    tx.put("b", "k", {"x": np.arange(64)})
    lease = rx.lease("a", "k")
    assert lease is not None
    assert rx.get("a", "k") is None
    assert rx.lease("a", "k") is None
    with lease:
        array = lease.payload["x"]
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        assert array.tolist() == list(range(64))
        assert tx.stats().pending == 1
        del array
    with pytest.raises(ClosedError):
        _ = lease.payload
    lease.close()
    assert tx.stats().pending == 0
    assert rx.get("a", "k") is None


def test_ten_thousand_decode_errors_give_the_space_back(open_transport: Open) -> None:
    import dataclasses

    @dataclasses.dataclass
    class Unknown:
        x: int

    tx, rx = open_transport("a", ring_bytes=64 << 10, types=(Unknown,)), open_transport("b")
    for _ in range(10_000):
        tx.put("b", "k", {"deep": [Unknown(1)]})
        with pytest.raises(DecodeError, match=r"payload\['deep'\]\[0\].*Unknown"):
            rx.get("a", "k")
    tx.put("b", "k", "good")
    got = rx.get("a", "k")
    assert got is not None
    assert got.payload == "good"
    stats = tx.stats()
    assert (stats.pending, stats.segment_puts) == (0, 0)
    assert rx.stats().decode_errors == 10_000


def test_close_says_how_many_were_dropped(scope: str, caplog: pytest.LogCaptureFixture) -> None:
    tx = Transport("a", scope=scope)
    tx.put("b", "1", 1)
    tx.put("b", "2", bytes(2 << 20))
    with caplog.at_level("WARNING", logger="omni_shmring"):
        assert tx.close(linger_s=0) == 2
    assert "2 messages" in caplog.text
    assert tx.close() == 0
    with pytest.raises(ClosedError):
        tx.put("b", "1", 1)
    with pytest.raises(ClosedError):
        tx.get("b", "1")


def test_close_waits_for_a_receiver(scope: str, open_transport: Open) -> None:
    rx = open_transport("b")
    tx = Transport("a", scope=scope)
    tx.put("b", "1", 1)
    thread = threading.Thread(target=lambda: rx.wait("a", "1", timeout_s=10))
    thread.start()
    assert tx.close(linger_s=20) == 0
    thread.join()


def test_after_a_fork_the_child_is_refused_and_unlinks_nothing(scope: str, open_transport: Open) -> None:
    tx, rx = open_transport("a"), open_transport("b")
    tx.put("b", "before", 1)
    pid = os.fork()
    if pid == 0:  # nothing in here may raise into pytest
        refused = 0
        for call in (lambda: tx.put("b", "k", 1), lambda: rx.get("a", "before"), tx.stats):
            try:
                call()
            except ForkedError:
                refused += 1
        tx.close()
        rx.close()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert rx.get("a", "before") is not None
    tx.put("b", "after", 2)
    assert rx.get("a", "after") is not None


def test_the_last_one_out_leaves_nothing(scope: str) -> None:
    first, second = Transport("a", scope=scope), Transport("b", scope=scope)
    first.put("b", "k", bytes(2 << 20))
    path = second._member._scope.path
    first.close(linger_s=0)
    assert os.path.isdir(path)
    second.close()
    assert not os.path.exists(path)
