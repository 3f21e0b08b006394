"""One realtime session behind its socket: commands in, engine calls; engine events in, wire events out.

It outlives the socket for a grace period when its client can resume; everything it holds in the engine goes with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from typing import Any

from omni_serve.api.realtime import commands as cmd
from omni_serve.api.realtime import items
from omni_serve.api.realtime.audio import InputAudio
from omni_serve.api.realtime.dialect import Dialect
from omni_serve.api.realtime.fields import WireError
from omni_serve.api.realtime.items import new_id
from omni_serve.api.realtime.outbox import Outbox, OutboxFullError
from omni_serve.api.realtime.session_settings import WireSession, rendered, updated
from omni_serve.api.realtime.translate import Translator
from omni_serve.api.settings import ApiSettings
from omni_serve.contract import Engine, Session
from omni_serve.errors import InvalidRequestError, ServeError

log = logging.getLogger("omni_serve.api")

CHUNK_PERIOD_MS = 32
"""One frame of the voice activity detector: the finest step at which input changes anything."""


class LiveSession:
    """A session and the tasks that serve it.

    Args:
        engine: The deployment.
        settings: The API's limits.
        dialect: The connection's names.
        model: What the client asked for by ``?model=``.
        resumable: Whether the client speaks the extensions that can resume.
    """

    def __init__(self, engine: Engine, settings: ApiSettings, dialect: Dialect, model: str, *, resumable: bool) -> None:
        self.id = new_id("sess")
        self.token = secrets.token_urlsafe(24) if resumable and settings.resume_grace_s > 0 else None
        self.outbox = Outbox(settings.max_unsent_events)
        self.ended = asyncio.Event()
        self.heard_at = time.monotonic()
        self._engine, self._settings, self._dialect = engine, settings, dialect
        self._wire = WireSession(model)
        self._translator = Translator(dialect, self._wire)
        self._input = InputAudio()
        self._session: Session | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._expires_at = int(time.time() + settings.session_limit_s)
        self._video_frames = self._video_bytes = 0
        self._close_reason: str | None = None

    # -- life

    @property
    def started(self) -> bool:
        """Whether the engine knows the session."""
        return self._session is not None

    @property
    def close_reason(self) -> str | None:
        """Why the session ended; None while it lives or when its client simply left."""
        return self._close_reason

    async def start(self) -> None:
        """Open the session in the engine and announce it. Raises ServeError when it is not admitted."""
        self._session = await self._engine.open_session(self._wire.options)
        self.outbox.put(self._translator.event("session.created", session=self._rendered()))
        if self._dialect is Dialect.BETA:
            conversation = {"id": self._translator.conversation_id, "object": "realtime.conversation"}
            self.outbox.put(self._translator.event("conversation.created", conversation=conversation))
        self._tasks = [
            asyncio.create_task(self._pump(self._session), name=f"pump {self.id}"),
            asyncio.create_task(self._watch(), name=f"watch {self.id}"),
        ]

    async def close(self, reason: str | None = None, *, announce: str = "session.closed") -> None:
        """Free everything in the engine, and tell the client why when there is a reason. Idempotent."""
        if self.ended.is_set():
            return
        self.ended.set()
        self._close_reason = reason
        mine = asyncio.current_task()
        for task in self._tasks:
            if task is not mine:
                task.cancel()
        try:
            if self._session is not None:
                await self._session.close()
        finally:
            if reason is not None:
                with contextlib.suppress(OutboxFullError):
                    self.outbox.put(self._translator.event(announce, reason=reason, session={"id": self.id}))
            self.outbox.end()

    async def _pump(self, session: Session) -> None:
        reason: str | None = "the engine ended the session"
        try:
            async for event in session.events():
                self.outbox.put(self._translator.translate(event))
                if getattr(event, "fatal", False):
                    reason = "a stage failed"
                    break
        except OutboxFullError as error:
            reason = f"slow client: {error}"
        except Exception:  # the boundary of a session: a fault ends this one, is logged, and the server lives
            log.exception("session %s failed", self.id)
            reason = "internal error"
        await self.close(reason)

    async def _watch(self) -> None:
        """End the session at its longest life or its longest silence."""
        ends_at = time.monotonic() + self._settings.session_limit_s
        while True:
            idle_at = self.heard_at + self._settings.idle_limit_s
            due = min(ends_at, idle_at)
            now = time.monotonic()
            if now >= due:
                if now >= ends_at:
                    limit = f"sessions last at most {self._settings.session_limit_s:g} s"
                else:
                    limit = f"nothing was received for {self._settings.idle_limit_s:g} s"
                await self.close(limit, announce="session.expired")
                return
            await asyncio.sleep(due - now)

    # -- commands

    async def handle(self, text: str) -> None:
        """Take one message of the client; whatever is wrong with it becomes an error event."""
        self.heard_at = time.monotonic()
        event_id: str | None = None
        try:
            event_id, command = cmd.parse(text)
            await self._do(command)
        except WireError as error:
            error.event_id = error.event_id or event_id
            self.outbox.put(self._translator.error(error))
        except InvalidRequestError as error:
            self._refuse(WireError(str(error), param=error.field, code=error.code), event_id, "invalid_request_error")
        except ServeError as error:
            self._refuse(WireError(str(error), code=type(error).__name__), event_id, "server_error")

    def _refuse(self, error: WireError, event_id: str | None, kind: str) -> None:
        error.event_id = event_id
        self.outbox.put(self._translator.error(error, kind=kind))

    def refuse_binary(self) -> None:
        """Answer a binary frame."""
        self.outbox.put(
            self._translator.error(WireError("binary messages are not part of this protocol; send JSON text"))
        )

    async def _do(self, command: cmd.Command) -> None:
        if isinstance(command, cmd.UpdateSession):
            await self._update(command)
            return
        if isinstance(command, cmd.Heartbeat):
            return
        if isinstance(command, cmd.CloseSession):
            await self.close("client_closed")
            return
        session = self._session
        if session is None:
            raise WireError("the session has not started; send session.update first", code="session_not_started")
        match command:
            case cmd.Append():
                await self._append(session, command)
            case cmd.Commit():
                await self._append_tail(session)
                await session.commit()
            case cmd.Clear():
                self._input.flush()
                await session.clear()
                self.outbox.put(self._translator.event("input_audio_buffer.cleared"))
            case cmd.CreateResponse():
                self._translator.expect(command.options.modalities, command.metadata)
                try:
                    await session.respond(command.options)
                except ServeError:
                    self._translator.expect(None, {})
                    raise
            case cmd.CancelResponse():
                await self._cancel(session, command.response_id)
            case cmd.ClearOutput():
                reply_id = await session.cancel()
                if reply_id is not None:
                    self.outbox.put(self._translator.event("output_audio_buffer.cleared", response_id=reply_id))
            case cmd.CreateItem():
                await self._create_item(session, command)
            case cmd.RetrieveItem():
                item = self._translator.items.get(command.item_id)
                if item is None:
                    raise self._no_item(command.item_id)
                self.outbox.put(self._translator.event("conversation.item.retrieved", item=dict(item)))
            case cmd.DeleteItem():
                if not self._translator.items.remove(command.item_id):
                    raise self._no_item(command.item_id)
                self.outbox.put(self._translator.event("conversation.item.deleted", item_id=command.item_id))
            case cmd.TruncateItem():
                await self._truncate(session, command)
            case cmd.PlaybackAck():
                await session.played(command.response_id, command.played_ms)

    async def _update(self, command: cmd.UpdateSession) -> None:
        settled = updated(self._wire, command.session)
        self._wire = settled
        self._translator.settle(settled)
        if self._session is None:
            await self.start()
        else:
            await self._session.configure(settled.options)
        self.outbox.put(self._translator.event("session.updated", session=self._rendered()))

    async def _append(self, session: Session, command: cmd.Append) -> None:
        if command.video_frame_bytes:
            self._count_video(command.video_frame_bytes)
        if command.audio:
            pcm = self._input.take(command.audio, self._wire.input, command.rate_hz)
            if pcm.size:
                await session.append(pcm)

    async def _append_tail(self, session: Session) -> None:
        tail = self._input.flush()
        if tail.size:
            await session.append(tail)

    def _count_video(self, sizes: tuple[int, ...]) -> None:
        """Frames are bounded and counted; no stage of a voice deployment looks at them."""
        limit = self._settings.max_video_frames_per_append
        if len(sizes) > limit:
            raise WireError(f"{len(sizes)} video frames in one append; the most is {limit}", param="video_frames")
        if self._video_bytes + sum(sizes) > self._settings.max_video_bytes:
            raise WireError(
                f"the session's video frames pass {self._settings.max_video_bytes:,} bytes", param="video_frames"
            )
        self._video_frames += len(sizes)
        self._video_bytes += sum(sizes)

    async def _cancel(self, session: Session, response_id: str | None) -> None:
        active = self._translator.active
        if response_id is not None and response_id != active:
            raise WireError(
                f"response {response_id} is not active", param="response_id", code="response_cancel_not_active"
            )
        if await session.cancel() is None:
            raise WireError("no response is active", code="response_cancel_not_active")

    async def _create_item(self, session: Session, command: cmd.CreateItem) -> None:
        if command.item_id is not None and self._translator.items.get(command.item_id) is not None:
            raise WireError(f"item {command.item_id} exists already", param="item.id")
        if command.audio:
            await self._append(session, cmd.Append(command.audio, None, ()))
            await self._append_tail(session)
            await session.commit()
        if command.text:
            await session.add_message(command.role, command.text)
            item = items.text_message(command.item_id or new_id("item"), command.role, command.text)
            self.outbox.put(self._translator.item_added(item, done=True))

    async def _truncate(self, session: Session, command: cmd.TruncateItem) -> None:
        reply_id = self._translator.reply_of(command.item_id)
        if reply_id is None:
            raise self._no_item(command.item_id)
        await session.truncate(reply_id, command.audio_end_ms)
        self.outbox.put(
            self._translator.event(
                "conversation.item.truncated",
                item_id=command.item_id,
                content_index=0,
                audio_end_ms=command.audio_end_ms,
            )
        )

    def _no_item(self, item_id: str) -> WireError:
        return WireError(f"no item {item_id!r} in this conversation", param="item_id", code="item_not_found")

    def _rendered(self) -> dict[str, Any]:
        return rendered(
            self._wire,
            self._dialect,
            session_id=self.id,
            expires_at=self._expires_at,
            capabilities={
                "chunk_period_ms": CHUNK_PERIOD_MS,
                "sample_rate_hz_per_append": True,
                "playback_ack": True,
                "listen_events": True,
                "overlap_deferred": True,
                "video_frames": self._settings.max_video_frames_per_append,
                "resume": self.token is not None,
            },
            resume_token=self.token,
        )
