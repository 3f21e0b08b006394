"""Decoding real files in a worker, and every way in which a file can be broken."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest

from omni_duplex_bench.audio import speech_intervals
from omni_duplex_bench.errors import MediaError, MediaTimeoutError
from omni_duplex_bench.media import MediaConfig, decode_media
from omni_duplex_bench.testing import speechlike
from omni_duplex_bench.wavfile import wav_bytes

MakeVideo = Callable[..., Path]


def picture(jpeg: bytes) -> np.ndarray:
    with av.open(io.BytesIO(jpeg), format="mjpeg") as box:
        return next(box.decode(video=0)).to_ndarray(format="gray")


@pytest.mark.parametrize("codec", ["mpeg4", "libx264"])
def test_speech_in_whole_seconds_and_a_frame_from_the_middle_of_each(
    make_video: MakeVideo, tmp_path: Path, codec: str
) -> None:
    media = decode_media(make_video(tmp_path / "a.mp4", seconds=2.6, codec=codec))
    assert media.rate_hz == 16_000
    assert len(media.pcm) == 3 * 16_000
    assert [at for at, _ in media.frames] == [0.5, 1.5, 2.5]
    greys = [float(np.median(picture(jpeg))) for _, jpeg in media.frames]
    assert greys == pytest.approx([20, 28, 36], abs=6)
    assert not media.warnings


def test_large_frames_shrink_to_640_and_rotated_ones_stand_upright(make_video: MakeVideo, tmp_path: Path) -> None:
    large = decode_media(make_video(tmp_path / "l.mp4", seconds=1.0, size=(1280, 320)))
    assert picture(large.frames[0][1]).shape == (160, 640)
    flat = make_video(tmp_path / "flat.mp4", seconds=1.0)
    turned = tmp_path / "turned.mp4"
    with av.open(str(flat)) as source, av.open(str(turned), "w") as out:
        streams = {s.index: out.add_stream_from_template(s) for s in source.streams}
        for packet in source.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream.index]
                out.mux(packet)
    data = turned.read_bytes()
    # The display matrix of the track header: identity becomes a quarter turn clockwise.
    one, none = (65536).to_bytes(4, "big"), bytes(4)
    matrix = one + none * 3 + one + none * 3 + (0x40000000).to_bytes(4, "big")
    quarter = none + one + none + (-65536).to_bytes(4, "big", signed=True) + none * 4 + (0x40000000).to_bytes(4, "big")
    at = data.index(matrix, data.index(b"tkhd"))
    turned.write_bytes(data[:at] + quarter + data[at + 36 :])
    upright = picture(decode_media(turned).frames[0][1])
    assert upright.shape == (160, 96)
    corner = upright[:30, -20:]
    assert corner.mean() > 200, "the white corner, top left before, is top right after a quarter turn clockwise"
    assert upright[-30:, :20].mean() < 100


def test_audio_that_starts_late_keeps_its_place(make_video: MakeVideo, tmp_path: Path) -> None:
    media = decode_media(make_video(tmp_path / "late.mp4", seconds=3.0, audio_s=1.0, audio_at_s=1.5))
    (speech,) = speech_intervals(media.pcm, 16_000)
    assert speech.start_s == pytest.approx(1.5, abs=0.1)


def test_audio_shorter_than_the_video_is_padded_and_said(make_video: MakeVideo, tmp_path: Path) -> None:
    media = decode_media(make_video(tmp_path / "short.mp4", seconds=3.0, audio_s=1.0))
    assert len(media.pcm) == 3 * 16_000
    assert any("before the video" in warning for warning in media.warnings)
    assert not media.pcm[2 * 16_000 :].any()


def test_a_video_without_sound_is_refused(make_video: MakeVideo, tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="no audio track"):
        decode_media(make_video(tmp_path / "mute.mp4", audio_s=0))


def test_far_less_than_the_header_promises_is_a_warning(make_video: MakeVideo, tmp_path: Path) -> None:
    whole = make_video(tmp_path / "whole.mkv", seconds=8.0)
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 3])
    media = decode_media(cut)
    assert media.duration_s < 7
    assert any("promises 8.1 s" in warning for warning in media.warnings)


def test_too_long_is_refused_before_decoding(make_video: MakeVideo, tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="more than the 1 s allowed"):
        decode_media(make_video(tmp_path / "a.mp4", seconds=3.0), MediaConfig(max_duration_s=1.0))


@pytest.mark.parametrize("content", [b"", b"junk" * 100, b"\0" * 5000])
def test_what_is_no_media_is_a_typed_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.mp4"
    path.write_bytes(content)
    with pytest.raises(MediaError) as caught:
        decode_media(path)
    assert caught.value.path == str(path)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.mp4"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, tmp_path / "absent.mp4", Path("/dev/zero")):
        with pytest.raises(MediaError):
            decode_media(path)


def test_a_decoder_past_its_deadline_is_killed(make_video: MakeVideo, tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.mp4")
    with pytest.raises(MediaTimeoutError, match="was stopped"):
        decode_media(path, MediaConfig(timeout_s=0.001))


def test_a_decoder_without_memory_is_an_error(make_video: MakeVideo, tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.mp4")
    with pytest.raises(MediaError):
        decode_media(path, MediaConfig(max_memory_bytes=64 * 1024**2))


def test_other_rates_and_containers_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("flac", rate=44_100, layout="mono")
        frame = av.AudioFrame.from_ndarray(speechlike(0.5, 44_100)[None], format="s16", layout="mono")
        frame.sample_rate = 44_100
        out.mux([*stream.encode(frame), *stream.encode(None)])
    media = decode_media(path)
    assert len(media.pcm) == 16_000
    assert media.frames == ()
    assert speech_intervals(media.pcm, 16_000)[-1].end_s == pytest.approx(0.5, abs=0.04)


def test_the_worker_answers_on_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(speechlike(0.2, 8000), 8000))
    request = f'{{"path": "{path}", "max_duration_s": 9, "max_memory_bytes": 8589934592}}'
    command = [sys.executable, "-m", "omni_duplex_bench.media_worker"]
    done = subprocess.run(command, input=request.encode(), capture_output=True, check=True)
    head, _, body = done.stdout.partition(b"\n")
    assert b'"samples":16000' in head
    assert len(body) == 32_000
