"""Typed events that a realtime server sends, in both spellings, with unknown fields kept and unknown types tolerated.

Names are those of the OpenAI realtime API (general availability and the older beta) and of vLLM-Omni's duplex
additions (``response.listen``, ``session.closed``, ``session.expired``, ``event.overlap_deferred``).
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Literal

import msgspec

from omni_duplex_bench.errors import MalformedEventError

Dialect = Literal["ga", "beta"]
Json = dict[str, Any]
"""A decoded JSON object as it came; ``Any`` because the server decides what is in it."""


class ServerEvent(msgspec.Struct, kw_only=True):
    """What every event has. ``raw`` is the whole object, unknown fields included; ``at_s`` when it was received."""

    type: str
    event_id: str | None = None
    raw: Json = {}
    at_s: float = 0.0


class UnknownEvent(ServerEvent):
    """An event of a type this package does not know; never an error."""


class SessionCreated(ServerEvent):
    """The session exists. ``session`` holds its settings."""

    session: Json = {}


class SessionUpdated(ServerEvent):
    """The settings after an update."""

    session: Json = {}


class SessionClosed(ServerEvent):
    """The server ended the session on request or by itself."""

    reason: str | None = None


class SessionExpired(ServerEvent):
    """The session ran past its bound or its token is no longer good."""

    reason: str | None = None


class InputCommitted(ServerEvent):
    """The input up to here is a turn. With ``overlap_deferred`` its answer waits for the running response."""

    item_id: str | None = None
    overlap_deferred: bool = False


class InputCleared(ServerEvent):
    """The uncommitted input is gone."""


class SpeechStarted(ServerEvent):
    """The server's detector heard speech start at ``audio_start_ms`` of the input."""

    audio_start_ms: float | None = None
    item_id: str | None = None


class SpeechStopped(ServerEvent):
    """The server's detector heard speech end at ``audio_end_ms`` of the input."""

    audio_end_ms: float | None = None
    item_id: str | None = None


class InputTranscript(ServerEvent):
    """What the server understood of the user's turn."""

    transcript: str = ""
    item_id: str | None = None


class ResponseCreated(ServerEvent):
    """A response began."""

    response_id: str
    response: Json = {}


class Listen(ServerEvent):
    """The server goes on listening. It is a decision when ``model_listen`` and not ``buffering``."""

    model_listen: bool = False
    buffering: bool = False

    @property
    def decides(self) -> bool:
        """Whether the model itself chose to stay silent."""
        return self.model_listen and not self.buffering


class AudioDelta(ServerEvent):
    """Audio of a response, decoded. ``sample_rate_hz`` is None where the server relies on the session's format."""

    response_id: str
    item_id: str | None = None
    audio: bytes = b""
    sample_rate_hz: int | None = None
    format: str | None = None


class AudioDone(ServerEvent):
    """No more audio in this part."""

    response_id: str
    item_id: str | None = None


class TextDelta(ServerEvent):
    """Text of a response: what is spoken (``spoken``) or what is only written."""

    response_id: str
    delta: str = ""
    spoken: bool = True


class TextDone(ServerEvent):
    """The whole text of this part."""

    response_id: str
    text: str = ""
    spoken: bool = True


class ResponseDone(ServerEvent):
    """A response ended with ``status``: completed, cancelled, failed or incomplete."""

    response_id: str
    status: str = "completed"
    response: Json = {}


class OutputCleared(ServerEvent):
    """The server dropped audio that it had queued for playing."""

    response_id: str | None = None


class ErrorEvent(ServerEvent):
    """A refusal. ``client_event_id`` is the event it answers; ``command`` that event's type once the core knows it."""

    message: str = ""
    code: str | None = None
    error_type: str | None = None
    client_event_id: str | None = None
    command: str | None = None


class Violation(ServerEvent):
    """What the session core reports in place of an event that broke the protocol; the session goes on."""

    message: str = ""
    response_id: str | None = None


_GA = {
    "response.output_audio.delta": "audio.delta",
    "response.output_audio.done": "audio.done",
    "response.output_audio_transcript.delta": "spoken.delta",
    "response.output_audio_transcript.done": "spoken.done",
    "response.output_text.delta": "text.delta",
    "response.output_text.done": "text.done",
    "conversation.item.added": "",
    "conversation.item.done": "",
}
_BETA = {
    "response.audio.delta": "audio.delta",
    "response.audio.done": "audio.done",
    "response.audio_transcript.delta": "spoken.delta",
    "response.audio_transcript.done": "spoken.done",
    "response.text.delta": "text.delta",
    "response.text.done": "text.done",
    "conversation.item.created": "",
}


def dialect_of(event_type: str) -> Dialect | None:
    """Which spelling an event name belongs to, or None where both have it."""
    return "ga" if event_type in _GA else "beta" if event_type in _BETA else None


