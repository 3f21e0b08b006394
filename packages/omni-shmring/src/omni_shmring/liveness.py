"""Who lives: a record lock on one byte of a file, held by the kernel for as long as its process exists.

A PID says too little: it is reused, and means something else in another PID namespace. A record lock ends with its
process however that dies, is not inherited by fork, and shows across namespaces. One rule comes with it: when a
process closes any descriptor of a file, all its locks on that file go. So a process never opens a life file of its
own; its instances are known by their number, half of which says which process they belong to.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import os
import secrets
import struct
from typing import Self

from omni_shmring import forks, names
from omni_shmring.errors import NoSpaceError
from omni_shmring.mapping import room_bytes

_FLOCK = struct.Struct("hhqqi4x")
_ASK = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
_LOW_BITS = 24


@functools.lru_cache(maxsize=1)
def _token_after(forks_so_far: int) -> int:
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read()
    namespace = os.stat("/proc/self/ns/pid").st_ino
    start_ticks = fields.rpartition(b")")[2].split()[19]
    identity = b"%d %d %s %s" % (namespace, os.getpid(), fields.split(b" ", 1)[0], start_ticks)
    return int.from_bytes(hashlib.blake2b(identity, digest_size=5).digest())


def process_token() -> int:
    """40 bits that stand for this process: its PID namespace, PID and start time."""
    return _token_after(forks.generation)


def new_instance() -> int:
    """A fresh 64-bit instance number of this process, never 0 and never all ones."""
    return process_token() << _LOW_BITS | 1 + secrets.randbelow((1 << _LOW_BITS) - 2)


def is_own(instance: int) -> bool:
    """Whether an instance number belongs to this very process."""
    return instance >> _LOW_BITS == process_token()


class Life:
    """This process's own life file: locked before it gets its name, unlocked by the kernel when the process ends."""

    def __init__(self, directory: int, stage: str, instance: int, note: bytes) -> None:
        """Begin to live; ``note`` is for people. Raises NoSpaceError."""
        self.name = names.life_file(stage, instance)
        scratch = names.scratch_file(instance, "life")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(scratch, flags, 0o600, dir_fd=directory)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.write(self._fd, note)
            os.rename(scratch, self.name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            self.close()
            os.unlink(scratch, dir_fd=directory)
            if error.errno == errno.ENOSPC:
                raise NoSpaceError("a life file", len(note), room_bytes(directory)) from None
            raise

    def close(self) -> None:
        """Stop living."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Pulse:
    """Somebody's life, asked about at 0.5 to 1 µs a question once the file is open."""

    __slots__ = ("_fd",)

    def __init__(self, directory: int, stage: str | None, instance: int) -> None:
        """Look an instance up; ``stage`` is its digest, or None to look through the directory for it."""
        self._fd: int | None = None
        if is_own(instance):
            self._fd = -2
            if stage is not None and not _exists(directory, names.life_file(stage, instance)):
                self._fd = None
            return
        name = names.life_file(stage, instance) if stage is not None else _find(directory, instance)
        if name is not None:
            try:
                self._fd = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=directory)
            except OSError:
                self._fd = None  # gone, or not a file a process of ours would keep: it does not live

    def beats(self) -> bool:
        """Whether the instance lives now."""
        fd = self._fd
        if fd is None:
            return False
        if fd == -2:
            return True
        held: int = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, _ASK))[0]
        return held != fcntl.F_UNLCK

    def close(self) -> None:
        """Stop asking."""
        if self._fd is not None and self._fd >= 0:
            os.close(self._fd)
        self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _find(directory: int, instance: int) -> str | None:
    suffix = f".{instance:016x}"
    for name in os.listdir(directory):
        if name.startswith("life.") and name.endswith(suffix):
            return name
    return None
