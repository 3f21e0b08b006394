"""Mono 16-bit PCM in memory: alignment, resampling, and where in a recording somebody speaks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import soxr  # type: ignore[import-untyped]
from numpy.typing import NDArray

from omni_duplex_bench.errors import AudioFormatError

Pcm = NDArray[np.int16]
"""Shape (samples,), mono, signed 16-bit."""

BYTES_PER_SAMPLE = 2
FRAME_S = 0.02
"""Length of the frames whose energy is compared."""

SPEECH_METHOD = (
    "energy of 20 ms frames: speech is above max(peak - 35 dB, min(quietest 5 % + 6 dB, peak - 12 dB), -60 dBFS);"
    " gaps under 300 ms are joined, bursts under 60 ms dropped"
)
"""How :func:`speech_intervals` decides, in words that go into results."""


class Aligner:
    """Joins byte chunks of 16-bit samples whose borders may fall inside a sample.

    An odd byte is kept for the next chunk (openai/openai-agents-python#2456).
    """

    __slots__ = ("_odd",)

    def __init__(self) -> None:
        self._odd = b""

    @property
    def pending_bytes(self) -> int:
        """Bytes held back: 0 or 1."""
        return len(self._odd)

    def feed(self, chunk: bytes) -> bytes:
        """Return the whole samples that are complete with ``chunk``."""
        joined = self._odd + chunk if self._odd else chunk
        cut = len(joined) - len(joined) % BYTES_PER_SAMPLE
        self._odd = joined[cut:]
        return joined[:cut]


@dataclass(frozen=True, slots=True)
class Interval:
    """A half-open stretch of time in seconds."""

    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """Length, never negative."""
        return max(0.0, self.end_s - self.start_s)


def to_pcm16(samples: NDArray[np.float32]) -> Pcm:
    """Scale float samples in [-1, 1] to int16, clipping what is outside and silencing NaN."""
    clean = np.nan_to_num(samples, nan=0.0, posinf=1.0, neginf=-1.0)
    return np.asarray(np.clip(np.rint(clean * 32768.0), -32768, 32767), dtype=np.int16)


def resample(pcm: Pcm, from_hz: int, to_hz: int) -> Pcm:
    """Resample a whole recording. Length is round(n · to / from); the level is kept.

    Raises:
        AudioFormatError: If a rate is not positive.
    """
    if from_hz <= 0 or to_hz <= 0:
        raise AudioFormatError(f"sample rates must be positive, got {from_hz} and {to_hz}")
    if from_hz == to_hz or not len(pcm):
        return pcm
    out = np.asarray(soxr.resample(pcm, from_hz, to_hz), dtype=np.int16)
    wanted = round(len(pcm) * to_hz / from_hz)
    if len(out) < wanted:
        return np.concatenate([out, np.zeros(wanted - len(out), np.int16)])
    return out[:wanted]


class StreamResampler:
    """Resamples chunk by chunk without clicks at the borders; ``flush`` returns the filter's tail."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        if from_hz <= 0 or to_hz <= 0:
            raise AudioFormatError(f"sample rates must be positive, got {from_hz} and {to_hz}")
        self._same = from_hz == to_hz
        self._stream = None if self._same else soxr.ResampleStream(from_hz, to_hz, 1, dtype="int16")

    def feed(self, pcm: Pcm, *, last: bool = False) -> Pcm:
        """Return the samples ready so far."""
        if self._stream is None:
            return pcm
        return np.asarray(self._stream.resample_chunk(pcm, last=last), dtype=np.int16)

    def flush(self) -> Pcm:
        """Return what the filter still holds."""
        return self.feed(np.zeros(0, np.int16), last=True)


def frame_levels_db(pcm: Pcm, rate_hz: int) -> NDArray[np.float64]:
    """RMS of each 20 ms frame in dB below full scale; digital silence is -120. Shape (frames,)."""
    size = max(1, round(rate_hz * FRAME_S))
    count = -(-len(pcm) // size)
    if not count:
        return np.zeros(0)
    padded = np.zeros(count * size, np.float64)
    padded[: len(pcm)] = pcm / 32768.0
    rms = np.sqrt(np.mean(padded.reshape(count, size) ** 2, axis=1))
    return np.asarray(20.0 * np.log10(np.maximum(rms, 1e-6)), dtype=np.float64)


def speech_intervals(pcm: Pcm, rate_hz: int, *, join_s: float = 0.3, drop_s: float = 0.06) -> tuple[Interval, ...]:
    """Where the recording holds speech, by energy alone (see :data:`SPEECH_METHOD`); empty for silence.

    The same file gives the same intervals whatever the server thinks, so runs against different servers compare.
    """
    levels = frame_levels_db(pcm, rate_hz)
    if not len(levels) or levels.max() <= -60.0:
        return ()
    peak, noise = float(levels.max()), float(np.percentile(levels, 5))
    threshold = max(peak - 35.0, min(noise + 6.0, peak - 12.0), -60.0)
    loud = np.flatnonzero(levels > threshold)
    runs: list[Interval] = []
    for frame in loud.tolist():
        start, end = frame * FRAME_S, (frame + 1) * FRAME_S
        if runs and start - runs[-1].end_s < join_s:
            runs[-1] = Interval(runs[-1].start_s, end)
        else:
            runs.append(Interval(start, end))
    length_s = len(pcm) / rate_hz
    return tuple(Interval(r.start_s, min(r.end_s, length_s)) for r in runs if r.duration_s >= drop_s)
