"""The client that applications use: settings, audio at the pace of real time, commits, playback acks, resume."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from omni_duplex_bench import commands as cmd
from omni_duplex_bench import events as ev
from omni_duplex_bench.connection import ClientConfig, Connection
from omni_duplex_bench.errors import ServerError, UnsupportedByServerError
from omni_duplex_bench.pacing import Pacer, PacingConfig

__all__ = ["ClientConfig", "RealtimeClient", "server_error"]


class RealtimeClient(Connection):
    """A realtime session over one WebSocket. An async context manager; ``close()`` may be called any number of times.

    ::

        async with RealtimeClient("ws://127.0.0.1:8000/v1/realtime", model="voice") as client:
            await client.configure(instructions="Answer briefly.")
            async for event in client.stream(pcm16):
                ...
    """

    async def configure(
        self,
        *,
        instructions: str | None = None,
        voice: str | None = None,
        input_rate_hz: int | None = None,
        turn_detection: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET,
        ref_audio: str | os.PathLike[str] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Set the session up and return its settings as the server reports them.

        Args:
            input_rate_hz: Rate that will be sent; None takes 16 000 where the server announced capabilities, else
                24 000, the only PCM rate of the OpenAI API.
            turn_detection: UNSET keeps the server's, None switches it off.
            ref_audio: A WAV file whose voice to speak with, where the server takes one.

        Raises:
            ServerError: If the server refuses the settings.
            UnsupportedByServerError: If ``ref_audio`` is given to a server that announced no capabilities.
        """
        bound = self.config.reply_timeout_s
        if self.config.autostart:
            await self.wait_until(lambda: self.core.state != "connecting", timeout_s=bound)
        dialect = self.core.dialect or _dialect_of_session(self.core.session)
        if ref_audio is not None and self.config.autostart and not self.core.extended:
            raise UnsupportedByServerError("the server announced no capabilities, so it takes no ref_audio")
        self.input_rate_hz = input_rate_hz or (16_000 if self.core.extended or not self.config.autostart else 24_000)
        settings = cmd.session_settings(
            dialect,
            input_rate_hz=self.input_rate_hz,
            instructions=instructions,
            voice=voice,
            turn_detection=turn_detection,
            ref_audio=_data_url(ref_audio) if ref_audio is not None else None,
            extra=extra,
        )
        seen = {"updated": False}
        refusals = len(self.errors)

        def watch(event: ev.ServerEvent) -> None:
            seen["updated"] |= isinstance(event, ev.SessionUpdated)

        self._observers.append(watch)
        try:
            await self.send(cmd.SessionUpdate(session=settings))
            await self.wait_until(
                lambda: (seen["updated"] and self.core.state != "connecting") or len(self.errors) > refusals,
                timeout_s=bound,
            )
        finally:
            self._observers.remove(watch)
        if not seen["updated"] and len(self.errors) > refusals:
            raise server_error(self.errors[-1])
        return self.core.session

    def resumed(self) -> RealtimeClient:
        """A new client, not yet connected, that takes up this session by its id and resume token.

        Raises:
            UnsupportedByServerError: If the server gave no ``resume_token``.
        """
        token, session_id = self.core.session.get("resume_token"), self.core.session.get("id")
        if not isinstance(token, str) or not isinstance(session_id, str):
            raise UnsupportedByServerError("the server offered no resume_token in its session")
        config = replace(self.config, session_id=session_id, resume_token=token)
        return RealtimeClient(self._base, model=self._model, config=config)

    async def append(
        self, pcm16: bytes, *, rate_hz: int, end_ms: int | None = None, frames: list[str] | None = None
    ) -> None:
        """Send input audio (whole samples) with its place in time, and video frames, where the server takes them."""
        command = cmd.Append(audio=base64.b64encode(pcm16).decode("ascii"))
        if self.core.extended:
            command.sample_rate_hz = rate_hz
            command.duration_ms = len(pcm16) * 500 // rate_hz
            command.audio_end_ms = end_ms
            command.video_frames = frames or None
        await self.send(command)

    async def commit(self, *, final: bool = False) -> str:
        """End the user's turn; ``final`` makes the decision that follows complete the session."""
        return await self.send(cmd.Commit(), final=final)

    async def acknowledge_playback(self) -> int:
        """Report audio that has been heard by now; returns how many acks were sent. Harmless when superseded."""
        if not self.core.extended:
            return 0
        news = self.core.playback.progress(time.monotonic())
        for item in news:
            await self.send(
                cmd.PlaybackAck(
                    response_id=item.response_id,
                    item_id=item.item_id,
                    played_ms=item.played_ms,
                    committed_ms=item.played_ms,
                )
            )
        return len(news)

    async def stream(
        self, pcm16: bytes, *, rate_hz: int = 16_000, pacing: PacingConfig | None = None
    ) -> AsyncIterator[ev.ServerEvent]:
        """Speak ``pcm16`` at the pace of real time and yield events as they arrive, until the server has decided.

        Where the server ends turns, silence follows the input; elsewhere a final commit does.

        Raises:
            NoDecisionError: If no decision comes within the pacing's bound.
            SessionEndedError: If the session ends before.
        """
        pacer = Pacer(self, pcm16, rate_hz=rate_hz, config=pacing or PacingConfig())
        task = asyncio.create_task(pacer.run(), name="omni-duplex-bench pacer")
        task.add_done_callback(lambda _: self._wake())
        try:
            while True:
                await self.wait_until(lambda: bool(self._queue) or task.done())
                if not self._queue:
                    await task
                    return
                event = self._queue.popleft()
                self._wake()
                yield event
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def server_error(event: ev.ErrorEvent) -> ServerError:
    """The exception that an error event stands for."""
    return ServerError(event.message, code=event.code, client_event_id=event.client_event_id, command=event.command)


def _dialect_of_session(session: dict[str, Any]) -> ev.Dialect:
    """Which shape a session object has; the older one names formats and modalities at the top."""
    old = "input_audio_format" in session or "modalities" in session
    return "beta" if old and "audio" not in session else "ga"


def _data_url(path: str | os.PathLike[str]) -> str:
    return "data:audio/wav;base64," + base64.b64encode(Path(path).read_bytes()).decode("ascii")
