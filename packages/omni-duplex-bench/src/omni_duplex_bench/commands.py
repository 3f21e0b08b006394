"""Typed events that the client sends. Field names are the wire's; None and False fields are left out."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from omni_duplex_bench.events import Dialect


class Command(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="type"):
    """A client event; the session core fills in ``event_id``."""

    event_id: str | None = None

    @property
    def type(self) -> str:
        """The wire name."""
        return str(self.__struct_config__.tag)


class SessionUpdate(Command, tag="session.update"):
    """Change the session's settings; see :func:`session_settings` for the shape."""

    session: dict[str, Any]


class Append(Command, tag="input_audio_buffer.append"):
    """Input audio (base64 of little-endian PCM16) and, where the server takes it, its place in time."""

    audio: str
    sample_rate_hz: int | None = None
    duration_ms: int | None = None
    audio_end_ms: int | None = None
    video_frames: list[str] | None = None


class Commit(Command, tag="input_audio_buffer.commit"):
    """End the user's turn."""


class Clear(Command, tag="input_audio_buffer.clear"):
    """Drop uncommitted input."""


class CreateResponse(Command, tag="response.create"):
    """Ask for a response."""

    response: dict[str, Any] | None = None


class CancelResponse(Command, tag="response.cancel"):
    """Stop a response; without an id, the running one."""

    response_id: str | None = None


class Truncate(Command, tag="conversation.item.truncate"):
    """Tell the server how much of an answer was heard."""

    item_id: str
    audio_end_ms: int
    content_index: int = msgspec.UNSET  # type: ignore[assignment]


class ClearOutput(Command, tag="output_audio_buffer.clear"):
    """Drop audio that the server queued for playing."""


class PlaybackAck(Command, tag="playback.ack"):
    """How much of a response has been heard, and how much the player can no longer take back."""

    response_id: str
    item_id: str | None = None
    played_ms: int = msgspec.UNSET  # type: ignore[assignment]
    committed_ms: int = msgspec.UNSET  # type: ignore[assignment]


class CreateItem(Command, tag="conversation.item.create"):
    """Put a message into the conversation."""

    item: dict[str, Any]


class Heartbeat(Command, tag="session.heartbeat"):
    """Keep an idle session alive."""


class CloseSession(Command, tag="session.close"):
    """End the session in an orderly way; the server answers session.closed."""


TurnMode = Literal["server", "commit"]
"""Who ends the user's turn: the server's voice detector, or the client's commit."""


def session_settings(
    dialect: Dialect,
    *,
    input_rate_hz: int,
    instructions: str | None = None,
    voice: str | None = None,
    turn_detection: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET,
    ref_audio: str | None = None,
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The ``session`` object of session.update in one dialect's shape.

    The input format is always stated, never assumed. ``turn_detection`` UNSET keeps the server's; None switches it off.
    ``ref_audio`` is a data URL.
    """
    session: dict[str, Any] = {}
    if instructions is not None:
        session["instructions"] = instructions
    if dialect == "ga":
        audio_in: dict[str, Any] = {"format": {"type": "audio/pcm", "rate": input_rate_hz}}
        audio_out: dict[str, Any] = {"format": {"type": "audio/pcm", "rate": 24_000}}
        if turn_detection is not msgspec.UNSET:
            audio_in["turn_detection"] = turn_detection
        if voice is not None:
            audio_out["voice"] = voice
        session |= {
            "type": "realtime",
            "output_modalities": ["audio"],
            "audio": {"input": audio_in, "output": audio_out},
        }
    else:
        session |= {"modalities": ["text", "audio"], "input_audio_format": "pcm16", "output_audio_format": "pcm16"}
        if turn_detection is not msgspec.UNSET:
            session["turn_detection"] = turn_detection
        if voice is not None:
            session["voice"] = voice
    if ref_audio is not None:
        session["ref_audio"] = ref_audio
    return session | (extra or {})
