"""The facade: a running deployment, as the API sees it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Self

import numpy as np

from omni_serve.contract import (
    INPUT_RATE_HZ,
    ChatPiece,
    ChatRequest,
    Health,
    MediaRequest,
    MediaResult,
    ModelInfo,
    Pcm,
    Session,
    SessionOptions,
    StageHealth,
    Transcript,
)
from omni_serve.engine.admission import Gate
from omni_serve.engine.config import EngineConfig
from omni_serve.engine.hub import Hub
from omni_serve.engine.metrics import EngineMetrics
from omni_serve.engine.requests import Requests
from omni_serve.engine.session import EngineSession
from omni_serve.engine.supervisor import Supervisor
from omni_serve.errors import InvalidRequestError, OverloadedError, StageUnavailableError
from omni_serve.stages.spec import StageSpec

log = logging.getLogger("omni_serve.engine")

Progress = Callable[[str, str, str], None]
"""Called while stages start: a replica's name, ``progress``, ``ready`` or ``failed``, and words."""


class LocalEngine:
    """Implements :class:`omni_serve.contract.Engine` over stage processes of this host.

    Use it as an async context manager, or call :meth:`start` and :meth:`close`; all from one event loop, on a thread
    that outlives the stages (the main thread, usually).

    Args:
        specs: The deployment's stages.
        models: What clients may name.
        instructions: The system message where a session gives none.
        config: Limits.
    """

    def __init__(
        self, specs: Sequence[StageSpec], models: Sequence[ModelInfo], instructions: str, config: EngineConfig
    ) -> None:
        self._specs = tuple(specs)
        self._models = tuple(models)
        self._instructions = instructions
        self._config = config
        self._metrics = EngineMetrics()
        self._sessions: set[EngineSession] = set()
        self._hub: Hub | None = None
        self._supervisor: Supervisor | None = None
        self._requests: Requests | None = None
        self._draining = False
        self._metrics.observe_engine(
            self.health, lambda: None if self._hub is None else self._hub.links.transport.stats()
        )

    # -- life

    async def start(self, progress: Progress = lambda *_: None) -> None:
        """Start every stage; raises StartupError, with nothing left running, when one does not come up."""
        scope = f"omni-serve-{os.getpid()}-{secrets.token_hex(4)}"
        hub = Hub(scope, max((spec.ring_bytes for spec in self._specs), default=4 << 20))
        supervisor = Supervisor(self._specs, scope, self._config, hub)
        hub.know(supervisor.replicas)
        try:
            await supervisor.start(progress)
        except BaseException:
            await hub.close()
            raise
        self._hub, self._supervisor = hub, supervisor
        gates = {kind: self._gate(kind) for kind in ("listen", "reply", "speak", "media")}
        self._requests = Requests(hub, self._config, gates)

    async def drain(self, limit_s: float) -> None:
        """Admit nothing new, and wait until what is under way has ended, for at most ``limit_s`` seconds."""
        self._draining = True
        requests = self._requests
        if requests is not None:
            requests.shut()
        under_way = [session.idle() for session in self._sessions]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await asyncio.gather(*under_way, *([] if requests is None else [requests.idle()]))

    async def end_sessions(self) -> None:
        """End every session, its reply failed and its reader told why."""
        self._draining = True
        for session in list(self._sessions):
            session.fail_all("the server is shutting down")
            await session.close()

    async def close(self) -> None:
        """End sessions, stages and the transport. Idempotent; each step runs even if the one before raised."""
        await self.end_sessions()
        try:
            if self._supervisor is not None:
                await self._supervisor.stop()
        finally:
            if self._hub is not None:
                await self._hub.close()
                self._hub = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    # -- what the API asks

    def models(self) -> Sequence[ModelInfo]:
        """What clients may name."""
        return self._models

    def health(self) -> Health:
        """The stages' state now."""
        asleep = self._hub.asleep if self._hub is not None else set()
        replicas = self._supervisor.replicas if self._supervisor is not None else []
        stages: list[StageHealth] = []
        for spec in self._specs:
            own = [r for r in replicas if r.spec is spec]
            live = sum(r.up for r in own)
            detail = "; ".join(r.detail for r in own if r.detail and not r.up)
            restarts = sum(r.restarts for r in own)
            stages.append(StageHealth(spec.name, live, spec.replicas, restarts, spec.name in asleep, detail))
        ready = bool(stages) and all(s.live > 0 or s.asleep for s in stages) and not self._draining
        return Health(ready, self._draining, tuple(stages))

    def metrics_text(self) -> bytes:
        """Prometheus exposition text."""
        return self._metrics.text()

    async def open_session(self, options: SessionOptions) -> Session:
        """Begin a conversation. Raises OverloadedError past the limit of sessions."""
        hub, _ = self._running()
        if len(self._sessions) >= self._config.max_sessions:
            self._metrics.refused.labels("session").inc()
            raise OverloadedError(
                f"{self._config.max_sessions} sessions are open, the most this server admits", retry_after_s=5
            )
        session = EngineSession(hub, self._config, self._metrics, options, self._instructions, self._left)
        self._sessions.add(session)
        self._metrics.sessions.set(len(self._sessions))
        self._metrics.sessions_opened.inc()
        return session

    async def transcribe(self, pcm: Pcm, *, language: str | None = None) -> Transcript:
        """Write a recording down; (samples,) int16 at 16 kHz."""
        _, requests = self._running()
        audio = np.ascontiguousarray(pcm, np.int16).reshape(-1)
        if audio.size > self._config.max_recording_s * INPUT_RATE_HZ:
            raise InvalidRequestError(
                f"the recording has {audio.size / INPUT_RATE_HZ:.0f} s; the most is {self._config.max_recording_s:g} s",
                field="file",
            )
        return await requests.transcribe(audio, language)

    def chat(self, request: ChatRequest) -> AsyncIterator[ChatPiece]:
        """Continue a conversation in text."""
        _, requests = self._running()
        return requests.chat(request)

    def synthesize(self, text: str, *, speed: float = 1.0) -> AsyncIterator[Pcm]:
        """Speak a text at 24 kHz."""
        _, requests = self._running()
        return requests.synthesize(text, speed)

    async def generate(self, request: MediaRequest) -> MediaResult:
        """Make images, sound or film."""
        _, requests = self._running()
        return await requests.generate(request)

    async def sleep(self, stages: Sequence[str], level: int) -> None:
        """End the processes of these stages (empty: all) until wake(); both levels free everything they hold.

        Raises InvalidRequestError for a bad id or level before anything changes.
        """
        hub, requests = self._running()
        names = self._named(stages) or [spec.name for spec in self._specs]
        if level not in (1, 2):
            raise InvalidRequestError(f"level is {level}; it must be 1 or 2", field="level")
        assert self._supervisor is not None
        targets = [name for name in names if name not in hub.asleep]
        hub.asleep.update(targets)
        await requests.quiet(targets)
        await self._supervisor.sleep(targets)

    async def wake(self, stages: Sequence[str]) -> None:
        """Start sleeping stages again (empty: all that sleep). One that fails stays asleep, and the error is raised."""
        hub, _ = self._running()
        names = self._named(stages) or sorted(hub.asleep)
        assert self._supervisor is not None
        for name in names:
            if name in hub.asleep:
                await self._supervisor.wake(name, lambda woken=name: hub.asleep.discard(woken))  # type: ignore[misc]

    # -- within

    def _named(self, stages: Sequence[str]) -> list[str]:
        known = [spec.name for spec in self._specs]
        for name in stages:
            if name not in known:
                raise InvalidRequestError(f"no stage {name!r}; this deployment has {', '.join(known)}", field="stages")
        return list(dict.fromkeys(stages))

    def _gate(self, kind: str) -> Gate:
        slots = sum(spec.width * spec.replicas for spec in self._specs if spec.kind == kind)
        return Gate(kind, max(slots, 1), slots * self._config.queue_per_slot, self._metrics)

    def _running(self) -> tuple[Hub, Requests]:
        if self._draining or self._hub is None or self._requests is None:
            raise StageUnavailableError("the server is starting or shutting down", stage="all")
        return self._hub, self._requests

    def _left(self, session: EngineSession) -> None:
        self._sessions.discard(session)
        self._metrics.sessions.set(len(self._sessions))
