"""Advisory locks between processes, by ``flock(2)`` on an open file or directory.

The kernel drops them when a process dies, whatever it dies of. Each acquisition opens its own description, so two
threads of one process exclude each other as two processes do. A lock is let go by closing; a child that was forked
meanwhile holds it until it closes too, except for :class:`BuildLock`, which unlocks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from omni_hwr import fsio
from omni_hwr.errors import BusyError, StorageError

_FIRST_POLL_S = 0.001
_LAST_POLL_S = 0.05


def try_lock(fd: int, *, shared: bool) -> bool:
    """Take the lock if that needs no waiting."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as fault:
        if fault.errno in (errno.EWOULDBLOCK, errno.EINTR):
            return False
        raise StorageError("flock", f"descriptor {fd}", fault.errno) from fault
    return True


def holder_of(status: os.stat_result) -> str:
    """Who holds a lock on the file of ``status``, in words. From proc_locks(5)."""
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return "another process"
    for line in lines:
        fields = line.split()
        if len(fields) < 8 or fields[1] != "FLOCK" or fields[5] != device:
            continue
        try:
            name = Path(f"/proc/{int(fields[4])}/comm").read_text().strip()
        except (OSError, ValueError):
            name = "unknown"
        return f"process {fields[4]} ({name})"
    return "another process"


def poll(attempt: Callable[[], bool], limit_s: float) -> bool:
    """Try until ``attempt`` succeeds or ``limit_s`` has passed; flock(2) has no bounded wait of its own."""
    pause = threading.Event()
    started = time.monotonic()
    interval_s = _FIRST_POLL_S
    while not attempt():
        left_s = limit_s - (time.monotonic() - started)
        if left_s <= 0:
            return False
        pause.wait(min(interval_s, left_s))
        interval_s = min(interval_s * 2, _LAST_POLL_S)
    return True


@contextmanager
def directory_lock(dir_fd: int, what: str, limit_s: float) -> Iterator[None]:
    """Hold the exclusive lock of a directory.

    Raises:
        BusyError: Somebody else held it for ``limit_s``.
    """
    with fsio.step("open", what):
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        if not poll(lambda: try_lock(fd, shared=False), limit_s):
            raise BusyError(what, holder_of(os.fstat(fd)), limit_s)
        yield
    finally:
        os.close(fd)


class BuildLock:
    """The exclusive lock of one key's builder: a file that exists while it is held or waited for.

    Removing a lock file races with whoever has just opened it, so a holder counts only while the name still leads to
    the file that it locked.
    """

    def __init__(self, dir_fd: int, name: str) -> None:
        self._dir_fd = dir_fd
        self._name = name
        self._fd: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        with fsio.step("open", self._name):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._name, flags, 0o600, dir_fd=self._dir_fd)
        taken = False
        try:
            if try_lock(fd, shared=False) and self._is_named(fd):
                self._fd = fd
                taken = True
        finally:
            if not taken:
                os.close(fd)
        return taken

    def _is_named(self, fd: int) -> bool:
        try:
            named = os.stat(self._name, dir_fd=self._dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        own = os.fstat(fd)
        return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)

    def holder(self) -> str:
        """Who holds the lock now, in words."""
        try:
            return holder_of(os.stat(self._name, dir_fd=self._dir_fd, follow_symlinks=False))
        except OSError:
            return "another process"

    def release(self) -> None:
        """Remove the file and unlock; harmless when the lock is not held."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            fsio.remove_file(self._name, self._dir_fd)
        finally:
            # Not by closing alone: a child forked during the build holds the same description.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def remove_free_lock(dir_fd: int, name: str) -> bool:
    """Remove the lock file of a builder that is gone; False where somebody holds it."""
    lock = BuildLock(dir_fd, name)
    if not lock.try_acquire():
        return False
    lock.release()
    return True
