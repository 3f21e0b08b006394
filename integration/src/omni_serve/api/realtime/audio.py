"""Wire audio to the engine's 16 kHz and the engine's 24 kHz to wire audio, keeping state across pieces."""

from __future__ import annotations

import numpy as np
import soxr  # type: ignore[import-untyped]
from numpy.typing import NDArray

from omni_serve.api.realtime.fields import WireError
from omni_serve.api.realtime.session_settings import AudioFormat
from omni_serve.contract import INPUT_RATE_HZ, OUTPUT_RATE_HZ, Pcm


def _mu_law() -> NDArray[np.int16]:
    """ITU-T G.711 µ-law: 8 bits to 16."""
    code = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    magnitude = ((mantissa << 3) + 0x84 << exponent) - 0x84
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _a_law() -> NDArray[np.int16]:
    """ITU-T G.711 A-law: 8 bits to 16."""
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent, mantissa = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    magnitude = np.where(exponent == 0, (mantissa << 4) + 8, (mantissa << 4) + 0x108 << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


_TABLES = {"pcmu": _mu_law(), "pcma": _a_law()}


def _companded(pcm: Pcm, table: NDArray[np.int16]) -> bytes:
    """The nearest code of every sample, by its place among the table's sorted values."""
    order = np.argsort(table, kind="stable")
    levels = table[order].astype(np.int32)
    samples = pcm.astype(np.int32)
    right = np.clip(np.searchsorted(levels, samples), 1, levels.size - 1)
    nearer = np.where(samples - levels[right - 1] <= levels[right] - samples, right - 1, right)
    return bytes(order[nearer].astype(np.uint8).tobytes())


class InputAudio:
    """Decodes and resamples appended audio. A change of rate in between flushes the old rate's tail first."""

    def __init__(self) -> None:
        self._rate_hz = INPUT_RATE_HZ
        self._stream: soxr.ResampleStream | None = None

    def take(self, data: bytes, declared: AudioFormat, rate_hz: int | None) -> Pcm:
        """The 16 kHz samples that are ready after these bytes.

        Raises:
            WireError: An odd number of bytes of 16-bit audio, or a rate beside G.711's own.
        """
        if declared.encoding != "pcm":
            if rate_hz not in (None, declared.rate_hz):
                raise WireError(
                    f"sample_rate_hz is {rate_hz}, but the session declared G.711, which is {declared.rate_hz} Hz",
                    param="sample_rate_hz",
                )
            samples: Pcm = _TABLES[declared.encoding][np.frombuffer(data, np.uint8)]
        else:
            if len(data) % 2:
                raise WireError(
                    f"audio has {len(data)} bytes; 16-bit samples need an even number", param="audio", code="odd_audio"
                )
            samples = np.frombuffer(data, "<i2").astype(np.int16, copy=False)
        rate = rate_hz or declared.rate_hz
        parts = [] if rate == self._rate_hz else [self.flush()]
        if rate != self._rate_hz:
            self._rate_hz = rate
            self._stream = soxr.ResampleStream(rate, INPUT_RATE_HZ, 1, dtype="int16") if rate != INPUT_RATE_HZ else None
        parts.append(samples if self._stream is None else self._stream.resample_chunk(samples))
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def flush(self) -> Pcm:
        """What the resampler still holds; it starts anew."""
        if self._stream is None:
            return np.zeros(0, np.int16)
        tail: Pcm = self._stream.resample_chunk(np.zeros(0, np.int16), last=True)
        self._stream = soxr.ResampleStream(self._rate_hz, INPUT_RATE_HZ, 1, dtype="int16")
        return tail


class OutputAudio:
    """Encodes one reply's 24 kHz speech in the session's output format."""

    def __init__(self, form: AudioFormat) -> None:
        self._form = form
        self._stream = (
            soxr.ResampleStream(OUTPUT_RATE_HZ, form.rate_hz, 1, dtype="int16")
            if form.rate_hz != OUTPUT_RATE_HZ
            else None
        )

    def give(self, pcm: Pcm, *, last: bool = False) -> bytes:
        """Wire bytes that are ready after these samples."""
        samples = pcm if self._stream is None else self._stream.resample_chunk(pcm, last=last)
        if self._form.encoding == "pcm":
            return bytes(samples.astype("<i2", copy=False).tobytes())
        return _companded(samples, _TABLES[self._form.encoding])
