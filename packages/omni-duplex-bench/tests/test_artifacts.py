"""Where audio lands in output.wav, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from omni_duplex_bench.artifacts import OUTPUT_RATE_HZ, horizon_s, judge, load_done, mix, transcript, write_case
from omni_duplex_bench.cases import Case
from omni_duplex_bench.metrics import ResponseMetrics
from omni_duplex_bench.playback import Playback
from omni_duplex_bench.replay import Replay
from omni_duplex_bench.results import CaseResult

START = 50.0


def ones(seconds: float, rate: int = OUTPUT_RATE_HZ) -> bytes:
    return np.full(round(seconds * rate), 1000, "<i2").tobytes()


def result(**fields: object) -> CaseResult:
    made = CaseResult(case_id="c", source="c.wav", status="ok", duration_s=1.2, streamed_s=1.2)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_segments_lie_where_they_were_heard() -> None:
    playback = Playback()
    playback.push("r", "i", ones(0.5), OUTPUT_RATE_HZ, START + 1.0)
    playback.push("r", "i", ones(0.5), OUTPUT_RATE_HZ, START + 1.1)
    output = mix(playback, START, 3)
    assert len(output.pcm) == 3 * OUTPUT_RATE_HZ
    assert output.clipped_s == 0.0
    loud = np.flatnonzero(output.pcm)
    assert (loud[0], loud[-1]) == (24_000, 47_999)


def test_what_falls_behind_the_end_is_clipped_and_counted() -> None:
    playback = Playback()
    playback.push("r", "i", ones(2.0), OUTPUT_RATE_HZ, START + 1.5)
    assert mix(playback, START, 2).clipped_s == pytest.approx(1.5)
    assert mix(playback, START, 1).clipped_s == pytest.approx(2.0)


def test_other_rates_are_resampled() -> None:
    playback = Playback()
    playback.push("r", "i", ones(0.5, 16_000), 16_000, START)
    output = mix(playback, START, 1)
    assert abs(int(output.pcm[6000]) - 1000) < 20
    assert not output.pcm[12_010:].any()


def test_an_official_case_lasts_as_long_as_its_video_and_others_as_long_as_the_conversation() -> None:
    playback = Playback()
    playback.push("r", "i", ones(2.0), OUTPUT_RATE_HZ, START + 1.5)
    assert horizon_s(result(), playback, START, official=True) == 2
    assert horizon_s(result(), playback, START, official=False) == 4
    assert horizon_s(result(duration_s=2.0), Playback(), START, official=True) == 2
    assert horizon_s(result(duration_s=0.0, streamed_s=0.0), Playback(), START, official=False) == 1


def test_the_transcript_has_a_chunk_a_response_that_was_heard() -> None:
    playback = Playback()
    playback.push("r", "i", ones(1.0), OUTPUT_RATE_HZ, START + 0.25)
    replay = Replay(result(), playback, [], START, {"r": "hello", "silent": "never heard"}, {})
    assert transcript(replay, 1.0) == {"text": "hello", "chunks": [{"text": "hello", "timestamp": [0.25, 1.0]}]}


@pytest.mark.parametrize(
    ("fields", "clipped_s", "words"),
    [
        ({}, 0.0, None),
        ({"status": "listen_only"}, 0.0, "listen_only"),
        ({"status": "cancelled"}, 0.0, "cancelled"),
        ({}, 0.5, "clipped"),
        ({"violations": ["x"]}, 0.0, "protocol"),
        ({"responses": [ResponseMetrics(response_id="r", status="cancelled")]}, 0.0, "cancelled"),
    ],
)
def test_what_makes_a_case_ineligible(fields: dict[str, object], clipped_s: float, words: str | None) -> None:
    made = result(**fields)
    judge(made, clipped_s)
    assert made.eligible is (words is None)
    assert words is None or words in (made.ineligible_reason or "")


def test_a_finished_case_is_found_again_and_a_torn_one_is_not(tmp_path: Path) -> None:
    case = Case("c", Path("c.wav"))
    write_case(tmp_path, case, Replay(result(), Playback(), [], START, {}, {}))
    found = load_done(tmp_path, case)
    assert found is not None
    assert found.case_id == "c"
    (tmp_path / "c" / "output.wav").unlink()
    assert load_done(tmp_path, case) is None
    write_case(tmp_path, case, Replay(result(status="failed", error="x"), Playback(), [], START, {}, {}))
    assert load_done(tmp_path, case) is None
    assert not (tmp_path / "c" / ".done").exists()
