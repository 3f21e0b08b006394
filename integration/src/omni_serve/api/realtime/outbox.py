"""Events on their way to a client: numbered, bounded, and kept for one that dropped and comes back."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any


class OutboxFullError(Exception):
    """The client reads slower than the session speaks, past the limit."""


class Outbox:
    """An ordered queue with one reader at a time.

    An event leaves the queue when it was handed to the socket. What a dying socket took with it is kept as well, the
    newest ``limit`` of it, so that a client that comes back says which event it saw last and gets the rest.
    """

    def __init__(self, limit: int) -> None:
        self._events: deque[dict[str, Any]] = deque()
        self._history: deque[dict[str, Any]] = deque(maxlen=limit)
        self._limit = limit
        self._wake = asyncio.Event()
        self._ended = False

    def __len__(self) -> int:
        return len(self._events)

    def put(self, events: list[dict[str, Any]]) -> None:
        """Queue events. Raises OutboxFullError when the client has left too many unread."""
        if self._ended or not events:
            return
        if len(self._events) + len(events) > self._limit:
            raise OutboxFullError(f"{len(self._events)} events are unread, and the limit is {self._limit}")
        self._events.extend(events)
        self._wake.set()

    def end(self) -> None:
        """No more events come; the reader finishes what is queued."""
        self._ended = True
        self._wake.set()

    async def peek(self) -> dict[str, Any] | None:
        """The next event, waiting for one; None at the end. It stays queued until :meth:`sent`."""
        while not self._events:
            if self._ended:
                return None
            self._wake.clear()
            await self._wake.wait()
        return self._events[0]

    def sent(self) -> None:
        """The event last peeked at reached the socket."""
        self._history.append(self._events.popleft())

    def rewind(self, last_event_id: str) -> bool:
        """Queue again what was sent after an event; False when that event is not known any more."""
        missed: list[dict[str, Any]] = []
        for event in reversed(self._history):
            if event["event_id"] == last_event_id:
                for _ in missed:
                    self._history.pop()
                self._events.extendleft(missed)
                self._wake.set()
                return True
            missed.append(event)
        return False
