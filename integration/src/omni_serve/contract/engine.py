"""The running deployment, as the API sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from omni_serve.contract.audio import Pcm
from omni_serve.contract.requests import (
    ChatPiece,
    ChatRequest,
    Health,
    MediaRequest,
    MediaResult,
    ModelInfo,
    Transcript,
)
from omni_serve.contract.session import Session, SessionOptions


class Engine(Protocol):
    """The running deployment, as the API sees it.

    Every call may raise OverloadedError, StageUnavailableError, UnsupportedError (no stage of that kind),
    InvalidRequestError or DeadlineError. Closing an iterator cancels its request end to end.
    """

    def models(self) -> Sequence[ModelInfo]: ...

    def health(self) -> Health: ...

    def metrics_text(self) -> bytes:
        """Prometheus exposition text of everything the engine counts."""
        ...

    async def open_session(self, options: SessionOptions) -> Session: ...

    async def transcribe(self, pcm: Pcm, *, language: str | None = None) -> Transcript: ...

    def chat(self, request: ChatRequest) -> AsyncIterator[ChatPiece]: ...

    def synthesize(self, text: str, *, speed: float = 1.0) -> AsyncIterator[Pcm]: ...

    async def generate(self, request: MediaRequest) -> MediaResult: ...

    async def sleep(self, stages: Sequence[str], level: int) -> None:
        """Put stages to sleep (empty: all). A bad id raises InvalidRequestError before anything changes; a stage
        without support raises UnsupportedError."""
        ...

    async def wake(self, stages: Sequence[str]) -> None:
        """Wake stages (empty: all that sleep). A failed wake keeps the set of sleeping stages as it was."""
        ...
