"""Reads any WAV (8 to 32-bit integers, floats, extensible, any rate and channels) and writes 16-bit mono."""

from __future__ import annotations

import io
import os
import stat
import struct
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omni_duplex_bench.audio import Pcm, to_pcm16
from omni_duplex_bench.errors import MediaError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
MAX_BYTES = 2 * 1024**3
"""Largest WAV that is read; a 32-bit RIFF cannot say much more."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Mono samples, shape (samples,), with their rate and what was odd about the file."""

    pcm: Pcm
    rate_hz: int
    warnings: tuple[str, ...] = ()

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return len(self.pcm) / self.rate_hz


def read_wav(path: str | os.PathLike[str]) -> Recording:
    """Read a WAV file and mix its channels down to one.

    Raises:
        MediaError: If it is no regular file, no WAV, of an encoding other than PCM and float, or holds no samples.
    """
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):
            raise MediaError(path, "not a regular file")
        if info.st_size > MAX_BYTES:
            raise MediaError(path, f"larger than {MAX_BYTES} bytes")
        data = Path(path).read_bytes()
    except OSError as error:
        raise MediaError(path, error.strerror or str(error)) from error
    return parse_wav(data, path)


def parse_wav(data: bytes, name: str | os.PathLike[str] = "<bytes>") -> Recording:
    """Like :func:`read_wav`, from memory. A data chunk longer than the file is a warning: what is there is used."""
    if not data:
        raise MediaError(name, "the file is empty")
    if len(data) < 12 or data[:4] not in (b"RIFF", b"RF64") or data[8:12] != b"WAVE":
        raise MediaError(name, "not a WAV file (no RIFF/WAVE header)")
    fmt: bytes | None = None
    position = 12
    while position + 8 <= len(data):
        chunk, size = data[position : position + 4], struct.unpack_from("<I", data, position + 4)[0]
        start = position + 8
        if chunk == b"fmt ":
            fmt = data[start : start + size]
        elif chunk == b"data":
            if fmt is None:
                raise MediaError(name, "samples come before their format")
            unknown_size = size in (0xFFFFFFFF, 0) or start + size > len(data)
            payload = data[start:] if unknown_size else data[start : start + size]
            promised = 0 if size in (0xFFFFFFFF, 0) else size
            return _decode(name, fmt, payload, promised)
        position = start + size + size % 2
    raise MediaError(name, "no samples in the file" if fmt else "no format in the file")


def _decode(name: str | os.PathLike[str], fmt: bytes, payload: bytes, promised: int) -> Recording:
    if len(fmt) < 16:
        raise MediaError(name, "its format is cut short")
    code, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", fmt)
    if code == _EXTENSIBLE and len(fmt) >= 26:
        code = struct.unpack_from("<H", fmt, 24)[0]
    if not channels or not 1000 <= rate_hz <= 768_000:
        raise MediaError(name, f"{channels} channels at {rate_hz} Hz make no sense")
    width = bits // 8
    count = len(payload) // (width * channels) if width else 0
    if not count:
        raise MediaError(name, "it holds no samples")
    samples = _samples(name, code, bits, payload[: count * width * channels])
    mono = samples.reshape(count, channels).mean(axis=1, dtype=np.float32) if channels > 1 else samples
    warnings: tuple[str, ...] = ()
    if promised > len(payload):
        warnings = (f"the header promises {promised} bytes of samples, the file holds {len(payload)}",)
    return Recording(to_pcm16(mono), rate_hz, warnings)


def _samples(name: str | os.PathLike[str], code: int, bits: int, payload: bytes) -> NDArray[np.float32]:
    if code == _PCM and bits == 8:
        return (np.frombuffer(payload, np.uint8).astype(np.float32) - 128.0) / 128.0
    if code == _PCM and bits == 16:
        return np.frombuffer(payload, "<i2").astype(np.float32) / 32768.0
    if code == _PCM and bits == 24:
        bytes3 = np.frombuffer(payload, np.uint8).reshape(-1, 3).astype(np.int32)
        value = (bytes3[:, 0] << 8) | (bytes3[:, 1] << 16) | (bytes3[:, 2] << 24)
        return (value / 2147483648.0).astype(np.float32)
    if code == _PCM and bits == 32:
        return (np.frombuffer(payload, "<i4") / 2147483648.0).astype(np.float32)
    if code == _FLOAT and bits == 32:
        return np.frombuffer(payload, "<f4").astype(np.float32)
    if code == _FLOAT and bits == 64:
        return np.frombuffer(payload, "<f8").astype(np.float32)
    raise MediaError(name, f"encoding {code} with {bits} bits is neither PCM nor float")


def wav_bytes(pcm: Pcm, rate_hz: int) -> bytes:
    """A 16-bit mono WAV in memory."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate_hz)
        out.writeframes(pcm.astype("<i2").tobytes())
    return buffer.getvalue()
