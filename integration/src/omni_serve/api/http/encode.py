"""Audio and video containers through PyAV, pictures as PNG."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from fractions import Fraction

import av
import numpy as np
from numpy.typing import NDArray

from omni_serve.contract import OUTPUT_RATE_HZ, Pcm

FORMATS = {
    "wav": ("wav", "pcm_s16le", "audio/wav", 24_000),
    "flac": ("flac", "flac", "audio/flac", 24_000),
    "mp3": ("mp3", "libmp3lame", "audio/mpeg", 24_000),
    "opus": ("ogg", "libopus", "audio/ogg", 48_000),
}
"""Response format: container, codec, media type, the rate the codec gets."""


class _Pipe(io.RawIOBase):
    """A sink that cannot seek, so that what is written can leave at once."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.data += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self.data)
        self.data.clear()
        return taken


class AudioEncoder:
    """Encodes speech piece by piece. Close it; it is a context manager.

    Args:
        name: One of FORMATS.
        rate_hz: Rate of what goes in.
        channels: 1 or 2.
    """

    def __init__(self, name: str, rate_hz: int = OUTPUT_RATE_HZ, channels: int = 1) -> None:
        container, codec, self.media_type, codec_rate = FORMATS[name]
        self._pipe = _Pipe()
        self._layout = "mono" if channels == 1 else "stereo"
        self._rate_hz, self._channels = rate_hz, channels
        self._out = av.open(self._pipe, mode="w", format=container)
        stream = self._out.add_stream(codec, rate=codec_rate if name == "opus" else rate_hz, layout=self._layout)
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        self._position = 0

    def give(self, pcm: NDArray[np.int16]) -> bytes:
        """What is ready after these samples; (samples,) or (samples, channels) int16."""
        if pcm.size:
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(pcm).reshape(1, -1), format="s16", layout=self._layout
            )
            frame.sample_rate = self._rate_hz
            frame.pts = self._position
            frame.time_base = Fraction(1, self._rate_hz)
            self._position += frame.samples
            for packet in self._stream.encode(frame):
                self._out.mux(packet)
        return self._pipe.take()

    def finish(self) -> bytes:
        """Flush the codec and the container."""
        for packet in self._stream.encode(None):
            self._out.mux(packet)
        self._out.close()
        return self._pipe.take()

    def close(self) -> None:
        """Let go of the codec; idempotent."""
        self._out.close()


def encoded(pieces: Iterable[Pcm], name: str, rate_hz: int, channels: int) -> Iterator[bytes]:
    """Whole audio in one of FORMATS."""
    encoder = AudioEncoder(name, rate_hz, channels)
    try:
        for piece in pieces:
            yield encoder.give(piece)
        yield encoder.finish()
    finally:
        encoder.close()


def png(picture: NDArray[np.uint8]) -> bytes:
    """(height, width, 3) uint8 as PNG."""
    codec = av.CodecContext.create("png", "w")
    codec.width, codec.height, codec.pix_fmt = picture.shape[1], picture.shape[0], "rgb24"
    codec.time_base = Fraction(1, 1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
    return b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)])


def mp4(film: NDArray[np.uint8], rate: float) -> bytes:
    """(frames, height, width, 3) uint8 as MP4 (MPEG-4 part 2); odd sizes lose their last row or column."""
    height, width = film.shape[1] & ~1, film.shape[2] & ~1
    sink = io.BytesIO()
    with av.open(sink, mode="w", format="mp4") as out:
        stream = out.add_stream("mpeg4", rate=Fraction(rate).limit_denominator(1001))
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for picture in film:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture[:height, :width]), format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return sink.getvalue()
