"""The session core: server messages in, typed events and state out; client commands in, wire messages out. No socket.

It decides nothing about time but what it is told: every call carries ``at_s`` on one monotonic clock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from omni_duplex_bench import events as ev
from omni_duplex_bench.commands import Append, CancelResponse, Command, Commit
from omni_duplex_bench.errors import DialectMismatchError, ProtocolError, SessionEndedError
from omni_duplex_bench.ledger import Ledger, ResponseRecord
from omni_duplex_bench.playback import Playback
from omni_duplex_bench.stage import stage0_of

State = Literal["connecting", "open", "closed", "expired"]
DecisionKind = Literal["response", "listen"]
DEFAULT_OUTPUT_RATE_HZ = 24_000
"""What a session sends that declares nothing else (the OpenAI realtime API's only PCM rate)."""

_REMEMBERED_COMMANDS = 1024


@dataclass(frozen=True, slots=True)
class CoreConfig:
    """What the core is told up front. ``dialect`` None accepts either spelling, but only one per session."""

    dialect: ev.Dialect | None = None
    keep_audio: bool = True
    output_rate_hz: int = DEFAULT_OUTPUT_RATE_HZ


@dataclass(slots=True)
class Turns:
    """What is known about the user's turns and their answers."""

    commits: int = 0
    last_commit_at_s: float | None = None
    committed_at_s: list[float] = field(default_factory=list)
    decided: DecisionKind | None = None
    deferred: frozenset[str] = frozenset()
    speech_open: bool = False
    speech_started_at_s: list[float] = field(default_factory=list)
    speech_stopped: list[tuple[float, float | None]] = field(default_factory=list)
    listens: int = 0
    final_sent_at_s: float | None = None
    final_committed: bool = False
    final_refused: bool = False


class SessionCore:
    """One realtime session as seen from the client."""

    def __init__(self, config: CoreConfig | None = None) -> None:
        self.config = config or CoreConfig()
        self.state: State = "connecting"
        self.session: dict[str, Any] = {}
        self.capabilities: dict[str, Any] = {}
        self.dialect: ev.Dialect | None = self.config.dialect
        self.ledger = Ledger()
        self.playback = Playback(keep_audio=self.config.keep_audio)
        self.turns = Turns()
        self.end_reason: str | None = None
        self.closes = 0
        self.output_bytes = 0
        self._sent: OrderedDict[str, str] = OrderedDict()
        self._count = 0
        self._final_id: str | None = None

    @property
    def extended(self) -> bool:
        """Whether the server announced capabilities, and so takes the fields beyond OpenAI's."""
        return bool(self.capabilities)

    @property
    def server_ends_turns(self) -> bool:
        """Whether the session's settings name a voice detector that ends turns."""
        audio_in = _dig(self.session, "audio", "input")
        found = audio_in.get("turn_detection", self.session.get("turn_detection"))
        return isinstance(found, dict) and found.get("type") != "none"

    @property
    def output_rate_hz(self) -> int:
        """The rate of deltas that do not say theirs."""
        rate = _dig(self.session, "audio", "output", "format").get("rate")
        return rate if isinstance(rate, int) and rate > 0 else self.config.output_rate_hz

    # --- out ---------------------------------------------------------------------------------------------------

    def send(self, command: Command, at_s: float, *, final: bool = False) -> bytes:
        """Give ``command`` an id, note what follows from it, and return the message.

        Args:
            final: This commit ends the input; the decision that follows completes the session.

        Raises:
            SessionEndedError: If the session is over.
        """
        if self.state in ("closed", "expired"):
            raise SessionEndedError(self.end_reason or self.state)
        if command.event_id is None:
            self._count += 1
            command.event_id = f"evt_c{self._count}"
        if not isinstance(command, Append):
            self._sent[command.event_id] = command.type
            while len(self._sent) > _REMEMBERED_COMMANDS:
                self._sent.popitem(last=False)
        if final and isinstance(command, Commit):
            self.turns.final_sent_at_s, self._final_id = at_s, command.event_id
            self.turns.decided = None
        if isinstance(command, CancelResponse):
            for record in self.ledger.active:
                if command.response_id in (None, record.response_id):
                    record.cancel_requested = True
        return msgspec.json.encode(command)

    # --- in ----------------------------------------------------------------------------------------------------

    def receive(self, message: str | bytes, at_s: float) -> ev.ServerEvent:
        """Take one message and return its event; a broken rule comes back as :class:`~.events.Violation`.

        Raises:
            DialectMismatchError: If the spelling is not the configured one; nothing after it could be trusted.
        """
        try:
            event = ev.decode(message, at_s)
            self._check_dialect(event)
            self._apply(event, at_s)
        except DialectMismatchError:
            raise
        except ProtocolError as error:
            return ev.Violation(
                type="violation",
                message=str(error),
                response_id=error.response_id,
                event_id=error.event_id,
                at_s=at_s,
                raw={"type": error.event_type or "violation"},
            )
        return event

    def _check_dialect(self, event: ev.ServerEvent) -> None:
        spelling = ev.dialect_of(event.type)
        if spelling is None:
            return
        if self.config.dialect is not None and spelling != self.config.dialect:
            raise DialectMismatchError(self.config.dialect, spelling, event.type)
        if self.dialect is not None and spelling != self.dialect and not event.type.startswith("conversation."):
            raise ProtocolError(
                f"{event.type} belongs to the {spelling} names in a session of the {self.dialect} ones",
                event_type=event.type,
                event_id=event.event_id,
            )
        if self.dialect is None and not event.type.startswith("conversation."):
            self.dialect = spelling

    def _apply(self, event: ev.ServerEvent, at_s: float) -> None:
        match event:
            case ev.SessionCreated() | ev.SessionUpdated():
                self._settings(event)
            case ev.SessionClosed():
                self.state, self.end_reason, self.closes = "closed", event.reason or "closed", self.closes + 1
            case ev.SessionExpired():
                self.state, self.end_reason = "expired", f"expired: {event.reason}" if event.reason else "expired"
            case ev.InputCommitted():
                self._committed(event, at_s)
            case ev.SpeechStarted():
                self.turns.speech_open = True
                self.turns.speech_started_at_s.append(at_s)
            case ev.SpeechStopped():
                self.turns.speech_open = False
                self.turns.speech_stopped.append((at_s, event.audio_end_ms))
            case ev.Listen():
                self.turns.listens += 1
                if event.decides:
                    self._decide("listen")
            case ev.OutputCleared():
                self.playback.clear(at_s, event.response_id)
            case ev.ErrorEvent():
                self._refused(event)
            case _:
                self._response(event, at_s)

    def _settings(self, event: ev.SessionCreated | ev.SessionUpdated) -> None:
        if isinstance(event, ev.SessionCreated):
            if self.state != "connecting":
                raise ProtocolError("session.created twice", event_type=event.type, event_id=event.event_id)
            self.state = "open"
        self.session = self.session | event.session
        found = event.session.get("capabilities")
        if isinstance(found, dict):
            self.capabilities = found

    def _committed(self, event: ev.InputCommitted, at_s: float) -> None:
        turns = self.turns
        turns.commits += 1
        turns.last_commit_at_s = at_s
        turns.committed_at_s.append(at_s)
        turns.decided = None
        active = frozenset(record.response_id for record in self.ledger.active)
        turns.deferred = active if event.overlap_deferred else frozenset()
        if turns.final_sent_at_s is not None:
            turns.final_committed = True

    def _refused(self, event: ev.ErrorEvent) -> None:
        if event.client_event_id is not None:
            event.command = self._sent.get(event.client_event_id)
        if self._final_id is not None and event.client_event_id == self._final_id:
            self.turns.final_refused = True

    def _response(self, event: ev.ServerEvent, at_s: float) -> None:
        match event:
            case ev.ResponseCreated():
                self._stage(self.ledger.create(event.response_id, at_s), event)
            case ev.AudioDelta():
                self._audio(self.ledger.producing(event.response_id, "audio"), event, at_s)
            case ev.TextDelta():
                record = self.ledger.producing(event.response_id, "text")
                if event.delta and record.first_text_at_s is None:
                    record.first_text_at_s = at_s
                (record.spoken if event.spoken else record.written).append(event.delta)
                self._stage(record, event)
            case ev.TextDone():
                record = self.ledger.producing(event.response_id, "text")
                record.final_text = event.text or record.final_text
                self._stage(record, event)
            case ev.AudioDone():
                self._stage(self.ledger.producing(event.response_id, "audio"), event)
            case ev.ResponseDone():
                early = event.type == "response.cancelled"
                record_or_none = self.ledger.finish(event.response_id, event.status, at_s, early_cancel=early)
                if record_or_none is not None:
                    self._finished(record_or_none, event, at_s)
            case _:
                pass

    def _finished(self, record: ResponseRecord, event: ev.ResponseDone, at_s: float) -> None:
        self._stage(record, event)
        if record.status == "cancelled":
            self.playback.clear(at_s, record.response_id)
        elif record.response_id not in self.turns.deferred:
            self._decide("response", record)

    def _decide(self, kind: DecisionKind, record: ResponseRecord | None = None) -> None:
        turns = self.turns
        waiting = turns.final_sent_at_s is not None and not turns.final_committed and not turns.final_refused
        if waiting and (record is None or record.created_at_s < (turns.final_sent_at_s or 0.0)):
            return  # what ends before the commit is acknowledged answers something earlier
        turns.decided = kind

    def _audio(self, record: ResponseRecord, event: ev.AudioDelta, at_s: float) -> None:
        if event.format is not None and event.format not in ("pcm16", "audio/pcm", "pcm"):
            raise ProtocolError(
                f"audio of format {event.format!r}, expected 16-bit PCM",
                event_type=event.type,
                response_id=record.response_id,
            )
        rate = event.sample_rate_hz or record.sample_rate_hz or self.output_rate_hz
        if record.sample_rate_hz not in (None, rate):
            raise ProtocolError(
                f"the sample rate of response {record.response_id!r} changed from {record.sample_rate_hz} to {rate} Hz",
                event_type=event.type,
                response_id=record.response_id,
            )
        record.sample_rate_hz, record.item_id = rate, record.item_id or event.item_id
        self._stage(record, event)
        whole = record.aligner.feed(event.audio)
        self.output_bytes += len(event.audio)
        if not whole:
            return
        if record.first_audio_at_s is None:
            record.first_audio_at_s = at_s
        record.last_audio_at_s = at_s
        record.audio_bytes += len(whole)
        self.playback.push(record.response_id, record.item_id, whole, rate, at_s)

    def _stage(self, record: ResponseRecord, event: ev.ServerEvent) -> None:
        record.stage0 = stage0_of(event.raw) or record.stage0

    # --- completeness ------------------------------------------------------------------------------------------

    @property
    def answered(self) -> DecisionKind | None:
        """The decision on the last committed turn, once no response is running; None while it is awaited."""
        turns = self.turns
        if self.ledger.active:
            return None
        if turns.final_sent_at_s is not None and turns.final_refused and not turns.final_committed:
            return turns.decided or ("response" if len(self.ledger) else "listen")
        return turns.decided

    def complete_after_commit(self) -> DecisionKind | None:
        """The decision after the final commit."""
        return self.answered if self.turns.final_sent_at_s is not None else None

    def complete_after_input(self, speech_end_s: float) -> DecisionKind | None:
        """The decision when the server ends turns: a turn committed after ``speech_end_s`` and answered."""
        turns = self.turns
        committed_late = turns.last_commit_at_s is not None and turns.last_commit_at_s >= speech_end_s
        return self.answered if committed_late and not turns.speech_open else None


def _dig(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        inner = value.get(key)
        if not isinstance(inner, dict):
            return {}
        value = inner
    return value
