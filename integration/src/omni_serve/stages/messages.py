"""Everything that travels between two processes of a deployment, as flat typed records.

``job`` names one piece of work (a reply, a transcription, a picture); ``session`` one conversation's ear. A stage that
does not know a job or session any more drops what is said about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Peer:
    """api → stage: another stage's process is there under this incarnation (0: it is gone)."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """api → stage: nobody wants the rest of this job."""

    job: str


@dataclass(frozen=True, slots=True)
class Failed:
    """stage → api: a job failed; ``code`` is empty for a fault of the stage, else the client's mistake."""

    job: str
    message: str
    code: str = ""
    field: str = ""


# -- the ear


@dataclass(frozen=True, slots=True)
class Listen:
    """api → listen: open a session's ear or give it new settings. ``detect`` false: turns are closed by hand."""

    session: str
    detect: bool
    threshold: float
    silence_ms: int
    prefix_ms: int


@dataclass(frozen=True, slots=True)
class Audio:
    """api → listen: input audio, (samples,) int16 at 16 kHz."""

    session: str
    pcm: Any


@dataclass(frozen=True, slots=True)
class Commit:
    """api → listen: close the turn by hand."""

    session: str
    turn: str


@dataclass(frozen=True, slots=True)
class Clear:
    """api → listen: forget the audio not yet committed."""

    session: str


@dataclass(frozen=True, slots=True)
class Leave:
    """api → listen: the session is over."""

    session: str


@dataclass(frozen=True, slots=True)
class Transcribe:
    """api → listen: write down a recording, (samples,) int16 at 16 kHz."""

    job: str
    pcm: Any


@dataclass(frozen=True, slots=True)
class Consumed:
    """listen → api: this many samples of the session have been looked at."""

    session: str
    samples: int


@dataclass(frozen=True, slots=True)
class SpeechOn:
    """listen → api: a turn began at this sample of the session's audio."""

    session: str
    at: int


@dataclass(frozen=True, slots=True)
class SpeechHeld:
    """listen → api: the open turn holds enough speech to be meant. ``decided_s``: CLOCK_MONOTONIC of the decision."""

    session: str
    at: int
    decided_s: float


@dataclass(frozen=True, slots=True)
class TurnOver:
    """listen → api: a turn is closed; Words with the same id follow."""

    session: str
    turn: str
    start: int
    end: int
    speech_end: int
    speech_ms: int
    by_hand: bool


@dataclass(frozen=True, slots=True)
class Words:
    """listen → api: the text of a turn (``session`` set) or of a recording. ``segments``: (start_s, end_s, text)."""

    session: str
    job: str
    segments: list[tuple[float, float, str]]
    busy_ms: float


# -- the mind


@dataclass(frozen=True, slots=True)
class Answer:
    """api → reply: continue a conversation; with ``speak_to``, clauses go to that stage as they are complete."""

    job: str
    messages: list[tuple[str, str]]
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    seed: int | None
    stop: list[str]
    speak_to: str
    speed: float


@dataclass(frozen=True, slots=True)
class Text:
    """reply → api: the next piece of text."""

    job: str
    text: str


@dataclass(frozen=True, slots=True)
class TextDone:
    """reply → api: the text is whole, with the counts and times of its making. ``clauses`` went to the mouth."""

    job: str
    finish: str
    tokens_in: int
    tokens_out: int
    ttft_ms: float | None
    itls_ms: list[float]
    busy_ms: float
    clauses: int


# -- the mouth


@dataclass(frozen=True, slots=True)
class Clause:
    """reply or api → speak: say this; ``last`` closes the job and may have no text."""

    job: str
    text: str
    speed: float
    last: bool


@dataclass(frozen=True, slots=True)
class Sound:
    """speak → api: the next piece of speech, (samples,) int16 at 24 kHz. ``text``: the clause, on its first piece."""

    job: str
    text: str
    pcm: Any


@dataclass(frozen=True, slots=True)
class SoundDone:
    """speak → api: the job's last clause has been spoken; ``taken`` arrived, ``clauses`` had something to say."""

    job: str
    taken: int
    clauses: int
    ttft_ms: float | None
    busy_ms: float


# -- pictures, sound and film


@dataclass(frozen=True, slots=True)
class Make:
    """api → media: run a diffusion pipeline; the fields of MediaRequest, None leaving the pipeline's own default."""

    job: str
    prompt: str
    negative_prompt: str | None
    width: int | None
    height: int | None
    num_frames: int | None
    audio_length_s: float | None
    audio_start_s: float | None
    num_inference_steps: int | None
    guidance_scale: float | None
    seed: int | None
    count: int


@dataclass(frozen=True, slots=True)
class Made:
    """media → api: what it made, in the layout of MediaResult."""

    job: str
    kind: str
    data: Any
    rate: float
    seeds: list[int]


WIRE_TYPES: tuple[type, ...] = (
    Peer,
    Cancel,
    Failed,
    Listen,
    Audio,
    Commit,
    Clear,
    Leave,
    Transcribe,
    Consumed,
    SpeechOn,
    SpeechHeld,
    TurnOver,
    Words,
    Answer,
    Text,
    TextDone,
    Clause,
    Sound,
    SoundDone,
    Make,
    Made,
)
"""What both ends of every edge register."""
