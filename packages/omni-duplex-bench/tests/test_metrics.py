"""Every latency and ratio by hand, one test a rule."""

from __future__ import annotations

import msgspec
import pytest

from omni_duplex_bench.audio import Interval
from omni_duplex_bench.ledger import ResponseRecord
from omni_duplex_bench.metrics import (
    ResponseMetrics,
    barge_in_ms,
    overlap_s,
    real_time_factor,
    response_metrics,
    talk_ratio,
)
from omni_duplex_bench.playback import Playback

START = 100.0
SPEECH = (Interval(0.5, 2.0), Interval(6.0, 7.0))


def record(**fields: object) -> ResponseRecord:
    made = ResponseRecord("r", 103.0, 0)
    made.status, made.sample_rate_hz = "completed", 24_000
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def measured(made: ResponseRecord, commits: tuple[float, ...] = (102.6,)) -> ResponseMetrics:
    return response_metrics(made, start_at_s=START, speech=SPEECH, commits_at_s=commits, playback=Playback())


def test_latencies_count_from_created_speech_end_commit_and_stream_start() -> None:
    metrics = measured(
        record(first_text_at_s=103.1, first_audio_at_s=103.25, last_audio_at_s=104.0, audio_bytes=96_000)
    )
    # Speech ended at 100 + 2.0, the commit came at 102.6, the response at 103.0.
    assert metrics.ttft_ms == pytest.approx(100)
    assert metrics.ttfp_ms == pytest.approx(250)
    assert metrics.ttft_speech_end_ms == pytest.approx(1100)
    assert metrics.ttfp_speech_end_ms == pytest.approx(1250)
    assert metrics.ttft_commit_ms == pytest.approx(500)
    assert metrics.ttfp_commit_ms == pytest.approx(650)
    assert metrics.ttft_stream_start_ms == pytest.approx(3100)
    assert metrics.ttfp_stream_start_ms == pytest.approx(3250)
    assert metrics.created_s == pytest.approx(3.0)
    assert metrics.audio_s == pytest.approx(2.0)


def test_the_anchor_is_the_latest_one_before_the_response() -> None:
    late = record(created_at_s=108.0, first_audio_at_s=108.5)
    metrics = measured(late, (102.6, 107.4, 109.0))
    assert metrics.ttfp_speech_end_ms == pytest.approx(1500)
    assert metrics.ttfp_commit_ms == pytest.approx(1100)


def test_rtf_is_last_audio_minus_created_over_audio() -> None:
    # 1.0 s from created to the last audio, 2.0 s of audio.
    assert real_time_factor(record(last_audio_at_s=104.0, audio_bytes=96_000)) == pytest.approx(0.5)
    assert real_time_factor(record()) is None


def test_a_reply_without_text_gives_no_ttft_and_one_without_audio_no_ttfp() -> None:
    silent = measured(record(first_text_at_s=103.1))
    assert silent.ttfp_ms is None
    assert silent.rtf is None
    assert silent.audio_s is None
    mute = measured(record(first_audio_at_s=103.1, last_audio_at_s=103.1, audio_bytes=2))
    assert mute.ttft_ms is None
    assert "ttft_ms" not in msgspec.to_builtins(mute)


def test_a_measured_zero_stays() -> None:
    metrics = measured(record(first_audio_at_s=103.0))
    assert metrics.ttfp_ms == 0.0
    assert msgspec.to_builtins(metrics)["ttfp_ms"] == 0.0


def test_without_speech_or_commit_nothing_counts_from_them() -> None:
    made = record(first_audio_at_s=103.25)
    metrics = response_metrics(made, start_at_s=START, speech=(), commits_at_s=(), playback=Playback())
    assert metrics.ttfp_speech_end_ms is None
    assert metrics.ttfp_commit_ms is None
    early = measured(record(created_at_s=101.0, first_audio_at_s=101.5))
    assert early.ttfp_speech_end_ms is None


def test_barge_in_is_from_speech_start_to_the_last_audio_heard() -> None:
    cut = record(status="cancelled")
    # The user speaks from 106.0 into audio heard from 103.5 to 106.4.
    assert barge_in_ms(cut, START, SPEECH, [Interval(103.5, 106.4)]) == pytest.approx(400)
    assert barge_in_ms(record(), START, SPEECH, [Interval(103.5, 106.4)]) is None
    assert barge_in_ms(cut, START, SPEECH, [Interval(103.5, 105.9)]) is None
    assert barge_in_ms(cut, START, SPEECH, []) is None


def test_overlap_is_when_both_speak() -> None:
    user, server = (Interval(0, 2), Interval(5, 8)), (Interval(1, 3), Interval(4, 6), Interval(7, 9))
    assert overlap_s(user, server) == pytest.approx(1 + 1 + 1)
    assert overlap_s((), server) == 0.0


def test_talk_ratio_is_heard_over_conversation() -> None:
    assert talk_ratio([Interval(0, 1), Interval(2, 4)], 10.0) == pytest.approx(0.3)
    assert talk_ratio([], 10.0) == 0.0
    assert talk_ratio([], 0.0) is None


def test_engine_ttft_is_taken_from_stage_0_alone() -> None:
    assert measured(record(stage0={"vllm_ttft_ms": 42})).stage0_ttft_ms == 42.0
    for value in (None, True, "x", -1):
        assert measured(record(stage0={"vllm_ttft_ms": value})).stage0_ttft_ms is None
