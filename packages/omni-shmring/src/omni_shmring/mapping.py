"""Shared memory as files: created with their space reserved, mapped, and let go of."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat

from omni_shmring.errors import NoSpaceError

_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class Mapping:
    """A file mapped for reading and writing, together with its address for copies from raw pointers."""

    __slots__ = ("_map", "address", "nbytes", "view")

    def __init__(self, fd: int, nbytes: int) -> None:
        self._map = mmap.mmap(fd, nbytes)
        self.nbytes = nbytes
        self.view = memoryview(self._map)
        anchor = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(anchor)
        del anchor

    def close(self) -> None:
        """Unmap, or leave that to the last lease that still looks at this memory."""
        self.view.release()
        try:
            self._map.close()
        except BufferError:
            return  # a lease holds a view; the pages go when it does


def room_bytes(directory: int) -> int:
    """Free bytes of the file system that a directory descriptor stands on."""
    found = os.fstatvfs(directory)
    return found.f_bavail * found.f_frsize


def create(directory: int, name: str, nbytes: int, what: str) -> Mapping:
    """Create and map a file with all of its pages reserved, so that touching them can never raise SIGBUS.

    Raises:
        NoSpaceError: the file system has no room; nothing is left behind.
    """
    fd = os.open(name, _OPEN | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
    try:
        os.posix_fallocate(fd, 0, nbytes)
        return Mapping(fd, nbytes)
    except OSError as error:
        os.unlink(name, dir_fd=directory)
        if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT):
            raise NoSpaceError(what, nbytes, room_bytes(directory)) from None
        raise
    finally:
        os.close(fd)


def attach(directory: int, name: str) -> Mapping | None:
    """Map an existing file whole; None when it is gone or is no regular file with something in it."""
    try:
        fd = os.open(name, _OPEN | os.O_NONBLOCK, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EISDIR):
            return None
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
            return None
        return Mapping(fd, found.st_size)
    finally:
        os.close(fd)


def unlink(directory: int, name: str) -> None:
    """Remove a file that may already be gone."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return
