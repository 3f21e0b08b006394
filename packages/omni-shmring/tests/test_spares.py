"""Files of large frames that are used again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_shmring import Transport, names, spares
from omni_shmring.spares import Spares, SpareViews

RING = names.RingName("0" * 16, "1" * 16, 5, 1)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_a_file_is_used_again_and_bounded_in_number(directory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spares, "SPARE_BYTES", 1 << 20)
    ours, views = Spares(directory, RING), SpareViews(directory, RING)
    first = ours.take(200_000, 1)
    assert first is not None
    number, mapping = first
    mapping.view[:5] = b"hello"
    seen = views.look_up(number, 200_000)
    assert seen is not None
    assert bytes(seen.view[:5]) == b"hello"
    ours.give_back(number)
    again = ours.take(199_000, 2)
    assert again is not None
    assert again[0] == number
    taken = [again]
    while (more := ours.take(200_000, len(taken) + 1)) is not None:
        taken.append(more)
    assert 3 <= len(taken) <= 5  # a bound, past which the caller writes a file for once
    ours.give_back(taken[1][0])
    assert ours.take(1000, 99) is not None  # room is made by removing what is only kept
    assert not os.path.exists(f"/proc/self/fd/{directory}/{RING.segment(taken[1][0])}")
    views.let_go()
    ours.remove()
    assert os.listdir(directory) == []


def test_a_file_that_is_gone_or_short_is_told(directory: int) -> None:
    ours, views = Spares(directory, RING), SpareViews(directory, RING)
    taken = ours.take(5000, 1)
    assert taken is not None
    assert views.look_up(1, 1 << 20) is None
    assert views.look_up(2, 10) is None
    views.let_go()
    ours.remove()


def test_large_messages_come_through_whole_while_files_are_used_again(scope: str) -> None:
    with Transport("a", scope=scope) as tx, Transport("b", scope=scope) as rx:
        kept = []
        for number in range(30):
            content = bytes([number]) * (1_100_000 + 70_000 * (number % 5))
            tx.put("b", f"k:{number}", content)
            if number % 3:
                got = rx.get("a", f"k:{number}")
                assert got is not None
                kept.append((number, got.payload))
        assert all(set(payload) == {number} for number, payload in kept)
        for number in range(0, 30, 3):
            got = rx.get("a", f"k:{number}")
            assert got is not None
            assert set(got.payload) == {number}
        assert tx.stats().segment_puts == 30
        files = [name for name in os.listdir(tx._member.directory) if name.startswith("frame.")]
        assert len(files) < 30
