"""WAV files of every kind, and what is not one."""

from __future__ import annotations

import io
import os
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from omni_duplex_bench.errors import MediaError
from omni_duplex_bench.testing import speechlike
from omni_duplex_bench.wavfile import parse_wav, read_wav, wav_bytes

TONE = speechlike(0.25, 16_000)


def riff(code: int, bits: int, channels: int, rate: int, payload: bytes, *, extensible: bool = False) -> bytes:
    width = bits // 8
    head = struct.pack("<HHIIHH", code, channels, rate, rate * width * channels, width * channels, bits)
    if extensible:
        guid = struct.pack("<H", code) + b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
        head = struct.pack("<H", 0xFFFE) + head[2:] + struct.pack("<HHI", 22, bits, 0) + guid
    fmt = b"fmt " + struct.pack("<I", len(head)) + head
    odd = b"junk" + struct.pack("<I", 3) + b"abc\0"
    body = b"WAVE" + odd + fmt + b"data" + struct.pack("<I", len(payload)) + payload
    return b"RIFF" + struct.pack("<I", len(body)) + body


def encoded(code: int, bits: int) -> bytes:
    unit = TONE / 32768.0
    match code, bits:
        case 1, 8:
            return np.asarray(np.rint(unit * 128 + 128), np.uint8).tobytes()
        case 1, 16:
            return TONE.astype("<i2").tobytes()
        case 1, 24:
            return b"".join(int(v * 256).to_bytes(3, "little", signed=True) for v in TONE.tolist())
        case 1, 32:
            return (TONE.astype("<i4") * 65536).tobytes()
        case _:
            return unit.astype(f"<f{bits // 8}").tobytes()


@pytest.mark.parametrize(("code", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)])
@pytest.mark.parametrize("extensible", [False, True])
def test_every_encoding_gives_the_same_samples(code: int, bits: int, extensible: bool) -> None:
    found = parse_wav(riff(code, bits, 1, 16_000, encoded(code, bits), extensible=extensible))
    assert found.rate_hz == 16_000
    assert np.abs(found.pcm.astype(int) - TONE).max() <= (300 if bits == 8 else 1)


def test_channels_are_mixed_and_odd_rates_kept() -> None:
    stereo = np.stack([TONE, np.zeros_like(TONE)], axis=1).astype("<i2").tobytes()
    found = parse_wav(riff(1, 16, 2, 11_025, stereo))
    assert found.rate_hz == 11_025
    assert np.abs(found.pcm.astype(int) - TONE // 2).max() <= 1


def test_what_is_written_reads_back() -> None:
    data = wav_bytes(TONE, 24_000)
    assert parse_wav(data).pcm.tolist() == TONE.tolist()
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)


def test_a_truncated_file_gives_what_is_there_and_a_warning() -> None:
    found = parse_wav(riff(1, 16, 1, 16_000, TONE.tobytes())[:-2001])
    assert len(found.pcm) == len(TONE) - 1001
    assert "promises" in found.warnings[0]


def test_a_streamed_header_without_sizes_is_read_to_the_end() -> None:
    data = riff(1, 16, 1, 16_000, TONE.tobytes()).replace(
        b"data" + struct.pack("<I", len(TONE) * 2), b"data" + b"\xff\xff\xff\xff"
    )
    found = parse_wav(data)
    assert len(found.pcm) == len(TONE)
    assert not found.warnings


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"junk" * 10, "not a WAV"),
        (b"RIFF\0\0\0\0WAVE", "no format"),
        (riff(1, 16, 1, 16_000, b""), "no samples"),
        (riff(85, 16, 1, 16_000, b"\0\0"), "neither PCM nor float"),
        (riff(1, 16, 0, 16_000, b"\0\0"), "make no sense"),
        (riff(1, 16, 1, 3, b"\0\0"), "make no sense"),
    ],
)
def test_what_is_no_usable_wav_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(MediaError, match=reason):
        parse_wav(data)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.wav"
    os.mkfifo(pipe)
    with pytest.raises(MediaError, match="not a regular file"):
        read_wav(pipe)
    with pytest.raises(MediaError, match="not a regular file"):
        read_wav(tmp_path)
    with pytest.raises(MediaError, match="No such file"):
        read_wav(tmp_path / "none.wav")
    good = tmp_path / "a.wav"
    good.write_bytes(wav_bytes(TONE, 16_000))
    assert read_wav(good).duration_s == pytest.approx(0.25)
