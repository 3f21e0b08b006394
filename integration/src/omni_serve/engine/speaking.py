"""A session's replies: one at a time, each with exactly one end, whatever happens to its stages."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from omni_serve.contract import (
    OUTPUT_RATE_HZ,
    ReplyAudio,
    ReplyOptions,
    ReplyStarted,
    ReplyStatus,
    ReplyText,
    SessionOptions,
    StageMetrics,
)
from omni_serve.engine.config import EngineConfig
from omni_serve.engine.conversation import Conversation
from omni_serve.engine.hub import Hub, StageDown
from omni_serve.engine.metrics import EngineMetrics
from omni_serve.engine.outbox import EventOutbox
from omni_serve.engine.replies import Reply
from omni_serve.errors import ActiveReplyError
from omni_serve.stages.messages import Answer, Cancel, Failed, Sound, SoundDone, Text, TextDone

_REMEMBERED = 32


class Speaking:
    """The replies of one session.

    Args:
        hub: Where stages are reached.
        config: Limits.
        metrics: Counted into.
        conversation: Read for a reply, written by it.
        outbox: Where its events go.
        instructions: The system message where the session and the reply give none.
        after: Called after each end.
    """

    def __init__(
        self,
        hub: Hub,
        config: EngineConfig,
        metrics: EngineMetrics,
        conversation: Conversation,
        outbox: EventOutbox,
        instructions: str,
        after: Callable[[], None],
    ) -> None:
        self._hub = hub
        self._config = config
        self._metrics = metrics
        self._conversation = conversation
        self._outbox = outbox
        self._instructions = instructions
        self._after = after
        self._deadline: asyncio.TimerHandle | None = None
        self._recent: dict[str, Reply] = {}
        self.active: Reply | None = None
        self.idle = asyncio.Event()
        self.idle.set()
        self.ear: StageMetrics | None = None

    def start(self, turn: str | None, session: SessionOptions, options: ReplyOptions) -> str:
        """Begin a reply and return its id.

        Raises ActiveReplyError, StageUnavailableError, UnsupportedError, OverloadedError; nothing was begun then.
        """
        if self.active is not None:
            raise ActiveReplyError(self.active.id)
        modalities = options.modalities or session.modalities
        mind = self._hub.pick("reply", session.reply_model)
        mouth = self._hub.pick("speak") if "audio" in modalities else None
        reply = Reply(f"resp_{uuid.uuid4().hex[:24]}", turn, modalities, mind, mouth, time.monotonic(), ear=self.ear)
        self.ear = None
        instructions = options.instructions or session.instructions or self._instructions
        temperature = session.temperature if options.temperature is None else options.temperature
        ask = Answer(
            reply.id,
            [(m.role, m.content) for m in self._conversation.messages(instructions)],
            options.max_output_tokens or session.max_output_tokens,
            temperature,
            None,
            None,
            [],
            "" if mouth is None else mouth.name,
            session.speed,
        )
        self._hub.register(reply.id, self._said, *([mind] if mouth is None else [mind, mouth]))
        try:
            self._hub.send(mind, ask)
        except BaseException:
            self._hub.release(reply.id)
            raise
        self.active = self._recent[reply.id] = reply
        while len(self._recent) > _REMEMBERED:
            del self._recent[next(iter(self._recent))]
        self.idle.clear()
        self._conversation.begin_reply(reply.id)
        self._deadline = asyncio.get_running_loop().call_later(
            self._config.deadline_s, self.fail, f"no end after {self._config.deadline_s:g} s"
        )
        self._outbox.emit(ReplyStarted(reply.id, turn))
        return reply.id

    def stop(self, reason: str) -> str | None:
        """Cancel the active reply in every stage; its id, or None when there is none."""
        reply = self.active
        if reply is None:
            return None
        self._keep_heard(reply)
        self._end("cancelled", reason)
        return reply.id

    def interrupt(self) -> str | None:
        """The user speaks over a reply: stop it, or cut the one that is still being heard; its id."""
        stopped = self.stop("turn_detected")
        if stopped is not None:
            return stopped
        reply = self._latest()
        if reply is None or not reply.playback.playing(time.monotonic()):
            return None
        self._keep_heard(reply)
        # Nothing of it will be heard from here on.
        reply.playback.acknowledge(reply.audio_ms, time.monotonic())
        return reply.id

    def fail(self, why: str) -> None:
        """The active reply cannot be finished."""
        if self.active is not None:
            self._end("failed", why)

    def audible(self, now_s: float) -> bool:
        """Whether a reply is in the making or still being heard."""
        latest = self._latest()
        return self.active is not None or (latest is not None and latest.playback.playing(now_s))

    def truncate(self, reply_id: str, heard_ms: float) -> None:
        """Keep only what was heard of a spoken reply; an unknown one is harmless."""
        reply = self._recent.get(reply_id)
        if reply is not None and reply.mouth is not None:
            self._conversation.truncate(reply_id, heard_ms)
            reply.playback.acknowledge(reply.audio_ms, time.monotonic())

    def played(self, reply_id: str, played_ms: float) -> None:
        """Take a playback position; an unknown reply is harmless."""
        reply = self._recent.get(reply_id)
        if reply is not None:
            reply.playback.acknowledge(played_ms, time.monotonic())

    # -- within

    def _latest(self) -> Reply | None:
        return next(reversed(self._recent.values()), None) if self._recent else None

    def _keep_heard(self, reply: Reply) -> None:
        if reply.mouth is not None:
            self._conversation.truncate(reply.id, reply.playback.heard_ms(time.monotonic()))

    def _said(self, message: Any) -> None:
        """Take what a stage says about the active reply. Runs in the event loop, never waits."""
        reply = self.active
        if reply is None:
            return
        match message:
            case Text():
                if not reply.text:
                    self._metrics.first_text.observe(time.monotonic() - reply.started_s)
                reply.text += message.text
                self._conversation.write(reply.id, message.text)
                self._outbox.emit(ReplyText(reply.id, message.text))
            case Sound():
                self._sound(reply, message)
            case TextDone():
                reply.text_done = message
            case SoundDone():
                reply.sound_done = message
            case Failed():
                self._end("failed", message.message)
            case StageDown():
                if not reply.has_done(message.replica):
                    self._end("failed", f"stage {message.stage} {message.why}")
        if self.active is reply and reply.whole:
            if reply.cut_short:
                self._end("failed", f"stage {reply.mind.spec.name} ended before all it had written could be spoken")
            else:
                self._end("completed", None)

    def _sound(self, reply: Reply, message: Sound) -> None:
        now_s = time.monotonic()
        pcm = np.asarray(message.pcm, np.int16)
        if reply.audio_ms == 0.0:
            self._metrics.first_audio.observe(now_s - reply.started_s)
        duration_ms = pcm.size * 1e3 / OUTPUT_RATE_HZ
        reply.audio_ms += duration_ms
        reply.playback.sent(duration_ms, now_s)
        self._conversation.speak(reply.id, message.text, duration_ms)
        self._outbox.emit(ReplyAudio(reply.id, pcm))

    def _end(self, status: ReplyStatus, reason: str | None) -> None:
        """Give the active reply its one end, and free it in every stage that still works on it."""
        reply = self.active
        assert reply is not None
        self.active = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._hub.release(reply.id)
        if not reply.whole:
            for replica in (reply.mind, reply.mouth):
                if replica is not None and replica.up:
                    self._hub.send(replica, Cancel(reply.id))
        done = reply.done(status, reason)
        self._metrics.replies.labels(done.status).inc()
        self._outbox.emit(done)
        self._after()
        if self.active is None:
            self.idle.set()
