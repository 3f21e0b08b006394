"""One instance's membership of a scope: from its life file to its last file's removal."""

from __future__ import annotations

import contextlib
import os
import time

import msgspec

from omni_shmring import layout, names
from omni_shmring.errors import ScopeError
from omni_shmring.inbox import Inbox
from omni_shmring.liveness import Life, Pulse, new_instance
from omni_shmring.scope import ScopeDirectory, reap_others


class Member:
    """Joins a scope as one stage: reaps what the dead left, then lives in it until closed."""

    def __init__(self, root: str, scope: str, stage: str) -> None:
        """Join. Raises ScopeError, NoSpaceError, TooManyReceiversError."""
        self.scope = scope
        self.stage = stage
        self.stage_digest = names.digest(stage)
        self.instance = new_instance()
        note = msgspec.json.encode({"stage": stage, "scope": scope, "pid": os.getpid(), "opened": time.time()})
        while True:
            self._scope = ScopeDirectory(root, scope)
            try:
                with self._scope.locked():
                    if not self._scope.still_there():
                        continue
                    self._join(note)
                break
            finally:
                if not hasattr(self, "inbox"):
                    self._scope.close()
        self.directory = self._scope.fd
        reap_others(root, self._scope.path)

    def _join(self, note: bytes) -> None:
        scope = self._scope
        if any(not lives for lives in scope.instances().values()):
            for name in scope.leftovers():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=scope.fd)
        try:
            self._life = Life(scope.fd, self.stage_digest, self.instance, note)
        except BaseException:
            scope.reap()  # with nobody in it, the directory goes as well
            raise
        inbox = None
        try:
            inbox = Inbox(scope.fd, self.stage_digest, self.instance)
            self.directory = scope.fd
            self.entry, taken_over = inbox.take_entry(self.instance, self.lives)
            if taken_over:
                self._clear_busy()
        except BaseException:
            if inbox is not None:
                inbox.close()
            os.unlink(self._life.name, dir_fd=scope.fd)
            self._life.close()
            scope.reap()
            raise
        self.inbox = inbox

    def lives(self, instance: int) -> bool:
        """Whether an instance of this scope lives."""
        with Pulse(self.directory, None, instance) as pulse:
            return pulse.beats()

    def reap(self) -> int:
        """Remove what dead instances left here, unless another is at it; how many files."""
        with self._scope.locked(0) as held:
            return len(self._scope.reap()) if held else 0

    def sleep(self, ticket: int, timeout_s: float) -> bool:
        """Sleep on the stage's inbox; whether somebody woke us."""
        return self.inbox.sleep(ticket, timeout_s)

    def close(self) -> None:
        """Leave: the last one out removes the directory."""
        try:
            with self._scope.locked():
                self._leave()
                self._scope.reap()
        except ScopeError:
            # Somebody holds the lock and does not let go. What stays is reaped by whoever opens or runs here next.
            self._leave()
        finally:
            self.inbox.close()
            self._scope.close()

    def _leave(self) -> None:
        self.inbox.leave_entry(self.entry)
        self.inbox.wake_own()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._life.name, dir_fd=self.directory)
        self._life.close()

    def let_go(self) -> None:
        """In a forked child: close what is open, remove nothing."""
        self._life.close()
        self.inbox.close()
        self._scope.close()

    def _clear_busy(self) -> None:
        """A dead receiver had this entry: what it was copying must not seem to be copied by its successor."""
        for name in self._scope.listing():
            ring = names.parse_ring(name)
            if ring is not None and ring.dest == self.stage_digest:
                with contextlib.suppress(OSError):
                    fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.directory)
                    try:
                        os.pwrite(fd, bytes(8), 8 * (layout.W_BUSY + self.entry))
                    finally:
                        os.close(fd)
