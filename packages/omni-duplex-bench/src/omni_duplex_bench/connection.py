"""The WebSocket driver around the session core: one reader task, and waits that end the moment the reader does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from omni_duplex_bench import commands as cmd
from omni_duplex_bench import events as ev
from omni_duplex_bench.core import CoreConfig, SessionCore
from omni_duplex_bench.errors import ConnectError, DialectMismatchError, NoDecisionError, SessionEndedError
from omni_duplex_bench.urls import realtime_url, redact_url

Observer = Callable[[ev.ServerEvent], None]
SentObserver = Callable[[cmd.Command, float], None]


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How to reach a server and what to speak.

    Attributes:
        dialect: ``auto`` accepts either spelling; ``ga`` and ``beta`` fail loudly on the other, and ``beta`` announces
            itself with the header and flag that servers look for.
        autostart: False asks the server to wait for session.update before it creates the session.
        headers: Sent with the handshake, after ``Authorization`` (from ``OPENAI_API_KEY``) and ``x-request-id``.
        max_message_bytes: Larger messages end the session, in either direction of the server's choosing.
        max_queued_events: With more unread events, reading pauses and the socket pushes back.
        queue_events: False keeps no events for :meth:`RealtimeClient.next_event`; observers still see all.
    """

    dialect: Literal["auto", "ga", "beta"] = "auto"
    autostart: bool = True
    duplex: bool = True
    session_id: str | None = None
    resume_token: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    open_timeout_s: float = 15.0
    reply_timeout_s: float = 30.0
    close_timeout_s: float = 5.0
    max_message_bytes: int = 64 * 1024 * 1024
    max_queued_events: int = 4096
    queue_events: bool = True
    keep_audio: bool = True


