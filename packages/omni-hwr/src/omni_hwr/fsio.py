"""Operating system calls of the store, each with its fault turned into a typed error."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from omni_hwr.errors import SpaceError, StorageError

FILE_MODE = 0o400
DIR_MODE = 0o700
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def step(name: str, path: str) -> Iterator[None]:
    """Turn an ``OSError`` of the block into :class:`SpaceError` or :class:`StorageError` that names the step."""
    try:
        yield
    except (SpaceError, StorageError):
        raise
    except OSError as fault:
        if fault.errno in _FULL:
            raise SpaceError(
                f"{name} failed on {path}: {os.strerror(fault.errno)}",
                needed_bytes=None,
                available_bytes=None,
                errno=fault.errno,
            ) from fault
        raise StorageError(name, path, fault.errno) from fault


def open_dir(name: str, dir_fd: int | None = None) -> int:
    """Open a directory, never through a symlink. Raises the plain ``OSError``: callers tell the cases apart."""
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)


def open_regular(name: str, dir_fd: int) -> int:
    """Open a file for reading, never through a symlink and never hanging on a FIFO. Raises the plain ``OSError``."""
    return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)


def names_in(dir_fd: int, shown: str) -> list[str]:
    """Names in an open directory."""
    with step("list", shown):
        return os.listdir(dir_fd)


def sync(fd: int, path: str) -> None:
    """``fsync`` a file or a directory."""
    with step("fsync", path):
        os.fsync(fd)


def write_all(fd: int, data: bytes | memoryview, offset: int, path: str) -> None:
    """Write every byte at ``offset``; a short write goes on where it ended."""
    view = memoryview(data)
    done = 0
    with step("write", path):
        while done < len(view):
            done += os.pwrite(fd, view[done:], offset + done)


def create_file(name: str, data: bytes, dir_fd: int) -> None:
    """Create a read-only file with ``data`` and sync it; the name must be free."""
    with step("create", name):
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE, dir_fd=dir_fd)
    try:
        write_all(fd, data, 0, name)
        sync(fd, name)
    finally:
        os.close(fd)


def replace_file(name: str, data: bytes, dir_fd: int) -> None:
    """Put a file with ``data`` in the place of ``name``, so that a reader sees the old one or the new one whole."""
    temporary = f".{name}.{secrets.token_hex(6)}"
    try:
        create_file(temporary, data, dir_fd)
        with step("rename", name):
            os.rename(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except OSError:
        remove_file(temporary, dir_fd)
        raise


def remove_file(name: str, dir_fd: int) -> None:
    """Remove a file where it is there; a fault other than its absence is a :class:`StorageError`."""
    try:
        os.unlink(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return
    except OSError as fault:
        raise StorageError("unlink", name, fault.errno) from fault


def read_small(name: str, dir_fd: int, limit_bytes: int) -> bytes | None:
    """A small regular file's bytes; None where it is longer than ``limit_bytes``. Raises the plain ``OSError``."""
    fd = open_regular(name, dir_fd)
    try:
        size = os.fstat(fd).st_size
        if size > limit_bytes:
            return None
        parts: list[bytes] = []
        at = 0
        while part := os.pread(fd, min(size - at, 8 << 20) or 1, at):
            parts.append(part)
            at += len(part)
            if at > limit_bytes:
                return None
        return b"".join(parts)
    finally:
        os.close(fd)


def remove_tree(name: str, dir_fd: int) -> None:
    """Remove a file or a folder and all in it, following no symlink; its absence is fine."""
    try:
        mode = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):
            remove_file(name, dir_fd)
            return
        fd = open_dir(name, dir_fd)
    except FileNotFoundError:
        return
    except OSError as fault:
        raise StorageError("open", name, fault.errno) from fault
    try:
        for inner in names_in(fd, name):
            remove_tree(inner, fd)
    finally:
        os.close(fd)
    try:
        os.rmdir(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return
    except OSError as fault:
        raise StorageError("rmdir", name, fault.errno) from fault


def tree_bytes(name: str, dir_fd: int) -> int:
    """Bytes of a file, or of the files of a folder and its folders, without following symlinks; absence is zero."""
    try:
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            return found.st_size
        fd = open_dir(name, dir_fd)
    except FileNotFoundError:
        return 0
    except OSError as fault:
        raise StorageError("stat", name, fault.errno) from fault
    try:
        return sum(tree_bytes(inner, fd) for inner in names_in(fd, name))
    finally:
        os.close(fd)
