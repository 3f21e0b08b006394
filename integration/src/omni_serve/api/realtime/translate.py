"""Engine events as wire events: one translator a session, pure. Its promises, whatever the engine reports:

every response.created is followed by exactly one response.done with its id; audio and text of a response stand between
the two; every event has an event_id of its own; names are those of the session's dialect, never both.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from omni_serve.api.realtime import items
from omni_serve.api.realtime.audio import OutputAudio
from omni_serve.api.realtime.dialect import Dialect, spelled
from omni_serve.api.realtime.fields import WireError
from omni_serve.api.realtime.items import Items, new_id
from omni_serve.api.realtime.session_settings import WireSession
from omni_serve.api.realtime.stages import event_metadata, response_metadata
from omni_serve.contract import (
    Listening,
    Modality,
    ReplyAudio,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SessionEvent,
    SessionFault,
    SpeechStarted,
    SpeechStopped,
    Transcribed,
    TurnCommitted,
)

Wire = dict[str, Any]


@dataclass(slots=True)
class _Response:
    """A response under way."""

    id: str
    item_id: str
    spoken: bool
    modalities: tuple[Modality, ...]
    metadata: Mapping[str, str]
    audio: OutputAudio
    text: str = ""


class Translator:
    """Turns what happens into wire events.

    Args:
        dialect: The names to use.
        session: The settings in force; replace them through :meth:`settle`.
    """

    def __init__(self, dialect: Dialect, session: WireSession) -> None:
        self.dialect = dialect
        self.session = session
        self.items = Items()
        self.conversation_id = new_id("conv")
        self._responses: dict[str, _Response] = {}
        self._turns: dict[str, str] = {}
        self._speech_item: str | None = None
        self._asked: tuple[tuple[Modality, ...] | None, Mapping[str, str]] = (None, {})
        self._reply_of_item: dict[str, str] = {}

    # -- what the driver says

    def settle(self, session: WireSession) -> None:
        """Use these settings from the next response on."""
        self.session = session

    def expect(self, modalities: tuple[Modality, ...] | None, metadata: Mapping[str, str]) -> None:
        """The next response is the one just asked for, with these overrides."""
        self._asked = (modalities, metadata)

    def reply_of(self, item_id: str) -> str | None:
        """The reply whose item this is."""
        return self._reply_of_item.get(item_id)

    @property
    def active(self) -> str | None:
        """The response under way, if one is."""
        return next(iter(self._responses), None)

    def event(self, kind: str, **fields: Any) -> list[Wire]:
        """One event in the session's dialect; none where the dialect lacks it."""
        name = spelled(kind, self.dialect)
        return [] if name is None else [{"event_id": new_id("event"), "type": name, **fields}]

    def error(self, error: WireError, *, kind: str = "invalid_request_error") -> list[Wire]:
        """An error event tied to the client's own event."""
        detail = {
            "type": kind,
            "code": error.code,
            "message": str(error),
            "param": error.param,
            "event_id": error.event_id,
        }
        return self.event("error", error=detail)

    def item_added(self, item: Wire, *, done: bool) -> list[Wire]:
        """An item joins the conversation."""
        before = self.items.add(item)
        added = self.event("conversation.item.added", previous_item_id=before, item=dict(item))
        return added + (self.event("conversation.item.done", previous_item_id=before, item=dict(item)) if done else [])

    # -- what the engine says

    def translate(self, event: SessionEvent) -> list[Wire]:
        """The wire events of one engine event."""
        match event:
            case SpeechStarted():
                return self._speech_started(event)
            case SpeechStopped():
                return self.event(
                    "input_audio_buffer.speech_stopped", audio_end_ms=event.at_ms, item_id=self._speech_item_id()
                )
            case TurnCommitted():
                return self._committed(event)
            case Transcribed():
                return self._transcribed(event)
            case Listening():
                return self._listening(event)
            case ReplyStarted():
                return self._started(event.reply_id)
            case ReplyText():
                return self._text(event.reply_id, event.delta)
            case ReplyAudio():
                return self._audio(event)
            case ReplyDone():
                return self._done(event)
            case SessionFault():
                return self.error(WireError(event.message, code=event.code), kind="server_error")

    def _speech_item_id(self) -> str:
        if self._speech_item is None:
            self._speech_item = new_id("item")
        return self._speech_item

    def _speech_started(self, event: SpeechStarted) -> list[Wire]:
        self._speech_item = None
        sent = self.event(
            "input_audio_buffer.speech_started", audio_start_ms=event.at_ms, item_id=self._speech_item_id()
        )
        if event.interrupts is not None:
            sent += self.event("output_audio_buffer.cleared", response_id=event.interrupts)
        return sent

    def _committed(self, event: TurnCommitted) -> list[Wire]:
        item_id = self._speech_item_id()
        self._speech_item = None
        self._turns[event.turn_id] = item_id
        more = {"event": {"overlap_deferred": True}} if event.deferred else {}
        committed = self.event(
            "input_audio_buffer.committed", previous_item_id=self.items.last_id, item_id=item_id, **more
        )
        return committed + self.item_added(items.user_audio(item_id), done=True)

    def _transcribed(self, event: Transcribed) -> list[Wire]:
        item_id = self._turns.pop(event.turn_id, None) or new_id("item")
        item = self.items.get(item_id)
        if item is not None:
            item["content"][0]["transcript"] = event.text
        return self.event(
            "conversation.item.input_audio_transcription.completed",
            item_id=item_id,
            content_index=0,
            transcript=event.text,
            usage={"type": "duration", "seconds": round(event.audio_ms / 1000, 3)},
        )

    def _listening(self, event: Listening) -> list[Wire]:
        decided = event.reason != "not_requested"
        return self.event(
            "response.listen",
            item_id=self._turns.get(event.turn_id or ""),
            metadata={"model_listen": decided, "buffering": False, "reason": event.reason},
            buffering=False,
        )

    def _started(self, reply_id: str) -> list[Wire]:
        if reply_id in self._responses:
            return []
        (modalities, metadata), self._asked = self._asked, (None, {})
        chosen = modalities or self.session.options.modalities
        spoken = "audio" in chosen
        response = _Response(reply_id, new_id("item"), spoken, chosen, metadata, OutputAudio(self.session.output))
        self._responses[reply_id] = response
        self._reply_of_item[response.item_id] = reply_id
        item = items.assistant(response.item_id, "in_progress", [])
        sent = self.event("response.created", response=self._object(response, "in_progress", [], None, None))
        sent += self.event("response.output_item.added", response_id=reply_id, output_index=0, item=dict(item))
        sent += self.item_added(item, done=False)
        part = {"type": "audio", "transcript": ""} if spoken else {"type": "text", "text": ""}
        return sent + self._part_event("response.content_part.added", response, part=part)

    def _text(self, reply_id: str, delta: str) -> list[Wire]:
        response = self._responses.get(reply_id)
        if response is None or not delta:
            return []
        response.text += delta
        name = "response.output_audio_transcript.delta" if response.spoken else "response.output_text.delta"
        return self._part_event(name, response, delta=delta)

    def _audio(self, event: ReplyAudio) -> list[Wire]:
        response = self._responses.get(event.reply_id)
        if response is None or not response.spoken:
            return []
        return self._audio_delta(response, response.audio.give(event.pcm))

    def _audio_delta(self, response: _Response, data: bytes) -> list[Wire]:
        if not data:
            return []
        delta = base64.b64encode(data).decode("ascii")
        return self._part_event("response.output_audio.delta", response, delta=delta)

    def _done(self, event: ReplyDone) -> list[Wire]:
        response = self._responses.pop(event.reply_id, None)
        if response is None:
            return []
        text = event.text or response.text
        sent: list[Wire] = []
        if response.spoken:
            if event.status == "completed":
                sent += self._audio_delta(response, response.audio.give(np.zeros(0, np.int16), last=True))
            sent += self._part_event("response.output_audio.done", response)
            sent += self._part_event("response.output_audio_transcript.done", response, transcript=text)
            part = {"type": "audio", "transcript": text}
            content = [{"type": "output_audio", "transcript": text}]
        else:
            sent += self._part_event("response.output_text.done", response, text=text)
            part = {"type": "text", "text": text}
            content = [{"type": "output_text", "text": text}]
        sent += self._part_event("response.content_part.done", response, part=part)
        item = self.items.get(response.item_id)
        status = "completed" if event.status == "completed" else "incomplete"
        finished = items.assistant(response.item_id, status, content)
        if item is not None:
            item.update(finished)
        sent += self.event("response.output_item.done", response_id=response.id, output_index=0, item=dict(finished))
        sent += self.event("conversation.item.done", item=dict(finished))
        whole = self._object(response, event.status, [finished], event, text)
        return sent + self.event("response.done", response=whole, metadata=event_metadata(event.stages))

    def _part_event(self, kind: str, response: _Response, **fields: Any) -> list[Wire]:
        return self.event(
            kind, response_id=response.id, item_id=response.item_id, output_index=0, content_index=0, **fields
        )

    def _object(
        self, response: _Response, status: str, output: list[Wire], done: ReplyDone | None, text: str | None
    ) -> Wire:
        shared: Wire = {
            "id": response.id,
            "object": "realtime.response",
            "status": status,
            "status_details": None if done is None else _details(done),
            "output": [dict(item) for item in output],
            "conversation_id": self.conversation_id,
            "metadata": dict(response.metadata) | ({} if done is None else response_metadata(done.stages)),
            "usage": None if done is None else _usage(done),
        }
        modalities = list(response.modalities)
        if self.dialect is Dialect.BETA:
            return shared | {"modalities": ["text", "audio"] if response.spoken else modalities}
        return shared | {"output_modalities": modalities}


def _details(done: ReplyDone) -> Wire:
    details: Wire = {"type": done.status}
    if done.status in ("cancelled", "incomplete"):
        details["reason"] = done.reason
    if done.status == "failed":
        details["error"] = {"type": "server_error", "code": done.reason or "failed"}
    return details


def _usage(done: ReplyDone) -> Wire:
    tokens_out = done.tokens_out
    return {
        "total_tokens": done.tokens_in + tokens_out,
        "input_tokens": done.tokens_in,
        "output_tokens": tokens_out,
        "input_token_details": {"text_tokens": done.tokens_in, "audio_tokens": 0, "cached_tokens": 0},
        "output_token_details": {"text_tokens": tokens_out, "audio_tokens": 0},
    }
