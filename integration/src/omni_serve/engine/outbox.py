"""A session's events on their way to its one reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from omni_serve.contract import SessionEvent, SessionFault


class EventOutbox:
    """Events in order, kept while the reader is away, bounded.

    Args:
        most: Events kept; in place of one more there is a fatal SessionFault, and then nothing.
    """

    def __init__(self, most: int) -> None:
        self._events: deque[SessionEvent] = deque()
        self._most = most
        self._news = asyncio.Event()
        self._closed = False

    def emit(self, event: SessionEvent) -> None:
        """Add an event; after close() or an overflow it is dropped."""
        if self._closed or len(self._events) > self._most:
            return
        if len(self._events) == self._most:
            message = f"the client left {self._most} events unread; read them as they come"
            event = SessionFault("slow_reader", message, fatal=True)
        self._events.append(event)
        self._news.set()

    def close(self) -> None:
        """No more events: the reader ends after what is there. Idempotent."""
        self._closed = True
        self._news.set()

    async def read(self) -> AsyncIterator[SessionEvent]:
        """Yield events until close(). A reader that comes back goes on where the last one stopped."""
        while True:
            while self._events:
                yield self._events.popleft()
            if self._closed:
                return
            self._news.clear()
            await self._news.wait()