class Connection:
    """A session's socket and core. An async context manager; ``close()`` may be called any number of times."""

    def __init__(self, url: str, *, model: str | None = None, config: ClientConfig | None = None) -> None:
        self.config = config or ClientConfig()
        beta = self.config.dialect == "beta"
        self.url = realtime_url(
            url,
            model=model,
            session_id=self.config.session_id,
            autostart=self.config.autostart,
            duplex=self.config.duplex,
            native_duplex=True if beta else None,
            resume_token=self.config.resume_token,
        )
        self._base, self._model = url, model
        dialect = None if self.config.dialect == "auto" else self.config.dialect
        self.core = SessionCore(CoreConfig(dialect=dialect, keep_audio=self.config.keep_audio))
        self.request_id = uuid.uuid4().hex
        self.violations: list[ev.Violation] = []
        self.errors: list[ev.ErrorEvent] = []
        self.input_rate_hz = 16_000
        self._observers: list[Observer] = []
        self._sent_observers: list[SentObserver] = []
        self._queue: deque[ev.ServerEvent] = deque()
        self._waiters: set[asyncio.Future[None]] = set()
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._ended: BaseException | None = None
        self._drain = not self.config.queue_events

    def __repr__(self) -> str:
        return f"{type(self).__name__}({redact_url(self.url)!r}, state={self.core.state!r})"

    # --- life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the socket and start reading.

        No keepalive pings are sent: a server whose event loop is busy for half a minute answers none of them and is
        still healthy (modelscope/FunASR#3533). Dead servers are found by the bounds on waits.

        Raises:
            ConnectError: If the handshake fails; it says how.
        """
        shown = redact_url(self.url)
        try:
            self._socket = await connect(
                self.url,
                additional_headers=self._headers(),
                open_timeout=self.config.open_timeout_s,
                close_timeout=self.config.close_timeout_s,
                ping_interval=None,
                max_size=self.config.max_message_bytes,
                compression=None,
                user_agent_header="omni-duplex-bench",
            )
        except TimeoutError as error:
            raise ConnectError(shown, f"no answer within {self.config.open_timeout_s:g} s") from error
        except (OSError, InvalidHandshake, InvalidURI, EOFError) as error:
            raise ConnectError(shown, str(error) or type(error).__name__) from error
        self._reader = asyncio.create_task(self._read(self._socket), name="omni-duplex-bench reader")

    def _headers(self) -> dict[str, str]:
        headers = {"x-request-id": self.request_id}
        key = os.environ.get("OPENAI_API_KEY")
        if key:
            headers["Authorization"] = f"Bearer {key}"
        if self.config.dialect == "beta":
            headers["OpenAI-Beta"] = "realtime=v1"
        given = {name.lower() for name in self.config.headers}
        return {k: v for k, v in headers.items() if k.lower() not in given} | dict(self.config.headers)

    async def close(self) -> None:
        """Ask the server to close the session, wait for a new session.closed (bounded), and end the socket.

        A plain OpenAI server has no session.close; there only the socket is closed.
        """
        socket, self._drain = self._socket, True
        self._queue.clear()
        self._wake()
        if socket is None:
            return
        if self._ended is None and self.core.state == "open" and self.core.extended:
            closes = self.core.closes
            with contextlib.suppress(SessionEndedError, NoDecisionError):
                await self.send(cmd.CloseSession())
                await self.wait_until(lambda: self.core.closes > closes, timeout_s=self.config.close_timeout_s)
        await socket.close()
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)
        self._ended = self._ended or SessionEndedError("closed by the client")
        self._wake()

    # --- reading -----------------------------------------------------------------------------------------------

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for message in socket:
                self._take(self.core.receive(message, time.monotonic()))
                while len(self._queue) >= self.config.max_queued_events and not self._drain:
                    await self._changed()
            self._ended = self._closed_by(socket)
        except ConnectionClosed as error:
            self._ended = self._closed_by(socket, error)
            self._ended.__cause__ = error
        except DialectMismatchError as error:
            self._ended = error
            await socket.close(1002, "wrong event names")
        except asyncio.CancelledError:
            self._ended = SessionEndedError("the reader was cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - the reader's fault must reach every waiter, whatever it is
            self._ended = SessionEndedError(f"reading failed: {error}")
            self._ended.__cause__ = error
            await socket.close(1011)
        finally:
            self._wake()

    def _closed_by(self, socket: ClientConnection, error: ConnectionClosed | None = None) -> SessionEndedError:
        # Where the server sent no close frame, ours says why: 1009 for a message over the limit.
        frame = (error.rcvd or error.sent) if error is not None else None
        code, reason = (frame.code, frame.reason) if frame else (socket.close_code, socket.close_reason)
        return SessionEndedError(self.core.end_reason or reason or "the connection was closed", code=code)

    def _take(self, event: ev.ServerEvent) -> None:
        if isinstance(event, ev.Violation):
            self.violations.append(event)
        elif isinstance(event, ev.ErrorEvent):
            self.errors.append(event)
        for observer in self._observers:
            observer(event)
        if not self._drain:
            self._queue.append(event)
        self._wake()

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` with every event as it is received, before anything waits on it."""
        self._observers.append(observer)

    def observe_sent(self, observer: SentObserver) -> None:
        """Call ``observer`` with every client event after it was sent, and when."""
        self._sent_observers.append(observer)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def _changed(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    async def wait_until(self, ready: Callable[[], bool], *, timeout_s: float | None = None) -> None:
        """Wait until ``ready()``, which is asked after every event.

        Raises:
            NoDecisionError: If ``timeout_s`` passes first.
            SessionEndedError: If the reader stopped first: closed, expired, failed (cause kept) or cancelled.
            DialectMismatchError: If the server speaks the other event names.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not ready():
                    if self._ended is not None:
                        raise self._again(self._ended)
                    await self._changed()
        except TimeoutError as error:
            raise NoDecisionError(f"nothing happened within {timeout_s:g} s") from error

    @staticmethod
    def _again(error: BaseException) -> BaseException:
        return error.with_traceback(None)

    @property
    def ended(self) -> BaseException | None:
        """Why the reader stopped; None while it reads."""
        return self._ended

    async def next_event(self, *, timeout_s: float | None = None) -> ev.ServerEvent:
        """The next event in order of arrival; raises like :meth:`wait_until` once all have been read."""
        await self.wait_until(lambda: bool(self._queue), timeout_s=timeout_s)
        event = self._queue.popleft()
        self._wake()
        return event

    async def events(self) -> AsyncIterator[ev.ServerEvent]:
        """Every event until the session ends; an orderly end stops the iteration, a fault is raised."""
        while True:
            try:
                yield await self.next_event()
            except SessionEndedError as error:
                if error.__cause__ is not None and error.code not in (1000, 1001):
                    raise
                return

    # --- sending -----------------------------------------------------------------------------------------------

    async def send(self, command: cmd.Command, *, final: bool = False) -> str:
        """Send one client event and return its id, by which errors name it.

        Raises:
            SessionEndedError: If the session is over.
        """
        if self._ended is not None:
            raise self._again(self._ended)
        if self._socket is None:
            raise SessionEndedError("not connected")
        message = self.core.send(command, time.monotonic(), final=final)
        try:
            await self._socket.send(message, text=True)
        except ConnectionClosed as error:
            raise self._closed_by(self._socket, error) from error
        for observer in self._sent_observers:
            observer(command, time.monotonic())
        return command.event_id or ""
