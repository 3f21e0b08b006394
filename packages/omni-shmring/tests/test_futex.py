"""Sleeping on a word of memory."""

from __future__ import annotations

import ctypes
import threading

import pytest

from omni_shmring import futex


@pytest.fixture
def word() -> ctypes.c_uint32:
    if futex._number is None:
        pytest.skip("waits for this machine's futex system call number")
    return ctypes.c_uint32(5)


def test_a_word_that_has_changed_is_not_slept_on(word: ctypes.c_uint32) -> None:
    assert futex.wait(ctypes.addressof(word), 4, 60) is False  # or the test's limit ends it


def test_time_passes(word: ctypes.c_uint32) -> None:
    assert futex.wait(ctypes.addressof(word), 5, 0.001) is False
    assert futex.wait(ctypes.addressof(word), 5, 0) is False
    assert futex.wait(ctypes.addressof(word), 5, -1) is False


def test_everybody_is_woken(word: ctypes.c_uint32) -> None:
    address, done = ctypes.addressof(word), []
    threads = [threading.Thread(target=lambda: done.append(futex.wait(address, 5, 60))) for _ in range(3)]
    for thread in threads:
        thread.start()
    word.value = 6  # whoever has not fallen asleep yet never will
    while any(thread.is_alive() for thread in threads):
        futex.wake_all(address)
    assert len(done) == 3
