"""A full-duplex conversation: what is heard, when to answer, when to stop, and what was said in the end."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from omni_serve.contract import (
    INPUT_RATE_HZ,
    Listening,
    Pcm,
    ReplyOptions,
    Role,
    SessionEvent,
    SessionFault,
    SessionOptions,
    SpeechStarted,
    SpeechStopped,
    StageMetrics,
    Transcribed,
    TurnCommitted,
)
from omni_serve.engine.config import EngineConfig
from omni_serve.engine.conversation import Conversation
from omni_serve.engine.hub import Hub, StageDown
from omni_serve.engine.metrics import EngineMetrics
from omni_serve.engine.outbox import EventOutbox
from omni_serve.engine.replicas import Replica
from omni_serve.engine.speaking import Speaking
from omni_serve.errors import InvalidRequestError, ServeError, StageUnavailableError
from omni_serve.stages.messages import (
    Audio,
    Clear,
    Commit,
    Consumed,
    Failed,
    Leave,
    Listen,
    SpeechHeld,
    SpeechOn,
    TurnOver,
    Words,
)
from omni_serve.voice.backchannel import is_backchannel

_PER_MS = INPUT_RATE_HZ // 1000


@dataclass(slots=True)
class _Turn:
    """A closed turn whose text is awaited. ``quiet``: it began during a reply and was too short to stop it."""

    over: TurnOver
    quiet: bool
    deferred: bool


class EngineSession:
    """Implements :class:`omni_serve.contract.Session`."""

    def __init__(
        self,
        hub: Hub,
        config: EngineConfig,
        metrics: EngineMetrics,
        options: SessionOptions,
        instructions: str,
        on_close: Callable[[EngineSession], None],
    ) -> None:
        self._id = f"sess_{uuid.uuid4().hex[:24]}"
        self._hub = hub
        self._config = config
        self._metrics = metrics
        self._options = options
        self._on_close = on_close
        self._closed = False
        self._outbox = EventOutbox(config.max_events)
        self._conversation = Conversation()
        self._speaking = Speaking(
            hub, config, metrics, self._conversation, self._outbox, instructions, self._after_reply
        )
        self._room = asyncio.Event()
        self._appended = 0
        self._consumed = 0
        self._committed = 0
        self._quiet_onset = False
        self._turns: dict[str, _Turn] = {}
        self._answer_next: str | None = None
        self._ear: Replica = self._attach()

    async def idle(self) -> None:
        """Wait until no reply is in the making."""
        await self._speaking.idle.wait()

    @property
    def id(self) -> str:
        """A name unique to this server's life."""
        return self._id

    async def events(self) -> AsyncIterator[SessionEvent]:
        """See :class:`omni_serve.contract.Session`."""
        async for event in self._outbox.read():
            yield event

    # -- the client's calls

    async def configure(self, options: SessionOptions) -> None:
        """Take new settings from the next frame and the next reply on."""
        self._options = options
        self._hub.send(self._ear, self._settings())

    async def append(self, pcm: Pcm) -> None:
        """Add input audio; waits while the listening stage is more than the window behind."""
        self._open()
        audio = np.ascontiguousarray(pcm, np.int16).reshape(-1)
        window = int(self._config.input_window_s * INPUT_RATE_HZ)
        if self._options.turn_detection is None:
            held = self._appended - self._committed + audio.size
            if held > self._config.max_held_s * INPUT_RATE_HZ:
                raise InvalidRequestError(
                    f"more than {self._config.max_held_s:g} s of audio without a commit; commit or clear it",
                    field="audio",
                    code="input_audio_buffer_full",
                )
        for start in range(0, audio.size, window):
            piece = audio[start : start + window]
            while not self._closed and self._appended - self._consumed + piece.size > window:
                self._room.clear()
                await self._room.wait()
            if self._closed:
                return
            self._appended += piece.size
            if not self._hub.send(self._ear, Audio(self._id, piece)):
                self._consumed = self._appended

    async def commit(self) -> str:
        """Close the user's turn by hand."""
        self._open()
        if self._appended <= self._committed:
            raise InvalidRequestError(
                "nothing was appended since the last turn; append audio first", code="input_audio_buffer_commit_empty"
            )
        turn = f"turn_{uuid.uuid4().hex[:20]}"
        self._committed = self._appended
        if not self._hub.send(self._ear, Commit(self._id, turn)):
            raise StageUnavailableError("the listening stage is being started again", stage=self._ear.spec.name)
        return turn

    async def clear(self) -> None:
        """Forget the input audio not yet committed."""
        self._open()
        self._committed = self._appended
        self._quiet_onset = False
        self._hub.send(self._ear, Clear(self._id))

    async def add_message(self, role: Role, text: str) -> None:
        """Add text to the conversation without audio."""
        self._open()
        self._conversation.add(role, text)

    async def respond(self, options: ReplyOptions) -> str:
        """Start a reply to the conversation so far."""
        self._open()
        return self._speaking.start(None, self._options, options)

    async def cancel(self) -> str | None:
        """Stop the active reply."""
        self._answer_next = None
        return self._speaking.stop("client_cancelled")

    async def truncate(self, reply_id: str, heard_ms: int) -> None:
        """Keep in the conversation only what the user heard of a reply."""
        self._speaking.truncate(reply_id, heard_ms)

    async def played(self, reply_id: str, played_ms: int) -> None:
        """Take a playback position."""
        self._speaking.played(reply_id, played_ms)

    async def close(self) -> None:
        """Free everything the session holds in every stage. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._answer_next = None
        self._speaking.stop("client_cancelled")
        self._hub.release(self._id)
        if self._ear.up:
            self._hub.send(self._ear, Leave(self._id))
        self._outbox.close()
        self._room.set()
        self._on_close(self)

    def fail_all(self, why: str) -> None:
        """The server is going away: the active reply fails, the session ends with a fatal fault."""
        self._answer_next = None
        self._speaking.fail(why)
        self._outbox.emit(SessionFault("server_shutdown", why, fatal=True))

    # -- the ear's messages

    def _attach(self) -> Replica:
        ear = self._hub.pick("listen")
        self._hub.register(self._id, self._heard, ear)
        self._ear = ear
        self._hub.send(ear, self._settings())
        return ear

    def _settings(self) -> Listen:
        detection = self._options.turn_detection
        if detection is None:
            return Listen(self._id, False, 0.5, 500, 200)
        return Listen(self._id, True, detection.threshold, detection.silence_ms, detection.prefix_ms)

    def _open(self) -> None:
        if self._closed:
            raise InvalidRequestError("the session is closed", code="session_closed")

    def _heard(self, message: Any) -> None:
        """Take what the ear says about this session. Runs in the event loop, never waits."""
        match message:
            case Consumed():
                self._consumed += message.samples
                self._room.set()
            case SpeechOn():
                self._onset(message)
            case SpeechHeld():
                self._held(message)
            case TurnOver():
                self._over(message)
            case Words():
                self._words(message)
            case Failed():
                self._outbox.emit(SessionFault("transcription_failed", message.message))
            case StageDown():
                self._ear_down(message)

    def _onset(self, message: SpeechOn) -> None:
        self._quiet_onset = self._speaking.audible(time.monotonic())
        if not self._quiet_onset:
            self._outbox.emit(SpeechStarted(message.at // _PER_MS))

    def _held(self, message: SpeechHeld) -> None:
        """The speech is meant. During a reply this is the decision to stop it."""
        if not self._quiet_onset:
            if self._speaking.active is not None and self._interrupts():
                # The reply began after the speech did: an answer to a turn that was not over after all.
                self._speaking.stop("turn_detected")
            return
        self._quiet_onset = False
        stopped = self._speaking.interrupt() if self._interrupts() else None
        if stopped is not None:
            self._metrics.barge_in.observe(time.monotonic() - message.decided_s)
        self._outbox.emit(SpeechStarted(message.at // _PER_MS, interrupts=stopped))

    def _over(self, message: TurnOver) -> None:
        self._committed = max(self._committed, min(message.end, self._appended))
        quiet, self._quiet_onset = self._quiet_onset and not message.by_hand, False
        turn = _Turn(message, quiet, self._speaking.active is not None)
        self._turns[message.turn] = turn
        if not quiet:
            self._announce(turn)

    def _announce(self, turn: _Turn) -> None:
        over = turn.over
        if not over.by_hand or over.speech_end < over.end:
            self._outbox.emit(SpeechStopped(over.speech_end // _PER_MS))
        audio_ms = (over.end - over.start) // _PER_MS
        self._outbox.emit(TurnCommitted(over.turn, audio_ms, turn.deferred))

    def _words(self, message: Words) -> None:
        turn = self._turns.pop(message.job, None)
        if turn is None:
            return
        self._metrics.turns.inc()
        self._metrics.transcribe_seconds.observe(message.busy_ms / 1e3)
        text = " ".join(text for _, _, text in message.segments).strip()
        over = turn.over
        if turn.quiet:
            if over.speech_ms < self._config.murmur_ms or is_backchannel(text):
                self._outbox.emit(Listening(over.turn, "backchannel"))
                return
            # Short, but it asks for the floor ("stop", "wait").
            stopped = self._speaking.interrupt() if self._interrupts() else None
            turn.deferred = self._speaking.active is not None
            self._outbox.emit(SpeechStarted(over.start // _PER_MS, interrupts=stopped))
            self._announce(turn)
        audio_ms = (over.end - over.start) // _PER_MS
        self._outbox.emit(Transcribed(over.turn, text, audio_ms, message.busy_ms))
        if not text:
            self._outbox.emit(Listening(over.turn, "no_text"))
            return
        self._conversation.add("user", text)
        detection = self._options.turn_detection
        if over.by_hand or detection is None or not detection.create_response:
            self._outbox.emit(Listening(over.turn, "not_requested"))
            return
        self._speaking.ear = StageMetrics(0, busy_ms=message.busy_ms)
        self._answer(over.turn)

    def _answer(self, turn: str) -> None:
        """Answer a turn, after the active reply where there is one."""
        if self._speaking.active is not None:
            self._answer_next = turn
            return
        try:
            self._speaking.start(turn, self._options, ReplyOptions())
        except ServeError as error:
            self._outbox.emit(SessionFault("reply_unavailable", str(error)))

    def _after_reply(self) -> None:
        turn, self._answer_next = self._answer_next, None
        if turn is not None and not self._closed:
            self._answer(turn)

    def _interrupts(self) -> bool:
        detection = self._options.turn_detection
        return detection is not None and detection.interrupt_response

    # -- the ear's end

    def _ear_down(self, down: StageDown) -> None:
        """The listening process is gone: what it had not finished is lost, and a new one is attached when it is up."""
        self._hub.release(self._id)
        self._turns.clear()
        self._quiet_onset = False
        self._outbox.emit(
            SessionFault("listening_restarted", f"stage {down.stage} {down.why}; audio not yet transcribed is lost")
        )
        if not self._closed:
            self._reattach()

    def _reattach(self) -> None:
        try:
            self._attach()
        except StageUnavailableError:
            self._hub.when_up(self._reattach_unless_closed)
            return
        # The new process counts this session's samples from 0.
        self._appended = self._consumed = self._committed = 0
        self._room.set()

    def _reattach_unless_closed(self) -> None:
        if not self._closed:
            self._reattach()
