"""A deterministic engine in this process and a real server in front of it, for tests of the API alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import numpy as np
import pytest
import uvicorn

from omni_serve.api.app import create_app
from omni_serve.api.settings import ApiSettings
from omni_serve.contract import (
    ChatPiece,
    ChatRequest,
    Health,
    MediaRequest,
    MediaResult,
    ModelInfo,
    Pcm,
    ReplyAudio,
    ReplyDone,
    ReplyOptions,
    ReplyStarted,
    ReplyText,
    Role,
    SessionEvent,
    SessionOptions,
    StageHealth,
    StageMetrics,
    Transcribed,
    Transcript,
    TurnCommitted,
)
from omni_serve.errors import ActiveReplyError, InvalidRequestError, OverloadedError, ServeError

TONE: Pcm = (np.sin(np.arange(4800) * 0.1) * 8000).astype(np.int16)


class EchoSession:
    """Answers every commit with how many samples it got; a reply is held open until ``release`` is set."""

    def __init__(self, engine: EchoEngine, options: SessionOptions) -> None:
        self.id = f"s{len(engine.sessions)}"
        self.options = options
        self.appended: list[Pcm] = []
        self.closed = asyncio.Event()
        self.truncated: list[tuple[str, int]] = []
        self.played_ms: list[tuple[str, int]] = []
        self.messages: list[tuple[Role, str]] = []
        self._engine = engine
        self._events: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        self._replies = 0
        self._active: str | None = None
        self._task: asyncio.Task[None] | None = None

    async def events(self) -> AsyncIterator[SessionEvent]:
        while (event := await self._events.get()) is not None:
            yield event

    def emit(self, event: SessionEvent) -> None:
        self._events.put_nowait(event)

    async def configure(self, options: SessionOptions) -> None:
        self.options = options

    async def append(self, pcm: Pcm) -> None:
        self.appended.append(pcm)

    async def commit(self) -> str:
        if not self.appended:
            raise InvalidRequestError("nothing was appended", code="input_audio_buffer_commit_empty")
        samples = sum(part.size for part in self.appended)
        self.appended.clear()
        self.emit(TurnCommitted("t1", samples // 16))
        self.emit(Transcribed("t1", f"{samples} samples", samples // 16, 1.0))
        await self.respond(ReplyOptions())
        return "t1"

    async def clear(self) -> None:
        self.appended.clear()

    async def add_message(self, role: Role, text: str) -> None:
        self.messages.append((role, text))

    async def respond(self, options: ReplyOptions) -> str:
        if self._active is not None:
            raise ActiveReplyError(self._active)
        self._replies += 1
        reply_id = self._active = f"resp_{self.id}_{self._replies}"
        self.emit(ReplyStarted(reply_id, None))
        self._task = asyncio.create_task(self._reply(reply_id))
        return reply_id

    async def _reply(self, reply_id: str) -> None:
        self.emit(ReplyText(reply_id, "Hello"))
        self.emit(ReplyAudio(reply_id, TONE))
        await self._engine.release.wait()
        self.emit(ReplyText(reply_id, " there."))
        self.emit(ReplyAudio(reply_id, TONE))
        self._active = None
        timing = {"0": StageMetrics(2, 10.0, 5.0, (5.0,))}
        self.emit(ReplyDone(reply_id, "completed", "Hello there.", 400, None, 7, timing))

    async def cancel(self) -> str | None:
        active, task = self._active, self._task
        if active is None or task is None:
            return None
        task.cancel()
        self._active = None
        self.emit(ReplyDone(active, "cancelled", "Hello", 200, "client_cancelled"))
        return active

    async def truncate(self, reply_id: str, heard_ms: int) -> None:
        self.truncated.append((reply_id, heard_ms))

    async def played(self, reply_id: str, played_ms: int) -> None:
        self.played_ms.append((reply_id, played_ms))

    async def close(self) -> None:
        if not self.closed.is_set():
            self.closed.set()
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
            self._events.put_nowait(None)


class EchoEngine:
    """The contract, deterministic, without processes. ``fault`` is raised by every request while it is set."""

    def __init__(self) -> None:
        self.sessions: list[EchoSession] = []
        self.opened = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()
        self.max_sessions = 2
        self.fault: Exception | None = None
        self.chats: list[ChatRequest] = []
        self.media: list[MediaRequest] = []
        self.asleep: set[str] = set()
        self.chat_closed = asyncio.Event()
        self.ready = True

    def models(self) -> Sequence[ModelInfo]:
        kinds = ("voice", "text", "speech", "transcription", "image", "audio", "video")
        return [ModelInfo(f"echo-{kind}", kind, "only") for kind in kinds]  # type: ignore[arg-type]

    def health(self) -> Health:
        return Health(self.ready, False, (StageHealth("only", int(self.ready), 1, 0, False, ""),))

    def metrics_text(self) -> bytes:
        return b"omni_up 1\n"

    async def open_session(self, options: SessionOptions) -> EchoSession:
        if sum(not s.closed.is_set() for s in self.sessions) >= self.max_sessions:
            raise OverloadedError(f"{self.max_sessions} sessions are open, the most this server admits")
        self.sessions.append(EchoSession(self, options))
        self.opened.set()
        return self.sessions[-1]

    async def transcribe(self, pcm: Pcm, *, language: str | None = None) -> Transcript:
        self._check()
        return Transcript(f"{pcm.size} samples", pcm.size / 16000, "en", ((0.0, 1.25, "one"), (1.25, 2.5, "two")))

    async def chat(self, request: ChatRequest) -> AsyncIterator[ChatPiece]:
        self._check()
        self.chats.append(request)
        try:
            yield ChatPiece("Hello")
            await self.release.wait()
            yield ChatPiece(" there.")
            yield ChatPiece("", "stop", 3, 2)
        finally:
            self.chat_closed.set()

    async def synthesize(self, text: str, *, speed: float = 1.0) -> AsyncIterator[Pcm]:
        self._check()
        for _ in range(5):
            yield TONE

    async def generate(self, request: MediaRequest) -> MediaResult:
        self._check()
        self.media.append(request)
        seeds = tuple(range(request.count))
        if request.model == "echo-image":
            return MediaResult("image", np.full((request.count, 8, 12, 3), 200, np.uint8), 0.0, seeds)
        if request.model == "echo-audio":
            return MediaResult("audio", np.zeros((1, 4410, 2), np.float32), 44100.0, seeds)
        return MediaResult("video", np.zeros((1, 4, 32, 48, 3), np.uint8), 8.0, seeds)

    async def sleep(self, stages: Sequence[str], level: int) -> None:
        if any(stage != "only" for stage in stages):
            raise InvalidRequestError(f"no stage {stages[0]!r}; this deployment has only", field="stages")
        self.asleep.add("only")

    async def wake(self, stages: Sequence[str]) -> None:
        self.asleep.clear()

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault


class Running:
    """A server on loopback: its engine and its address."""

    def __init__(self, engine: EchoEngine, port: int) -> None:
        self.engine, self.port = engine, port
        self.http = f"http://127.0.0.1:{port}"
        self.ws = f"ws://127.0.0.1:{port}/v1/realtime"


Serving = Callable[..., AbstractAsyncContextManager[Running]]


@contextlib.asynccontextmanager
async def _serving(settings: ApiSettings | None = None) -> AsyncIterator[Running]:
    engine, settings = EchoEngine(), settings or ApiSettings()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        create_app(engine, settings),
        log_level="warning",
        ws="websockets-sansio",
        ws_max_size=settings.max_message_bytes,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined,method-assign]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0)
        if task.done():
            task.result()
    try:
        yield Running(engine, listener.getsockname()[1])
    finally:
        server.should_exit = True
        await task
        for session in engine.sessions:
            await session.close()
        listener.close()


@pytest.fixture
def serving() -> Serving:
    """``async with serving(settings) as server``: the API in front of the deterministic engine."""
    return _serving


__all__ = ["EchoEngine", "EchoSession", "Running", "ServeError", "Serving"]
