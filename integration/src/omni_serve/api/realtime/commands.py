"""Client events as typed commands. Pure: text in, command or WireError out."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from omni_serve.api.realtime.fields import Fields, WireError
from omni_serve.contract import Modality, ReplyOptions, Role

MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 192_000


@dataclass(frozen=True, slots=True)
class UpdateSession:
    """Raw ``session`` of a session.update; settings.py reads it against what the session has."""

    session: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Append:
    """Audio bytes, the rate this append declares (None: the session's), and video frames as (base64 length) sizes."""

    audio: bytes
    rate_hz: int | None
    video_frame_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Close the user's turn."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget uncommitted input."""


@dataclass(frozen=True, slots=True)
class CreateResponse:
    """Ask for a reply."""

    options: ReplyOptions
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """Stop a reply: the named one, or the active one."""

    response_id: str | None


@dataclass(frozen=True, slots=True)
class ClearOutput:
    """Throw away output audio not yet played: stops the active reply."""


@dataclass(frozen=True, slots=True)
class CreateItem:
    """Add a message; audio content is appended to the input and committed."""

    item_id: str | None
    previous_item_id: str | None
    role: Role
    text: str
    audio: bytes


@dataclass(frozen=True, slots=True)
class RetrieveItem:
    """Ask for an item."""

    item_id: str


@dataclass(frozen=True, slots=True)
class DeleteItem:
    """Remove an item."""

    item_id: str


@dataclass(frozen=True, slots=True)
class TruncateItem:
    """Keep what was heard of an assistant item."""

    item_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class PlaybackAck:
    """The client's playback position."""

    response_id: str
    played_ms: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The client is there."""


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the session in order."""


Command = (
    UpdateSession
    | Append
    | Commit
    | Clear
    | CreateResponse
    | CancelResponse
    | ClearOutput
    | CreateItem
    | RetrieveItem
    | DeleteItem
    | TruncateItem
    | PlaybackAck
    | Heartbeat
    | CloseSession
)


def parse(text: str) -> tuple[str | None, Command]:
    """One client event: its own event_id, and the command.

    Raises:
        WireError: not JSON, not an object, no or an unknown type, or a field that cannot be; carries the client's
            event_id as far as it could be read.
    """
    try:
        event = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the message is not JSON: {error}", code="invalid_json") from None
    if not isinstance(event, dict):
        raise WireError(f"the message is {_kind(event)}; send an object with a type", code="invalid_json")
    given = event.get("event_id")
    event_id = given if isinstance(given, str) and len(given) <= 512 else None
    kind = event.get("type")
    try:
        if not isinstance(kind, str):
            raise WireError("the event has no type", param="type", code="missing_required_parameter")
        reader = _READERS.get(kind)
        if reader is None:
            raise WireError(f"unknown event type {kind[:80]!r}", param="type", code="unknown_event")
        return event_id, reader(Fields(event))
    except WireError as error:
        error.event_id = event_id
        raise


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _kind(value: object) -> str:
    return {list: "an array", str: "text", int: "a number", float: "a number", bool: "a boolean"}.get(
        type(value), "null"
    )


def decode_audio(text: str, param: str) -> bytes:
    """Base64 to bytes; WireError for anything that is not."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise WireError(f"{param} is not base64: {error}", param=param, code="invalid_base64") from None


def _append(event: Fields) -> Append:
    rate = event.integer("sample_rate_hz", low=MIN_RATE_HZ, high=MAX_RATE_HZ)
    for name in ("duration_ms", "audio_end_ms"):
        number = event.number(name)
        if number is not None and (not math.isfinite(number) or number < 0):
            raise WireError(f"{name} is {number}; it must be 0 or more milliseconds", param=name)
    frames = event.array("video_frames")
    sizes: list[int] = []
    for index, frame in enumerate(frames):
        data = frame.get("data") if isinstance(frame, Mapping) else frame
        if not isinstance(data, str):
            raise WireError(
                f"video_frames[{index}] must be base64 text or an object with base64 text as data",
                param=f"video_frames[{index}]",
            )
        sizes.append(len(decode_audio(data.rpartition(",")[2], f"video_frames[{index}]")))
    audio = event.text("audio", required=not frames)
    return Append(decode_audio(audio or "", "audio"), rate, tuple(sizes))


def modalities(fields: Fields) -> tuple[Modality, ...] | None:
    """``output_modalities`` or the older ``modalities``; text beside audio means audio with its transcript."""
    for name in ("output_modalities", "modalities"):
        if name in fields:
            given = fields.array(name)
            if not given or any(m not in ("text", "audio") for m in given):
                raise WireError(f'{name} is {given}; it must hold "text", "audio" or both', param=fields.path(name))
            return ("audio",) if "audio" in given else ("text",)
    return None


def max_tokens(fields: Fields) -> int | None:
    """``max_output_tokens`` or the older name; "inf" and null are no bound."""
    for name in ("max_output_tokens", "max_response_output_tokens"):
        if name in fields and fields[name] != "inf":
            return fields.integer(name, low=1, high=2**31 - 1)
    return None


def _create_response(event: Fields) -> CreateResponse:
    response = event.object("response")
    metadata = response.object("metadata")
    if any(not isinstance(v, str) for v in metadata.values()):
        raise WireError("response.metadata must map text to text", param="response.metadata")
    options = ReplyOptions(
        instructions=response.text("instructions"),
        modalities=modalities(response),
        max_output_tokens=max_tokens(response),
        temperature=response.number("temperature", low=0.0, high=2.0),
    )
    return CreateResponse(options, {str(k): str(v) for k, v in metadata.items()})


def _create_item(event: Fields) -> CreateItem:
    item = event.object("item", required=True)
    kind = item.text("type", required=True)
    if kind != "message":
        raise WireError(f"item.type is {kind!r}; this server takes message items", param="item.type")
    role = item.text("role", required=True)
    if role not in ("user", "assistant", "system"):
        raise WireError(f"item.role is {role!r}; it must be user, assistant or system", param="item.role")
    texts: list[str] = []
    audio = b""
    for index, part in enumerate(item.array("content", required=True)):
        where = f"item.content[{index}]"
        if not isinstance(part, Mapping):
            raise WireError(f"{where} must be an object", param=where)
        content = Fields(part, where)
        match content.text("type", required=True):
            case "input_text" | "text" | "output_text":
                texts.append(content.text("text", required=True) or "")
            case "input_audio" if role == "user":
                audio += decode_audio(content.text("audio", required=True) or "", f"{where}.audio")
            case "audio" | "output_audio":
                texts.append(content.text("transcript") or "")
            case other:
                raise WireError(f"{where}.type {other!r} is not one a {role} message has", param=f"{where}.type")
    typed: Literal["user", "assistant", "system"] = role  # type: ignore[assignment]
    return CreateItem(item.text("id"), event.text("previous_item_id"), typed, "".join(texts), audio)


def _truncate(event: Fields) -> TruncateItem:
    end = event.integer("audio_end_ms", low=0, high=2**53, required=True)
    return TruncateItem(event.text("item_id", required=True) or "", end or 0)


def _ack(event: Fields) -> PlaybackAck:
    played = event.number("played_ms", low=0.0, required=True)
    return PlaybackAck(event.text("response_id", required=True) or "", int(played or 0))


_READERS: dict[str, Callable[[Fields], Command]] = {
    "session.update": lambda e: UpdateSession(e.object("session", required=True).raw),
    "input_audio_buffer.append": _append,
    "input_audio_buffer.commit": lambda e: Commit(),
    "input_audio_buffer.clear": lambda e: Clear(),
    "response.create": _create_response,
    "response.cancel": lambda e: CancelResponse(e.text("response_id")),
    "output_audio_buffer.clear": lambda e: ClearOutput(),
    "conversation.item.create": _create_item,
    "conversation.item.retrieve": lambda e: RetrieveItem(e.text("item_id", required=True) or ""),
    "conversation.item.delete": lambda e: DeleteItem(e.text("item_id", required=True) or ""),
    "conversation.item.truncate": _truncate,
    "playback.ack": _ack,
    "session.heartbeat": lambda e: Heartbeat(),
    "session.close": lambda e: CloseSession(),
}
