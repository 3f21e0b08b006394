"""What the four parts of a voice promise, whatever model is behind them.

A part is driven by one stage process. It holds its weights until ``close()`` and starts no work of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from omni_serve.contract import Message, Pcm

FRAME_SAMPLES = 512
"""A detector's frame: 32 ms at 16 kHz."""

FRAME_MS = 32

Waveform = NDArray[np.float32]
"""Shape (samples,), mono, -1 to 1."""

Stop = Callable[[], bool]
"""Asked between pieces of work; True means that nobody wants the rest."""


class Detector(Protocol):
    """Says how likely a frame is speech. Holds the state of one stream of frames."""

    def probability(self, frame: Pcm) -> float:
        """Probability of speech, 0 to 1, in ``FRAME_SAMPLES`` samples at 16 kHz."""
        ...

    def reset(self) -> None:
        """Forget the stream so far."""
        ...


@dataclass(frozen=True, slots=True)
class HeardSegment:
    """Words and where they were in the audio, in seconds from its start."""

    start_s: float
    end_s: float
    text: str


class Transcriber(Protocol):
    """Turns speech at 16 kHz into text."""

    language: str

    def transcribe(self, pcm: Pcm, stop: Stop) -> tuple[HeardSegment, ...]:
        """The segments of any length of audio; fewer when ``stop`` says so. Silence gives none."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """A conversation to answer. None leaves the part's own default."""

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyPiece:
    """The next piece of an answer. The last one carries ``finish`` and the counts."""

    text: str
    finish: Literal["stop", "length", "cancelled"] | None = None
    tokens_in: int = 0
    tokens_out: int = 0


class Replier(Protocol):
    """Answers a conversation with text, a piece at a time. Calls from several threads run side by side."""

    def reply(self, request: ReplyRequest, stop: Stop) -> Iterator[ReplyPiece]:
        """Yield pieces until one with ``finish``. Raises InvalidRequestError for what the model cannot take."""
        ...

    def close(self) -> None: ...


class Speaker(Protocol):
    """Speaks a clause at 24 kHz."""

    def speak(self, text: str, speed: float) -> Pcm:
        """The clause as audio; empty when the text has nothing to pronounce."""
        ...

    def close(self) -> None: ...
