"""Frames outside the ring: one file each, written whole before anybody hears of it.

Written with ``pwritev``: the file system reserves each page as it is written and reports when there is none, so no
page is touched that may not exist, and none is zeroed first only to be overwritten.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Sequence

from omni_shmring.errors import NoSpaceError
from omni_shmring.mapping import room_bytes, unlink

_MAX_BUFFERS = 512


def write(directory: int, name: str, buffers: Sequence[memoryview], nbytes: int) -> None:
    """Create the file of a frame from the buffers that make it up.

    Raises:
        NoSpaceError: there is no room; nothing is left behind.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(name, flags, 0o600, dir_fd=directory)
        try:
            _write_all(fd, list(buffers))
        except BaseException:
            unlink(directory, name)
            raise
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
            raise
        # Asked now that the file is closed and gone: what it had taken is room again.
        raise NoSpaceError("a frame outside the ring", nbytes, room_bytes(directory)) from None


def _write_all(fd: int, rest: list[memoryview]) -> None:
    written = 0
    while rest:
        done = os.pwritev(fd, rest[:_MAX_BUFFERS], written)
        written += done
        while rest and done >= len(rest[0]):
            done -= len(rest.pop(0))
        if done:
            rest[0] = rest[0][done:]


class Segment:
    """A frame's file, mapped by a receiver."""

    __slots__ = ("_map", "view")

    def __init__(self, fd: int, nbytes: int) -> None:
        self._map = mmap.mmap(fd, nbytes)
        self.view = memoryview(self._map)

    def close(self) -> None:
        """Unmap, or leave that to whoever still looks at it."""
        self.view.release()
        try:
            self._map.close()
        except BufferError:
            return  # a leaf of a received payload, or of a lease, is a view of it


def open_segment(directory: int, name: str, nbytes: int) -> Segment | None:
    """Map a frame's file; None when it is gone or has not the size its index entry says."""
    try:
        fd = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size != nbytes or nbytes == 0:
            return None
        return Segment(fd, nbytes)
    finally:
        os.close(fd)


def read_start(directory: int, name: str, nbytes: int) -> bytes | None:
    """The first bytes of a frame's file; None when they are not to be had."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return None
    try:
        found = os.pread(fd, nbytes, 0)
    finally:
        os.close(fd)
    return found if len(found) == nbytes else None
