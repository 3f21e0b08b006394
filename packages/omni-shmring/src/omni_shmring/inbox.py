"""A stage's inbox: one small shared page through which it learns of new rings and is woken.

It exists once a stage and scope, whoever needs it first. Its words may be written by several processes at a time, so
none of them is ever incremented: a word that must change gets a value that nobody wrote before.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
from collections.abc import Callable, Iterator

from omni_shmring import futex, layout, names
from omni_shmring.errors import ScopeError, TooManyReceiversError
from omni_shmring.fences import full_fence
from omni_shmring.mapping import Mapping, attach, create, unlink

_W_MAGIC, _W_RINGS, _W_COUNT = 0, 1, 2
_W_ALARM, _W_BELL = 8, 16
_W_ENTRIES = 64
_W_PIPES = _W_ENTRIES + layout.MAX_RECEIVERS
_MAGIC = 0x31786F62_6E69736F
_BYTES = layout.PAGE


def _fresh_values() -> Iterator[int]:
    """Values that change from one to the next in their low 32 bits, and that no other process is likely to write."""
    return map((0xFFFFFFFFFFFFFFFF).__and__, itertools.count(secrets.randbits(63), 0x9E3779B97F4A7C15))


class Inbox:
    """The page of one stage, mapped by its receivers and by everybody who sends to it."""

    def __init__(self, directory: int, stage: str, instance: int) -> None:
        """Map the page, creating it when nobody has.

        Raises:
            NoSpaceError: there is no room for one page.
            ScopeError: a file of that name exists and is something else.
        """
        self._directory = directory
        name = names.inbox_file(stage)
        mapping = attach(directory, name)
        while mapping is None:
            scratch = names.scratch_file(instance, f"inbox.{secrets.token_hex(4)}")
            fresh = create(directory, scratch, _BYTES, f"the inbox of a stage ({name})")
            words = fresh.view.cast("Q")
            words[_W_MAGIC] = _MAGIC
            words.release()
            try:
                os.link(scratch, name, src_dir_fd=directory, dst_dir_fd=directory)
                mapping = fresh
            except FileExistsError:
                fresh.close()
                mapping = attach(directory, name)
            finally:
                unlink(directory, scratch)
        if mapping.nbytes != _BYTES:
            raise ScopeError(name, f"has {mapping.nbytes:,} bytes and is no inbox of this version")
        self._mapping: Mapping = mapping
        self.words = mapping.view.cast("Q")
        self._fence = full_fence()
        self._fresh = _fresh_values()
        self.receiver_count = self.words[_W_COUNT : _W_COUNT + 1]
        """One word: how many entries have ever been in use (bounds what others must look at)."""
        self.rings_word = self.words[_W_RINGS : _W_RINGS + 1]
        """One word that changes whenever a ring for this stage is created or closed."""
        self._bell_address = mapping.address + 8 * _W_BELL
        self._pipes: dict[int, int] = {}

    # -- the receiving side

    def take_entry(self, instance: int, lives: Callable[[int], bool]) -> tuple[int, bool]:
        """An entry for a new receiver, and whether a dead one had it. With the scope's lock held.

        Raises:
            TooManyReceiversError: all entries belong to living receivers.
        """
        words = self.words
        for entry in range(layout.MAX_RECEIVERS):
            holder = words[_W_ENTRIES + entry]
            if holder == 0 or not lives(holder):
                words[_W_PIPES + entry] = 0
                words[_W_ENTRIES + entry] = instance
                words[_W_COUNT] = max(words[_W_COUNT], entry + 1)
                self._fence()
                return entry, holder != 0
        raise TooManyReceiversError(f"{layout.MAX_RECEIVERS} living receivers already compete for this stage")

    def leave_entry(self, entry: int) -> None:
        """Give an entry back."""
        self.words[_W_PIPES + entry] = 0
        self.words[_W_ENTRIES + entry] = 0

    def holder(self, entry: int) -> int:
        """The instance at an entry, 0 for none."""
        found: int = self.words[_W_ENTRIES + entry]
        return found

    def arm(self) -> int:
        """Ask to be woken by the next publication. Look once more after this, then :meth:`sleep` on the result."""
        ticket = self.words[_W_BELL] & 0xFFFFFFFF
        self.words[_W_ALARM] = 1
        self._fence()
        return ticket

    def sleep(self, ticket: int, timeout_s: float) -> bool:
        """Sleep until the bell rings after :meth:`arm`, or at most ``timeout_s``; whether somebody woke us."""
        return futex.wait(self._bell_address, ticket, timeout_s)

    def use_pipe(self, entry: int, wanted: bool) -> None:
        """Say whether this receiver's FIFO is to be written to as well."""
        self.words[_W_PIPES + entry] = int(wanted)

    # -- the sending side

    def announce_rings(self) -> None:
        """Tell the stage that a ring came or went, and wake it."""
        self.words[_W_RINGS] = next(self._fresh)
        self.ring()

    def nudge(self) -> None:
        """Wake who sleeps in a thread before the frame is written: the two take about as long as each other.

        The alarm stays set: who looks too early and sleeps again is woken once more by :meth:`ring`.
        """
        if self.words[_W_ALARM]:
            futex.wake_all(self._bell_address)

    def ring(self) -> None:
        """Wake whoever sleeps. Without a sleeper this costs one fence and one look."""
        self._fence()
        if self.words[_W_ALARM]:
            self._wake()

    def wake_own(self) -> None:
        """Wake this stage's own sleepers (on close)."""
        self._wake()

    def _wake(self) -> None:
        words = self.words
        words[_W_ALARM] = 0
        words[_W_BELL] = next(self._fresh)
        futex.wake_all(self._bell_address)
        for entry in range(min(self.receiver_count[0], layout.MAX_RECEIVERS)):
            if words[_W_PIPES + entry]:
                self._write_pipe(words[_W_ENTRIES + entry])

    def _write_pipe(self, instance: int) -> None:
        fd = self._pipes.get(instance)
        try:
            if fd is None:
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
                fd = os.open(names.pipe_file(instance), flags, dir_fd=self._directory)
                self._pipes[instance] = fd
            os.write(fd, b"\0")
        except BlockingIOError:
            return  # it is full of wake-ups already
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENXIO, errno.EPIPE):
                raise
            # That receiver has gone: nobody to wake.
            if fd is not None:
                os.close(fd)
                del self._pipes[instance]

    def close(self) -> None:
        """Unmap; the page itself stays for the others."""
        for fd in self._pipes.values():
            os.close(fd)
        self._pipes.clear()
        self.receiver_count.release()
        self.rings_word.release()
        self.words.release()
        self._mapping.close()
