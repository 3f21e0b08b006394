"""Single requests and their answers, and the state of the deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from omni_serve.contract.audio import Role
from omni_serve.contract.session import StageMetrics


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A text completion over a conversation. ``seed``: −2⁶³…2⁶³−1; ``max_tokens`` ≥ 1."""

    messages: tuple[Message, ...]
    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatPiece:
    """A piece of a completion; the last one has a ``finish_reason`` and the counts."""

    text: str
    finish_reason: Literal["stop", "length"] | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    metrics: StageMetrics | None = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """Speech as text. ``segments``: (start_s, end_s, text)."""

    text: str
    duration_s: float
    language: str
    segments: tuple[tuple[float, float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MediaRequest:
    """A diffusion request; None leaves the pipeline's own default."""

    prompt: str
    model: str | None = None
    negative_prompt: str | None = None
    width: int | None = None
    height: int | None = None
    num_frames: int | None = None
    audio_length_s: float | None = None
    audio_start_s: float | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    seed: int | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class MediaResult:
    """What a diffusion stage made.

    Attributes:
        kind: image (count, height, width, 3) uint8; audio (count, samples, channels) float32 in −1…1;
            video (count, frames, height, width, 3) uint8.
        data: The array.
        rate: Samples per second of audio, frames per second of video, 0 for images.
        seeds: The seed of each item, so that a caller can ask for it again.
    """

    kind: Literal["image", "audio", "video"]
    data: NDArray[np.generic]
    rate: float
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model a client may name."""

    id: str
    kind: Literal["voice", "text", "speech", "transcription", "image", "audio", "video"]
    stage: str


@dataclass(frozen=True, slots=True)
class StageHealth:
    """One stage's state: live and wanted replicas, restarts so far, and what it is doing when it is not live."""

    stage: str
    live: int
    wanted: int
    restarts: int
    asleep: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The deployment's state. ``ready`` is false when a needed stage has no live replica."""

    ready: bool
    draining: bool
    stages: tuple[StageHealth, ...]
