"""Alignment, resampling and finding speech."""

from __future__ import annotations

import numpy as np
import pytest

from omni_duplex_bench.audio import (
    Aligner,
    Interval,
    StreamResampler,
    frame_levels_db,
    resample,
    speech_intervals,
    to_pcm16,
)
from omni_duplex_bench.errors import AudioFormatError
from omni_duplex_bench.testing import speechlike


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1323])
def test_samples_survive_any_cut(size: int) -> None:
    data = bytes(range(256)) * 11 + b"\x01"
    aligner = Aligner()
    out = [aligner.feed(data[i : i + size]) for i in range(0, len(data), size)]
    assert all(len(part) % 2 == 0 for part in out)
    assert b"".join(out) == data[:-1]
    assert aligner.pending_bytes == 1
    assert aligner.feed(b"\x02") == b"\x01\x02"


@pytest.mark.parametrize(("a", "b"), [(16_000, 24_000), (44_100, 16_000), (8_000, 24_000), (24_000, 16_000)])
def test_resampling_keeps_length_and_level(a: int, b: int) -> None:
    pcm = speechlike(1.5, a)
    out = resample(pcm, a, b)
    assert len(out) == round(len(pcm) * b / a)
    assert np.sqrt(np.mean(out.astype(float) ** 2)) == pytest.approx(np.sqrt(np.mean(pcm.astype(float) ** 2)), rel=0.02)


def test_ten_millisecond_frames_keep_length_and_level() -> None:
    pcm = speechlike(2.0, 16_000)
    stream = StreamResampler(16_000, 24_000)
    out = np.concatenate([stream.feed(pcm[i : i + 160]) for i in range(0, len(pcm), 160)] + [stream.flush()])
    assert len(out) == pytest.approx(48_000, abs=2)
    assert np.sqrt(np.mean(out.astype(float) ** 2)) == pytest.approx(np.sqrt(np.mean(pcm.astype(float) ** 2)), rel=0.02)


def test_equal_rates_pass_through_and_wrong_ones_are_refused() -> None:
    pcm = speechlike(0.1, 16_000)
    assert resample(pcm, 16_000, 16_000) is pcm
    assert StreamResampler(8_000, 8_000).feed(pcm) is pcm
    for rates in ((0, 16_000), (16_000, -1)):
        with pytest.raises(AudioFormatError):
            resample(pcm, *rates)
        with pytest.raises(AudioFormatError):
            StreamResampler(*rates)


def test_floats_are_scaled_clipped_and_freed_of_nan() -> None:
    samples = np.array([0.0, 0.5, 1.0, -1.0, 2.0, np.nan, np.inf, -np.inf], np.float32)
    assert to_pcm16(samples).tolist() == [0, 16384, 32767, -32768, 32767, 0, 32767, -32768]


def test_speech_is_found_between_silences() -> None:
    rate = 16_000
    quiet = np.random.default_rng(0).integers(-20, 20, rate, dtype=np.int16)
    pcm = np.concatenate([quiet, speechlike(0.8, rate), quiet, speechlike(0.5, rate), quiet])
    first, second = speech_intervals(pcm, rate)
    assert first.start_s == pytest.approx(1.0, abs=0.021)
    assert first.end_s == pytest.approx(1.8, abs=0.021)
    assert (second.start_s, second.end_s) == pytest.approx((2.8, 3.3), abs=0.021)
    assert all(type(edge) is float for edge in (first.start_s, first.end_s))


def test_short_gaps_join_and_clicks_drop() -> None:
    rate = 16_000
    gap, click = np.zeros(rate // 5, np.int16), np.full(320, 12_000, np.int16)
    pcm = np.concatenate([speechlike(0.4, rate), gap, speechlike(0.4, rate), np.zeros(rate, np.int16), click])
    assert len(speech_intervals(pcm, rate)) == 1


def test_silence_and_nothing_hold_no_speech() -> None:
    assert speech_intervals(np.zeros(16_000, np.int16), 16_000) == ()
    assert speech_intervals(np.zeros(0, np.int16), 16_000) == ()
    assert len(frame_levels_db(np.zeros(0, np.int16), 16_000)) == 0


def test_speech_to_the_very_end_ends_with_the_recording() -> None:
    pcm = speechlike(0.55, 16_000)
    assert speech_intervals(pcm, 16_000)[-1].end_s == pytest.approx(0.55)
    assert Interval(2.0, 1.0).duration_s == 0.0
