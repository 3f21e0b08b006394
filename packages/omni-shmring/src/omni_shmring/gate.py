"""Whether a transport may be used: open, and in the process that opened it."""

from __future__ import annotations

import os

from omni_shmring import forks
from omni_shmring.errors import ClosedError, ForkedError


class Gate:
    """Refuses calls after close and after a fork."""

    __slots__ = ("_forks", "_whose", "closed")

    def __init__(self, whose: str) -> None:
        self._forks = forks.generation
        self._whose = whose
        self.closed = False

    @property
    def same_process(self) -> bool:
        """Whether this is still the process the transport was opened in."""
        return forks.generation == self._forks

    def pass_through(self) -> None:
        """Raise ForkedError in a child, ClosedError after close."""
        if forks.generation != self._forks:
            raise ForkedError(
                f"{self._whose} was opened before a fork; the child (pid {os.getpid()}) must open its own"
            )
        if self.closed:
            raise ClosedError(f"{self._whose} has been closed")
