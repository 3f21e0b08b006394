"""What a scripted server does: its settings, its faults, and the sound it speaks with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from omni_duplex_bench.audio import Pcm
from omni_duplex_bench.events import Dialect

FaultKind = Literal["late", "duplicate", "reorder", "drop", "malformed", "junk", "close", "stall"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Break the ``nth`` (from 0) event of ``event_type`` that a session sends.

    ``late`` delays it by ``delay_s`` (and all after it), ``duplicate`` sends it twice, ``reorder`` swaps it with the
    next, ``drop`` leaves it out, ``malformed`` sends it without its ids and payload, ``junk`` sends bytes that are no
    JSON in its place, ``close`` ends the connection there, ``stall`` blocks the whole event loop for ``delay_s`` first.
    """

    event_type: str
    kind: FaultKind
    nth: int = 0
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Script:
    """A server's behaviour.

    Attributes:
        dialect: Which event names it speaks.
        extended: Announce capabilities (chunk period, playback acks, video) as vLLM-Omni and omni-serve do.
        turns: ``server`` ends turns with an energy detector, ``commit`` waits for commits.
        decide: What a turn leads to: ``respond``, ``listen`` (the model's choice), ``buffer`` (listening for ever),
            ``nothing``.
        think_s: From the end of the turn to response.created; ``first_audio_s`` from there to the first audio.
        reply_s: Length of the answer, sent in ``delta_ms`` pieces at ``speed`` times real time (0: at once).
        odd_bytes: Cut deltas inside samples.
        overlap: Defer commits that come while a response runs, instead of interrupting it.
        interrupt: Speech during a response cancels it (server turns only).
        session_limit_s: Expire sessions after this long.
        stage_metrics: Engine timing put into each response.done.
    """

    dialect: Dialect = "ga"
    extended: bool = True
    turns: Literal["server", "commit"] = "commit"
    decide: Literal["respond", "listen", "buffer", "nothing"] = "respond"
    think_s: float = 0.05
    first_audio_s: float = 0.05
    text: str = "All right, here is my answer."
    with_text: bool = True
    reply_s: float = 0.6
    delta_ms: int = 100
    speed: float = 4.0
    output_rate_hz: int = 24_000
    odd_bytes: bool = False
    overlap: bool = False
    interrupt: bool = True
    silence_s: float = 0.5
    chunk_period_ms: int = 1000
    session_limit_s: float | None = None
    cancel_style: Literal["done", "cancelled+done"] = "done"
    stage_metrics: dict[str, Any] | None = None
    faults: tuple[Fault, ...] = ()
    max_message_bytes: int = 64 * 1024 * 1024
    extra_events: tuple[dict[str, Any], ...] = field(default=())
    """Sent after session.created, for events a client has never heard of."""


def speechlike(duration_s: float, rate_hz: int, *, seed: int = 0, level: float = 0.3) -> Pcm:
    """A sound with the energy pattern of speech: a gliding tone with harmonics in syllables. Shape (samples,)."""
    t = np.arange(round(duration_s * rate_hz)) / rate_hz
    pitch = 120.0 + 30.0 * np.sin(2 * np.pi * 0.7 * t + seed)
    phase = 2 * np.pi * np.cumsum(pitch) / rate_hz
    voice = sum(np.sin(phase * harmonic) / harmonic for harmonic in range(1, 6))
    syllables = 0.65 + 0.35 * np.sin(2 * np.pi * 4.0 * t)
    return np.asarray(np.clip(voice * syllables * level * 16384, -32768, 32767), dtype=np.int16)
