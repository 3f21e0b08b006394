"""One realtime conversation: its settings, what happens in it, and what may be asked of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from omni_serve.contract.audio import Modality, Pcm, ReplyStatus, Role


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """How the engine decides that the user's turn ended.

    Attributes:
        threshold: Probability above which a 32 ms frame is speech, 0 to 1.
        silence_ms: Silence that ends a turn.
        prefix_ms: Audio kept before the first speech frame.
        create_response: Answer a turn without being asked.
        interrupt_response: Speech during a reply stops it (barge-in).
    """

    threshold: float = 0.5
    silence_ms: int = 500
    prefix_ms: int = 200
    create_response: bool = True
    interrupt_response: bool = True


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """A realtime session's settings. ``turn_detection=None`` leaves turns to commit() and respond()."""

    instructions: str = ""
    turn_detection: TurnDetection | None = field(default_factory=TurnDetection)
    modalities: tuple[Modality, ...] = ("audio",)
    max_output_tokens: int | None = None
    temperature: float | None = None
    speed: float = 1.0
    reply_model: str | None = None


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """What one reply may override of its session; None keeps the session's value."""

    instructions: str | None = None
    modalities: tuple[Modality, ...] | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class StageMetrics:
    """Timing of one stage's share of a reply, in milliseconds, in the names that benchmarks read.

    ``num_tokens_out`` counts the tokens that were timed: n of them have n - 1 ``itls_ms``. 0 for stages without tokens.
    """

    num_tokens_out: int
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    itls_ms: tuple[float, ...] = ()
    busy_ms: float | None = None


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Speech began ``at_ms`` into the session's input audio. ``interrupts`` names the reply it stopped."""

    at_ms: int
    interrupts: str | None = None


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The turn's last speech frame ended ``at_ms`` into the session's input audio."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class TurnCommitted:
    """A user turn is closed and goes to speech-to-text. ``deferred``: a reply was active, answered after it."""

    turn_id: str
    audio_ms: int
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class Transcribed:
    """The text of a committed turn."""

    turn_id: str
    text: str
    audio_ms: int
    busy_ms: float


@dataclass(frozen=True, slots=True)
class Listening:
    """The engine's decision to go on listening instead of answering, and why."""

    turn_id: str | None
    reason: Literal["backchannel", "no_speech", "no_text", "not_requested"]


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """A reply was accepted. Exactly one ReplyDone with the same id follows, whatever happens."""

    reply_id: str
    turn_id: str | None


@dataclass(frozen=True, slots=True)
class ReplyText:
    """The next piece of the reply's text."""

    reply_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class ReplyAudio:
    """The next piece of the reply's speech at 24 kHz."""

    reply_id: str
    pcm: Pcm


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The end of a reply.

    ``reason`` says why where status is not ``completed`` (``turn_detected``, ``client_cancelled``,
    ``max_output_tokens``, or a fault in words). ``stages`` holds each stage's timing, "0" being the language model.
    """

    reply_id: str
    status: ReplyStatus
    text: str
    audio_ms: int
    reason: str | None = None
    tokens_in: int = 0
    stages: Mapping[str, StageMetrics] = field(default_factory=dict)
    tokens_out: int = 0


@dataclass(frozen=True, slots=True)
class SessionFault:
    """Something failed that no reply owns (a stage that listens died, say). ``fatal`` ends the session."""

    code: str
    message: str
    fatal: bool = False


SessionEvent = (
    SpeechStarted
    | SpeechStopped
    | TurnCommitted
    | Transcribed
    | Listening
    | ReplyStarted
    | ReplyText
    | ReplyAudio
    | ReplyDone
    | SessionFault
)


class Session(Protocol):
    """One full-duplex conversation. All calls are from the API's event loop."""

    @property
    def id(self) -> str:
        """A name unique to this server's life."""
        ...

    def events(self) -> AsyncIterator[SessionEvent]:
        """Yield what happens, in order, until close(). One reader; survives a reader that goes and comes back."""
        ...

    async def configure(self, options: SessionOptions) -> None:
        """Take new settings from the next frame and the next reply on."""
        ...

    async def append(self, pcm: Pcm) -> None:
        """Add input audio at 16 kHz. Waits when the listening stage is behind; never drops."""
        ...

    async def commit(self) -> str:
        """Close the user's turn by hand and return its id. Raises InvalidRequestError when nothing was appended."""
        ...

    async def clear(self) -> None:
        """Forget the input audio not yet committed."""
        ...

    async def add_message(self, role: Role, text: str) -> None:
        """Add text to the conversation without audio."""
        ...

    async def respond(self, options: ReplyOptions) -> str:
        """Start a reply to the conversation so far and return its id. Raises ActiveReplyError."""
        ...

    async def cancel(self) -> str | None:
        """Stop the active reply; None when there is none. Its ReplyDone follows as ``cancelled``."""
        ...

    async def truncate(self, reply_id: str, heard_ms: int) -> None:
        """Keep in the conversation only what the user heard of a reply."""
        ...

    async def played(self, reply_id: str, played_ms: int) -> None:
        """Take a playback position; one for a superseded reply is harmless."""
        ...

    async def close(self) -> None:
        """Free everything the session holds in every stage. Idempotent."""
        ...