def decode(message: str | bytes, at_s: float = 0.0) -> ServerEvent:
    """Parse one message.

    Raises:
        MalformedEventError: If it is no JSON object with a text ``type``, or a known event lacks what it must have.
    """
    try:
        raw = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedEventError(f"a message is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise MalformedEventError(f"a message is a JSON {type(raw).__name__}, not an object")
    kind = raw.get("type")
    if not isinstance(kind, str) or not kind:
        raise MalformedEventError("an event has no type", event_id=_text(raw.get("event_id")))
    event = _build(kind, raw)
    event.raw = raw
    event.at_s = at_s
    event.event_id = _text(raw.get("event_id"))
    return event


def _build(kind: str, raw: Json) -> ServerEvent:
    meaning = _GA.get(kind) or _BETA.get(kind)
    if meaning:
        return _delta(kind, meaning, raw)
    response = _object(raw.get("response"))
    match kind:
        case "session.created":
            return SessionCreated(type=kind, session=_object(raw.get("session")))
        case "session.updated":
            return SessionUpdated(type=kind, session=_object(raw.get("session")))
        case "session.closed":
            return SessionClosed(type=kind, reason=_nested_text(raw, "reason"))
        case "session.expired":
            return SessionExpired(type=kind, reason=_nested_text(raw, "reason"))
        case "input_audio_buffer.committed":
            deferred = raw.get("overlap_deferred", _object(raw.get("event")).get("overlap_deferred"))
            return InputCommitted(type=kind, item_id=_text(raw.get("item_id")), overlap_deferred=deferred is True)
        case "input_audio_buffer.cleared":
            return InputCleared(type=kind)
        case "input_audio_buffer.speech_started":
            at = _number(raw.get("audio_start_ms"))
            return SpeechStarted(type=kind, audio_start_ms=at, item_id=_text(raw.get("item_id")))
        case "input_audio_buffer.speech_stopped":
            at = _number(raw.get("audio_end_ms"))
            return SpeechStopped(type=kind, audio_end_ms=at, item_id=_text(raw.get("item_id")))
        case "conversation.item.input_audio_transcription.completed":
            text = _text(raw.get("transcript")) or ""
            return InputTranscript(type=kind, transcript=text, item_id=_text(raw.get("item_id")))
        case "response.created":
            return ResponseCreated(type=kind, response_id=_response_id(kind, raw), response=response)
        case "response.listen":
            meta = _object(raw.get("metadata"))
            buffering = raw.get("buffering", meta.get("buffering"))
            listens = meta.get("model_listen", raw.get("model_listen"))
            return Listen(type=kind, model_listen=listens is True, buffering=buffering is True)
        case "response.done" | "response.cancelled":
            status = _text(response.get("status")) or _text(raw.get("status"))
            if kind == "response.cancelled":
                status = "cancelled"
            return ResponseDone(
                type=kind, response_id=_response_id(kind, raw), status=status or "completed", response=response
            )
        case "output_audio_buffer.cleared":
            return OutputCleared(type=kind, response_id=_text(raw.get("response_id")))
        case "error":
            error = _object(raw.get("error")) or raw
            return ErrorEvent(
                type=kind,
                message=_text(error.get("message")) or "no message",
                code=_text(error.get("code")),
                error_type=_text(error.get("type")) if error is not raw else None,
                client_event_id=_text(error.get("event_id")),
            )
        case _:
            return UnknownEvent(type=kind)


def _delta(kind: str, meaning: str, raw: Json) -> ServerEvent:
    response_id, item_id = _response_id(kind, raw), _text(raw.get("item_id"))
    spoken = meaning.startswith("spoken")
    match meaning:
        case "audio.delta":
            payload = raw.get("delta") or raw.get("audio") or ""
            rate = raw.get("sample_rate_hz", raw.get("sample_rate"))
            if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int) or rate <= 0):
                raise _wrong(kind, raw, "sample_rate_hz is no positive integer")
            return AudioDelta(
                type=kind,
                response_id=response_id,
                item_id=item_id,
                audio=_audio(kind, raw, payload),
                sample_rate_hz=rate,
                format=_text(raw.get("format")),
            )
        case "audio.done":
            return AudioDone(type=kind, response_id=response_id, item_id=item_id)
        case "spoken.delta" | "text.delta":
            delta = raw.get("delta", "")
            if not isinstance(delta, str):
                raise _wrong(kind, raw, "delta is not text")
            return TextDelta(type=kind, response_id=response_id, delta=delta, spoken=spoken)
        case _:
            text = _text(raw.get("transcript")) or _text(raw.get("text")) or ""
            return TextDone(type=kind, response_id=response_id, text=text, spoken=spoken)


def _audio(kind: str, raw: Json, payload: object) -> bytes:
    if not isinstance(payload, str):
        raise _wrong(kind, raw, "delta is not text")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _wrong(kind, raw, "delta is not base64") from error


def _wrong(kind: str, raw: Json, what: str) -> MalformedEventError:
    return MalformedEventError(
        f"{kind}: {what}",
        event_type=kind,
        event_id=_text(raw.get("event_id")),
        response_id=_text(raw.get("response_id")),
    )


def _response_id(kind: str, raw: Json) -> str:
    found = _text(raw.get("response_id")) or _text(_object(raw.get("response")).get("id"))
    if not found:
        raise _wrong(kind, raw, "no response id")
    return found


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _nested_text(raw: Json, key: str) -> str | None:
    return _text(raw.get(key)) or _text(_object(raw.get("event")).get(key))
