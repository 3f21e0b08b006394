"""The two spellings of the realtime protocol's events, and how a client says which one it speaks.

GA names are OpenAI's general-availability interface; the older ones are those of ``OpenAI-Beta: realtime=v1``. A
connection speaks one of them from its handshake to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

BETA_HEADER_VALUE = "realtime=v1"
BETA_SUBPROTOCOL = "openai-beta.realtime-v1"


class Dialect(Enum):
    """Which names a connection uses."""

    GA = "ga"
    BETA = "beta"


_BETA_NAMES = {
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "conversation.item.added": "conversation.item.created",
}

_NOT_IN_BETA = frozenset({"conversation.item.done"})


def dialect_of(beta_header: str | None, subprotocols: Sequence[str], native_duplex: str | None) -> Dialect:
    """What the handshake announces: the beta header, its subprotocol, or the older clients' ``native_duplex`` flag."""
    header = beta_header is not None and BETA_HEADER_VALUE in [part.strip() for part in beta_header.split(",")]
    if header or BETA_SUBPROTOCOL in subprotocols or native_duplex == "1":
        return Dialect.BETA
    return Dialect.GA


def spelled(name: str, dialect: Dialect) -> str | None:
    """An event's name in a dialect; None where the dialect has no such event."""
    if dialect is Dialect.GA:
        return name
    if name in _NOT_IN_BETA:
        return None
    return _BETA_NAMES.get(name, name)
