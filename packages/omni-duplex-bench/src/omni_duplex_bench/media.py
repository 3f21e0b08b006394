"""Decodes media files through a worker process that is killed when it takes too long."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from omni_duplex_bench.audio import Pcm
from omni_duplex_bench.errors import MediaError, MediaTimeoutError
from omni_duplex_bench.media_worker import RATE_HZ, Reply, Request


@dataclass(frozen=True, slots=True)
class MediaConfig:
    """Bounds of decoding. ``max_memory_bytes`` is the worker's address space."""

    timeout_s: float = 600.0
    max_duration_s: float = 3600.0
    max_memory_bytes: int = 8 * 1024**3
    want_frames: bool = True


@dataclass(frozen=True, slots=True)
class Media:
    """Mono samples at 16 kHz in whole seconds, shape (samples,), and one upright JPEG a second with its time."""

    pcm: Pcm
    frames: tuple[tuple[float, bytes], ...]
    duration_s: float
    warnings: tuple[str, ...]

    rate_hz: int = RATE_HZ


def decode_media(path: str | os.PathLike[str], config: MediaConfig | None = None) -> Media:
    """Decode a file's first audio track, and its first video track to one frame a second, taken mid-second.

    Raises:
        MediaTimeoutError: If the worker ran past its deadline; it was killed.
        MediaError: If the file is not regular, empty, not media, without audio, too long, or crashed the decoder.
    """
    config = config or MediaConfig()
    _check_regular(path)
    request = Request(os.fspath(path), config.max_duration_s, config.max_memory_bytes, config.want_frames)
    command = [sys.executable, "-m", "omni_duplex_bench.media_worker"]
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(request), capture_output=True, timeout=config.timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise MediaTimeoutError(path, f"decoding took longer than {config.timeout_s:g} s and was stopped") from error
    head, newline, body = done.stdout.partition(b"\n")
    if done.returncode or not newline:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise MediaError(path, f"the decoder ended with status {done.returncode}: {last[0]}")
    reply = msgspec.json.decode(head, type=Reply)
    if reply.reason:
        raise MediaError(path, reply.reason)
    pcm = np.frombuffer(body[: reply.samples * 2], "<i2").astype(np.int16)
    frames, at = [], reply.samples * 2
    for time_s, size in reply.frames:
        frames.append((time_s, body[at : at + size]))
        at += size
    if at != len(body):
        raise MediaError(path, f"the decoder announced {at} bytes and gave {len(body)}")
    return Media(pcm, tuple(frames), reply.duration_s, tuple(reply.warnings))


def _check_regular(path: str | os.PathLike[str]) -> None:
    try:
        info = Path(path).stat()
    except OSError as error:
        raise MediaError(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(info.st_mode):
        raise MediaError(path, "not a regular file")
    if not info.st_size:
        raise MediaError(path, "the file is empty")
