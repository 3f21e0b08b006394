"""Decodes one media file in a process of its own, which its parent may kill.

Run as ``python -m omni_duplex_bench.media_worker``. Reads a JSON request from stdin. Writes to stdout one JSON line,
then the samples (little-endian int16 at 16 kHz, mono), then the JPEG frames one after the other.
"""

from __future__ import annotations

import fractions
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import av
import av.error
import msgspec
import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000
MAX_EDGE_PX = 640
_GAP_S = 0.05
"""A timestamp this far past the samples so far is a hole that silence fills; less is rounding."""


class Request(msgspec.Struct, frozen=True):
    """What to decode and within which bounds."""

    path: str
    max_duration_s: float
    max_memory_bytes: int
    want_frames: bool = True


class Reply(msgspec.Struct, omit_defaults=True):
    """The first line of the answer: either ``reason``, or sizes of what follows."""

    reason: str = ""
    samples: int = 0
    duration_s: float = 0.0
    frames: list[tuple[float, int]] = []
    warnings: list[str] = []


class RefusedError(Exception):
    """The file cannot be used; the text says why."""


@dataclass(slots=True)
class Decoded:
    """Samples, shape (n,), and frames; ``end_s`` is how far either track went."""

    pcm: NDArray[np.int16]
    frames: list[tuple[float, bytes]]
    end_s: float
    warnings: list[str]


def decode(request: Request) -> Decoded:
    """Decode both tracks. Raises RefusedError."""
    try:
        container = av.open(request.path)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise RefusedError(f"no readable media ({_words(error)})") from error
    with container:
        if not container.streams.audio:
            raise RefusedError("it has no audio track")
        promised_s = container.duration / 1e6 if container.duration else None
        if promised_s is not None and promised_s > request.max_duration_s:
            raise RefusedError(f"it lasts {promised_s:.1f} s, more than the {request.max_duration_s:g} s allowed")
        sink = _Sink(request, (container.start_time or 0) / 1e6, bool(container.streams.video))
        audio = container.streams.audio[0]
        streams: list[Any] = [audio]
        if request.want_frames and container.streams.video:
            video = container.streams.video[0]
            video.thread_type = "AUTO"
            streams.append(video)
        try:
            for packet in container.demux(streams):
                for frame in packet.decode():
                    sink.take(frame)
        except av.error.FFmpegError as error:
            sink.warnings.append(f"decoding stopped early: {_words(error)}")
    return sink.finish(promised_s)


class _Sink:
    def __init__(self, request: Request, origin_s: float, has_video: bool) -> None:
        self._request, self._origin_s, self._has_video = request, origin_s, has_video
        self._resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
        self._parts: list[NDArray[np.int16]] = []
        self._count = 0
        self._heard_first = False
        self._frames: list[tuple[float, bytes]] = []
        self._slot = 0
        self._candidate: av.VideoFrame | None = None
        self._video_end_s = 0.0
        self.warnings: list[str] = []

    def take(self, frame: Any) -> None:
        if isinstance(frame, av.AudioFrame):
            self._audio(frame)
        elif isinstance(frame, av.VideoFrame):
            self._video(frame)

    def _audio(self, frame: av.AudioFrame) -> None:
        if frame.pts is not None and frame.time_base is not None:
            at = round((float(frame.pts * frame.time_base) - self._origin_s) * RATE_HZ)
            if at - self._count > _GAP_S * RATE_HZ:
                self._bound(at / RATE_HZ)
                self._put(np.zeros(at - self._count, np.int16))
        # The resampler counts timestamps of its own; ours decide where samples go.
        frame.pts = None
        for out in self._resampler.resample(frame):
            self._put(out.to_ndarray().reshape(-1).astype(np.int16))
        self._bound(self._count / RATE_HZ)

    def _put(self, samples: NDArray[np.int16]) -> None:
        self._parts.append(samples)
        self._count += len(samples)

    def _video(self, frame: av.VideoFrame) -> None:
        at_s = (frame.time or 0.0) - self._origin_s
        self._bound(at_s)
        while at_s > self._slot + 0.5:
            self._emit(self._candidate or frame)
        self._candidate = frame
        self._video_end_s = max(self._video_end_s, at_s)

    def _emit(self, frame: av.VideoFrame) -> None:
        self._frames.append((self._slot + 0.5, jpeg(frame)))
        self._slot += 1

    def _bound(self, at_s: float) -> None:
        if at_s > self._request.max_duration_s + 1:
            raise RefusedError(f"it goes on past the {self._request.max_duration_s:g} s allowed")

    def finish(self, promised_s: float | None) -> Decoded:
        for out in self._resampler.resample(None):
            self._put(out.to_ndarray().reshape(-1).astype(np.int16))
        if not self._count:
            raise RefusedError("no audio could be decoded")
        if self._candidate is not None and self._slot + 0.5 <= self._video_end_s + 0.5:
            self._emit(self._candidate)
        end_s = max(self._count / RATE_HZ, self._video_end_s)
        if promised_s is not None and end_s < 0.9 * promised_s - 0.5:
            self.warnings.append(f"the header promises {promised_s:.1f} s, only {end_s:.1f} s could be decoded")
        if self._has_video and self._count / RATE_HZ < self._video_end_s - 0.5:
            self.warnings.append(f"the audio ends at {self._count / RATE_HZ:.1f} s, before the video")
        pcm = np.concatenate(self._parts)
        whole = -(-round(end_s * RATE_HZ) // RATE_HZ) * RATE_HZ
        return Decoded(np.pad(pcm, (0, max(0, whole - len(pcm)))), self._frames, end_s, self.warnings)


def jpeg(frame: av.VideoFrame) -> bytes:
    """One frame as JPEG, upright, its longer edge at most 640 px."""
    scale = min(1.0, MAX_EDGE_PX / max(frame.width, frame.height))
    size = [max(2, round(edge * scale / 2) * 2) for edge in (frame.width, frame.height)]
    turns = round((frame.rotation or 0) / 90) % 4
    small = frame.reformat(width=size[0], height=size[1], format="rgb24")
    # The display matrix's angle is counter-clockwise, as numpy's quarter turns are.
    upright = np.ascontiguousarray(np.rot90(small.to_ndarray(), turns), dtype=np.uint8)
    picture = av.VideoFrame.from_ndarray(upright, format="rgb24").reformat(format="yuvj420p")
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = picture.width, picture.height, "yuvj420p"
    encoder.time_base = fractions.Fraction(1, 1)
    picture.pts = 0
    return b"".join(bytes(packet) for packet in [*encoder.encode(picture), *encoder.encode(None)])


def _words(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def answer(request: Request) -> Iterator[bytes]:
    """The bytes of the answer, piece by piece."""
    try:
        decoded = decode(request)
    except RefusedError as error:
        yield msgspec.json.encode(Reply(reason=str(error))) + b"\n"
        return
    except MemoryError:
        yield msgspec.json.encode(Reply(reason="decoding it takes more memory than allowed")) + b"\n"
        return
    sizes = [(at, len(data)) for at, data in decoded.frames]
    reply = Reply("", len(decoded.pcm), len(decoded.pcm) / RATE_HZ, sizes, decoded.warnings)
    yield msgspec.json.encode(reply) + b"\n"
    yield decoded.pcm.astype("<i2").tobytes()
    for _, data in decoded.frames:
        yield data


def main() -> None:
    """Entry point of the worker."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    resource.setrlimit(resource.RLIMIT_AS, (request.max_memory_bytes, request.max_memory_bytes))
    av.logging.set_level(av.logging.PANIC)
    for piece in answer(request):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
