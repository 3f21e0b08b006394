"""What a session was told: session.update in either dialect's shape, and the session object sent back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from omni_serve.api.realtime.commands import MAX_RATE_HZ, MIN_RATE_HZ, max_tokens, modalities
from omni_serve.api.realtime.dialect import Dialect
from omni_serve.api.realtime.fields import Fields, WireError
from omni_serve.contract import OUTPUT_RATE_HZ, SessionOptions, TurnDetection

Encoding = Literal["pcm", "pcmu", "pcma"]

WIRE_RATE_HZ = 24_000
"""The rate of a session that declares no format (OpenAI's rule)."""

G711_RATE_HZ = 8_000

_BETA_FORMATS: dict[str, Encoding] = {"pcm16": "pcm", "g711_ulaw": "pcmu", "g711_alaw": "pcma"}


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Encoding and rate of one direction."""

    encoding: Encoding = "pcm"
    rate_hz: int = WIRE_RATE_HZ


@dataclass(frozen=True, slots=True)
class WireSession:
    """A session's settings as the wire knows them; ``options`` is what the engine gets."""

    model: str
    options: SessionOptions = field(default_factory=SessionOptions)
    input: AudioFormat = field(default_factory=AudioFormat)
    output: AudioFormat = field(default_factory=lambda: AudioFormat("pcm", OUTPUT_RATE_HZ))
    voice: str = "joe"
    detection_type: str = "server_vad"


def updated(current: WireSession, raw: Mapping[str, Any]) -> WireSession:
    """The session after a session.update; fields that it leaves out stay.

    Raises:
        WireError: A value that cannot be, or a thing this server does not do (tools). Nothing changes then.
    """
    session = Fields(raw, "session")
    kind = session.text("type")
    if kind not in (None, "realtime"):
        raise WireError(f"session.type is {kind!r}; this server has realtime sessions", param="session.type")
    if session.array("tools"):
        raise WireError("this server calls no tools; leave session.tools empty", param="session.tools")
    audio_in = session.object("audio").object("input")
    audio_out = session.object("audio").object("output")
    options = current.options
    instructions = session.text("instructions")
    speed = audio_out.number("speed", low=0.25, high=1.5) or session.number("speed", low=0.25, high=1.5)
    options = replace(
        options,
        instructions=options.instructions if instructions is None else instructions,
        modalities=modalities(session) or options.modalities,
        speed=speed or options.speed,
    )
    if "max_output_tokens" in session or "max_response_output_tokens" in session:
        options = replace(options, max_output_tokens=max_tokens(session))
    if "temperature" in session:
        options = replace(options, temperature=session.number("temperature", low=0.0, high=2.0))
    detection_type = current.detection_type
    for holder in (session, audio_in):
        if "turn_detection" in holder:
            detection, detection_type = _detection(holder, options.turn_detection)
            options = replace(options, turn_detection=detection)
    return replace(
        current,
        options=options,
        input=_format(audio_in, session, "input_audio_format", current.input),
        output=_format(audio_out, session, "output_audio_format", current.output),
        voice=_voice(audio_out) or _voice(session) or current.voice,
        detection_type=detection_type,
    )


def rendered(
    session: WireSession,
    dialect: Dialect,
    *,
    session_id: str,
    expires_at: int,
    capabilities: Mapping[str, Any],
    resume_token: str | None,
) -> dict[str, Any]:
    """The session object of session.created and session.updated."""
    options = session.options
    bound: int | str = options.max_output_tokens or "inf"
    detection = _rendered_detection(session)
    common: dict[str, Any] = {
        "object": "realtime.session",
        "id": session_id,
        "model": session.model,
        "instructions": options.instructions,
        "tools": [],
        "tool_choice": "none",
        "expires_at": expires_at,
        "capabilities": dict(capabilities),
    }
    if resume_token is not None:
        common["resume_token"] = resume_token
    if dialect is Dialect.BETA:
        beta = {encoding: name for name, encoding in _BETA_FORMATS.items()}
        return common | {
            "modalities": ["text", "audio"] if "audio" in options.modalities else ["text"],
            "voice": session.voice,
            "input_audio_format": beta[session.input.encoding],
            "output_audio_format": beta[session.output.encoding],
            "input_audio_transcription": {"model": "whisper-tiny.en"},
            "turn_detection": detection,
            "temperature": options.temperature,
            "max_response_output_tokens": bound,
        }
    return common | {
        "type": "realtime",
        "output_modalities": list(options.modalities),
        "max_output_tokens": bound,
        "audio": {
            "input": {
                "format": _rendered_format(session.input),
                "transcription": {"model": "whisper-tiny.en", "language": "en"},
                "noise_reduction": None,
                "turn_detection": detection,
            },
            "output": {
                "format": _rendered_format(session.output),
                "voice": session.voice,
                "speed": options.speed,
            },
        },
    }


def _voice(holder: Fields) -> str | None:
    voice = holder.get("voice")
    if isinstance(voice, Mapping):
        voice = voice.get("id")
    if voice is not None and not isinstance(voice, str):
        raise WireError(f"{holder.path('voice')} must be text", param=holder.path("voice"))
    return voice


def _detection(holder: Fields, before: TurnDetection | None) -> tuple[TurnDetection | None, str]:
    if holder["turn_detection"] is None:
        return None, "server_vad"
    given = holder.object("turn_detection")
    kind = given.text("type") or "server_vad"
    if kind not in ("server_vad", "semantic_vad"):
        raise WireError(
            f"{given.path('type')} is {kind!r}; it must be server_vad or semantic_vad", param=given.path("type")
        )
    base = before or TurnDetection()
    threshold = given.number("threshold", low=0.0, high=1.0)
    silence = given.integer("silence_duration_ms", low=100, high=10_000)
    prefix = given.integer("prefix_padding_ms", low=0, high=5_000)
    create, interrupt = given.flag("create_response"), given.flag("interrupt_response")
    return TurnDetection(
        threshold=base.threshold if threshold is None else threshold,
        silence_ms=base.silence_ms if silence is None else silence,
        prefix_ms=base.prefix_ms if prefix is None else prefix,
        create_response=base.create_response if create is None else create,
        interrupt_response=base.interrupt_response if interrupt is None else interrupt,
    ), kind


def _rendered_detection(session: WireSession) -> dict[str, Any] | None:
    detection = session.options.turn_detection
    if detection is None:
        return None
    shared = {
        "type": session.detection_type,
        "create_response": detection.create_response,
        "interrupt_response": detection.interrupt_response,
    }
    if session.detection_type == "semantic_vad":
        return shared | {"eagerness": "auto"}
    return shared | {
        "threshold": detection.threshold,
        "prefix_padding_ms": detection.prefix_ms,
        "silence_duration_ms": detection.silence_ms,
    }


def _format(ga: Fields, session: Fields, beta_name: str, before: AudioFormat) -> AudioFormat:
    beta = session.text(beta_name)
    if beta is not None:
        encoding = _BETA_FORMATS.get(beta)
        if encoding is None:
            raise WireError(
                f"session.{beta_name} is {beta!r}; it must be one of {', '.join(_BETA_FORMATS)}",
                param=f"session.{beta_name}",
            )
        return AudioFormat(encoding, WIRE_RATE_HZ if encoding == "pcm" else G711_RATE_HZ)
    if ga.get("format") is None:
        return before
    given = ga["format"]
    fields = Fields({"type": given}, ga.path("format")) if isinstance(given, str) else ga.object("format")
    kind = fields.text("type", required=True)
    if kind in ("audio/pcmu", "audio/pcma"):
        return AudioFormat("pcmu" if kind.endswith("u") else "pcma", G711_RATE_HZ)
    if kind not in ("audio/pcm", "pcm16"):
        raise WireError(
            f"{fields.path('type')} is {kind!r}; it must be audio/pcm, audio/pcmu or audio/pcma",
            param=fields.path("type"),
        )
    return AudioFormat("pcm", fields.integer("rate", low=MIN_RATE_HZ, high=MAX_RATE_HZ) or WIRE_RATE_HZ)


def _rendered_format(given: AudioFormat) -> dict[str, Any]:
    return (
        {"type": "audio/pcm", "rate": given.rate_hz} if given.encoding == "pcm" else {"type": f"audio/{given.encoding}"}
    )
