"""Waiting in an event loop: one FIFO a transport, no thread.

Producers write one byte to it when they publish and somebody here waits; the loop's selector sees it. Waits of one
loop share the FIFO's reader. A wait that is cancelled leaves nothing: the message is taken by the waiting coroutine
itself, in one step without an await after it, so either it has returned the message or the message is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from omni_shmring import names
from omni_shmring.inbox import Inbox
from omni_shmring.mapping import unlink

RECHECK_S = 0.1
"""Bound on what a lost wake-up can cost."""


class LoopWaiters:
    """Everybody who waits in event loops for messages to one transport.

    Args:
        directory: The scope's directory.
        instance: The transport's instance.
        inbox: Its stage's inbox.
        entry: Its entry there.
        may_be_there: Whether a message under (source, key) may be there.
    """

    def __init__(
        self, directory: int, instance: int, inbox: Inbox, entry: int, may_be_there: Callable[[str, bytes], bool]
    ) -> None:
        self._directory = directory
        self._name = names.pipe_file(instance)
        self._inbox = inbox
        self._entry = entry
        self._may_be_there = may_be_there
        self._fd = -1
        self._owner: asyncio.AbstractEventLoop | None = None
        self._waits: dict[asyncio.Future[None], tuple[str, bytes]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, source: str, key: bytes) -> asyncio.Future[None]:
        """Take part, before arming the inbox: the first wait opens the FIFO and puts it into its loop."""
        loop = asyncio.get_running_loop()
        if self._fd < 0:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self._name, 0o600, dir_fd=self._directory)
            flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._name, flags, dir_fd=self._directory)
        if self._owner is None or self._owner.is_closed():
            self._owner = loop
            loop.add_reader(self._fd, self._readable)
            self._timer = loop.call_later(RECHECK_S, self._recheck)
            self._inbox.use_pipe(self._entry, True)
        future: asyncio.Future[None] = loop.create_future()
        self._waits[future] = (source, key)
        return future

    async def changed(self, future: asyncio.Future[None], timeout_s: float | None) -> None:
        """Sleep until a message under the key may be there, the timeout has passed, or for no reason."""
        handle = None if timeout_s is None else future.get_loop().call_later(timeout_s, _resolve, future)
        try:
            await future
        finally:
            if handle is not None:
                handle.cancel()

    def forget(self, future: asyncio.Future[None]) -> None:
        """This wait sleeps no longer."""
        self._waits.pop(future, None)

    def leave(self) -> None:
        """The counterpart of :meth:`enter`: the last wait of the owning loop takes the FIFO out of it."""
        loop = asyncio.get_running_loop()
        if self._owner is not loop or any(future.get_loop() is loop for future in self._waits):
            return
        self._release(loop)
        if self._fd >= 0:
            self._inbox.use_pipe(self._entry, False)
        # Waits of other loops go on: the next one to wake takes the FIFO over.
        self._wake_all()

    def close(self) -> None:
        """Wake everybody; they find the transport closed. Removes the FIFO."""
        owner, fd = self._owner, self._fd
        self._wake_all()
        self._fd = -1
        if fd < 0:
            return
        unlink(self._directory, self._name)
        self._owner = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

        def finish() -> None:
            if owner is not None and not owner.is_closed():
                owner.remove_reader(fd)
            os.close(fd)

        if owner is None or not owner.is_running() or asyncio._get_running_loop() is owner:
            finish()
        else:
            # Another thread's loop: only there may its reader be taken out.
            owner.call_soon_threadsafe(finish)

    def _release(self, owner: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not owner.is_closed():
            owner.remove_reader(self._fd)
        self._owner = None

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 4096)
        self._inbox.arm()
        for future, (source, key) in list(self._waits.items()):
            if not future.done() and self._may_be_there(source, key):
                _wake(future)

    def _recheck(self) -> None:
        """Once in a while everybody looks again, in case a producer died between publishing and waking."""
        if self._owner is not None:
            self._timer = self._owner.call_later(RECHECK_S, self._recheck)
            self._wake_all()

    def _wake_all(self) -> None:
        for future in list(self._waits):
            _wake(future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _wake(future: asyncio.Future[None]) -> None:
    loop = future.get_loop()
    with contextlib.suppress(RuntimeError):  # that loop has been closed, and its waits with it
        loop.call_soon_threadsafe(_resolve, future)
