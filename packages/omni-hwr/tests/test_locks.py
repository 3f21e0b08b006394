"""Locks between open descriptions: exclusive, bounded, named, and without litter."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_hwr.errors import BusyError
from omni_hwr.locks import BuildLock, directory_lock, holder_of, poll, remove_free_lock, try_lock


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_a_build_lock_is_exclusive_and_leaves_no_file(folder: int, tmp_path: Path) -> None:
    one, two = BuildLock(folder, "key"), BuildLock(folder, "key")
    assert one.try_acquire()
    assert not two.try_acquire()
    assert str(os.getpid()) in two.holder()
    one.release()
    one.release()
    assert list(tmp_path.iterdir()) == []
    assert two.holder() == "another process"
    assert two.try_acquire()
    two.release()


def test_a_lock_on_a_file_that_was_removed_meanwhile_does_not_count(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interleaving: a waiter opens the file, the holder removes it and lets go, the waiter gets the lock."""
    first, waiter, third = BuildLock(folder, "key"), BuildLock(folder, "key"), BuildLock(folder, "key")
    assert first.try_acquire()
    original = os.open

    def open_then_lose(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        fd = original(name, flags, mode, dir_fd=dir_fd)
        monkeypatch.setattr(os, "open", original)
        first.release()
        assert third.try_acquire()
        return fd

    monkeypatch.setattr(os, "open", open_then_lose)
    assert not waiter.try_acquire()
    third.release()
    assert waiter.try_acquire()
    waiter.release()
    assert list(tmp_path.iterdir()) == []


def test_only_a_free_lock_file_is_removed(folder: int, tmp_path: Path) -> None:
    lock = BuildLock(folder, "key")
    assert lock.try_acquire()
    assert not remove_free_lock(folder, "key")
    lock.release()
    (tmp_path / "dead").write_bytes(b"")
    assert remove_free_lock(folder, "dead")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_lock_is_bounded_and_names_its_holder(folder: int) -> None:
    with directory_lock(folder, "the folder", 1):
        with pytest.raises(BusyError, match=f"the folder, held by process {os.getpid()}"):
            with directory_lock(folder, "the folder", 0.01):
                pass
    with directory_lock(folder, "the folder", 0):
        pass


def test_a_waiter_gets_the_lock_when_it_is_let_go(folder: int) -> None:
    entered, order = threading.Event(), []

    def wait() -> None:
        entered.set()
        with directory_lock(folder, "the folder", 60):
            order.append("waiter")

    waiter = threading.Thread(target=wait)
    with directory_lock(folder, "the folder", 1):
        waiter.start()
        assert entered.wait(60)
        order.append("holder")
    waiter.join()
    assert order == ["holder", "waiter"]


def test_shared_locks_go_together(tmp_path: Path) -> None:
    fds = [os.open(tmp_path, os.O_RDONLY) for _ in range(3)]
    assert try_lock(fds[0], shared=True)
    assert try_lock(fds[1], shared=True)
    assert not try_lock(fds[2], shared=False)
    assert holder_of(os.fstat(fds[0])).startswith(f"process {os.getpid()}")
    for fd in fds:
        os.close(fd)


def test_poll_tries_at_least_once_and_until_it_succeeds() -> None:
    calls = []
    assert poll(lambda: calls.append(1) is None and len(calls) == 3, 60)
    assert not poll(lambda: calls.append(1) is not None, 0)
    assert len(calls) == 4


def test_a_lock_inherited_by_a_forked_child_ends_with_its_release(folder: int) -> None:
    lock, other = BuildLock(folder, "key"), BuildLock(folder, "key")
    assert lock.try_acquire()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    lock.release()
    assert other.try_acquire()
    other.release()
    os.close(write)
    os.waitpid(pid, 0)
