"""Whole runs against a scripted server: isolation, eligibility, interruption, resume, load."""

from __future__ import annotations

import asyncio
import json
import wave
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from omni_duplex_bench.aggregate import goodput, summaries
from omni_duplex_bench.artifacts import SET
from omni_duplex_bench.bench import Failed, LoadConfig, arrivals
from omni_duplex_bench.cases import Case, Prepared
from omni_duplex_bench.errors import UsageError
from omni_duplex_bench.inputs import all_cases
from omni_duplex_bench.media import MediaConfig
from omni_duplex_bench.pacing import PacingConfig
from omni_duplex_bench.prepare import prepare
from omni_duplex_bench.replay import ReplayConfig
from omni_duplex_bench.results import RunResult, load_run
from omni_duplex_bench.runner import RunConfig, run
from omni_duplex_bench.testing import Fault, Script, ScriptedServer

Bench = Callable[..., RunResult]
Inputs = Callable[..., list[Prepared]]


def strict(path: Path) -> Any:
    def refuse(text: str) -> None:
        raise AssertionError(f"{path} holds {text}")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_a_dataset_is_replayed_into_artifacts_and_a_manifest(
    bench: Bench, omniinteract: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for source in (omniinteract.folder, omniinteract.archive):
        cases, _ = all_cases([str(source)], num_prompts=0, shuffle=False)
        entries = prepare(cases, MediaConfig())
        out = tmp_path / source.name
        result = bench(Script(reply_s=0.3), entries, output=out, load=LoadConfig(5))
        assert [c.status for c in result.cases] == ["ok"] * 5
        # The answer comes after the video's 2 s, so nothing of it lies within the horizon: clipped, not eligible.
        assert {c.ineligible_reason.split(":")[0] for c in result.cases if c.ineligible_reason} == {"clipped"}
        assert (out / "official_eval_manifest.jsonl").read_text() == ""
        assert all(c.frames_sent == 2 for c in result.cases)
    assert strict(out / "batch_summary.json")["eligible"] == 0


def test_answers_within_the_video_are_eligible(bench: Bench, omniinteract: SimpleNamespace, tmp_path: Path) -> None:
    cases, _ = all_cases([str(omniinteract.folder)], num_prompts=0, shuffle=False)
    entries = prepare(cases, MediaConfig())
    # Speech ends at 0.6 s; the server's detector ends the turn and answers within the 2 s of video.
    script = Script(turns="server", silence_s=0.2, reply_s=0.3, think_s=0.02, first_audio_s=0.02)
    result = bench(script, entries, output=tmp_path, load=LoadConfig(5))
    lines = [json.loads(line) for line in (tmp_path / "official_eval_manifest.jsonl").read_text().splitlines()]
    assert [c.ineligible_reason for c in result.cases] == [None] * 5
    assert [line["sample_id"] for line in lines] == [c.case_id.replace("/", "__") for c in result.cases]
    for line, case in zip(lines, result.cases, strict=True):
        folder = tmp_path / case.case_id
        assert sorted(p.name for p in folder.iterdir()) == sorted(SET)
        said = strict(Path(line["model_json"]))
        assert said["chunks"][0]["timestamp"][0] < said["chunks"][0]["timestamp"][1] <= 2.0
        assert Path(line["gt_json"]).is_file()
        with wave.open(str(folder / "output.wav")) as file:
            assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (24_000, 1, 48_000)
            pcm = np.frombuffer(file.readframes(48_000), "<i2")
        start = round(said["chunks"][0]["timestamp"][0] * 24_000)
        assert not pcm[: start - 2].any()
        assert np.abs(pcm[start : start + 4800]).max() > 1000
        assert strict(folder / "result.json")["eligible"]
        assert "base64" not in (folder / "events.json").read_text()
        strict(folder / "events.json")


def test_one_sessions_failure_is_its_own(bench: Bench, inputs: Inputs, tmp_path: Path) -> None:
    broken = Failed(Case("broken", Path("broken.mp4")), "broken.mp4: no audio track", "MediaError")
    entries: list[Any] = [broken, *inputs("a", "b")]
    result = bench(Script(), entries, output=tmp_path, load=LoadConfig(3))
    assert [c.status for c in result.cases] == ["failed", "ok", "ok"]
    assert (tmp_path / "broken" / ".failed.json").is_file()
    assert result.totals.peak_concurrency == 2
    assert result.complete
    metric = result.metrics["ttfp_speech_end_ms"]
    assert metric is not None
    assert metric.count == 2


def test_a_server_that_closes_in_mid_sentence_fails_the_case_and_keeps_what_came(
    bench: Bench, inputs: Inputs, tmp_path: Path
) -> None:
    script = Script(faults=(Fault("response.output_audio.delta", "close", 2),))
    result = bench(script, inputs("a"), output=tmp_path)
    (case,) = result.cases
    assert case.status == "failed"
    assert case.error_type == "SessionEndedError"
    assert case.responses[0].audio_s == pytest.approx(0.2)
    assert not case.eligible
    assert not (tmp_path / "a" / ".done").exists()
    assert (tmp_path / "a" / "output.wav").is_file()


@pytest.mark.parametrize(
    ("fault", "status", "violations"),
    [
        (Fault("response.done", "duplicate"), "ok", 1),
        (Fault("response.created", "duplicate"), "ok", 1),
        (Fault("response.created", "drop"), "no_decision", None),
        (Fault("response.done", "drop"), "no_decision", 0),
        (Fault("response.output_audio.delta", "malformed", 1), "ok", 1),
        (Fault("response.output_audio.delta", "junk", 1), "ok", 1),
        (Fault("response.output_audio.delta", "late", 1, 0.2), "ok", 0),
        (Fault("response.created", "reorder"), "ok", 1),
    ],
    ids=lambda value: f"{value.kind}-{value.event_type}" if isinstance(value, Fault) else None,
)
def test_faults_of_a_server_never_hang_and_never_double(
    bench: Bench, inputs: Inputs, fault: Fault, status: str, violations: int | None
) -> None:
    result = bench(Script(faults=(fault,)), inputs("a"), pacing={"decision_timeout_s": 1.0})
    (case,) = result.cases
    assert case.status == status
    assert len(case.responses) <= 1
    assert violations is None or len(case.violations) == violations


def test_endless_listening_ends_at_the_bound_and_is_reported(bench: Bench, inputs: Inputs) -> None:
    result = bench(Script(decide="buffer"), inputs("a"), pacing={"decision_timeout_s": 0.4})
    assert result.cases[0].status == "listen_only"
    assert result.cases[0].listens > 1
    assert result.totals.listen_only == 1
    assert result.totals.failed == 0


def test_a_listen_only_session_beside_a_measured_one(bench: Bench, inputs: Inputs) -> None:
    listening = bench(Script(decide="listen"), inputs("l"))
    speaking = bench(Script(), inputs("s"))
    both = [*listening.cases, *speaking.cases]
    assert [c.decision for c in both] == ["listen", "response"]
    metrics = summaries(both)
    assert metrics["ttfp_ms"] == speaking.metrics["ttfp_ms"]
    assert metrics["ttfp_ms"] is not None
    assert metrics["ttfp_ms"].count == 1
    good = goodput(both, {"ttfp_ms": 10_000.0}, 1.0)
    assert good is not None
    assert (good.good, good.of) == (1, 2)


def test_a_required_response_that_does_not_come_is_a_failure(bench: Bench, inputs: Inputs) -> None:
    result = bench(Script(decide="listen"), inputs("a"), replay={"require_response": True})
    assert result.cases[0].status == "failed"
    assert "required" in (result.cases[0].error or "")


def test_no_successes_give_valid_json_and_no_metrics(bench: Bench, inputs: Inputs, tmp_path: Path) -> None:
    script = Script(faults=(Fault("session.created", "close"),))
    result = bench(script, inputs("a"), output=tmp_path, percentiles=(50.0,))
    assert result.totals.ok == 0
    assert all(summary is None for summary in result.metrics.values())
    assert strict(tmp_path / "results.json")["metrics"]["ttft_ms"] is None
    assert load_run((tmp_path / "results.json").read_bytes()).totals.failed == 1


def test_replies_without_text_put_no_zero_into_ttft(bench: Bench, inputs: Inputs) -> None:
    result = bench(Script(with_text=False), inputs("a"))
    assert result.metrics["ttft_ms"] is None
    assert result.metrics["ttfp_ms"] is not None


def test_barge_in_is_measured(bench: Bench, inputs: Inputs, tmp_path: Path) -> None:
    (first,) = inputs("a")
    pcm = np.concatenate([first.pcm, np.zeros(16_000, np.int16), first.pcm])
    entry = Prepared(first.case, pcm, 16_000, len(pcm) / 16_000)
    script = Script(turns="server", reply_s=6.0, speed=2.0, silence_s=0.3)
    result = bench(script, [entry], output=tmp_path)
    cut, whole = result.cases[0].responses
    assert (cut.status, whole.status) == ("cancelled", "completed")
    assert cut.barge_in_ms is not None
    assert 0 <= cut.barge_in_ms < 1000
    assert whole.barge_in_ms is None
    assert result.cases[0].overlap_s is not None
    assert result.cases[0].overlap_s > 0
    assert result.cases[0].ineligible_reason == "a response was cancelled"


def test_engine_timing_reaches_the_summary(bench: Bench, inputs: Inputs) -> None:
    stage = {"0": {"num_tokens_out": 3, "vllm_ttft_ms": 50.0, "vllm_itls_ms": [8.0, 12.0]}}
    result = bench(Script(stage_metrics=stage), inputs("a"))
    for name, value in (("tpot_ms", 10.0), ("stage0_ttft_ms", 50.0), ("itl_ms", 10.0)):
        summary = result.metrics[name]
        assert summary is not None
        assert summary.mean == pytest.approx(value)


def test_concurrency_is_a_limit_and_warm_ups_are_not_counted(bench: Bench, inputs: Inputs) -> None:
    result = bench(Script(), inputs("a", "b", "c"), load=LoadConfig(1, warmups=1))
    assert result.totals.peak_concurrency == 1
    assert result.totals.sessions == 3


def test_arrivals_are_seeded_and_of_the_rate() -> None:
    times = arrivals(2000, 4.0, 7)
    assert times == arrivals(2000, 4.0, 7)
    assert times == sorted(times)
    assert times[0] == 0.0
    assert 1999 / times[-1] == pytest.approx(4.0, rel=0.1)
    assert arrivals(3, None, 0) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"request_rate": 0.0}, {"warmups": -1}])
def test_impossible_loads_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        LoadConfig(**wrong)


async def test_an_interrupted_run_keeps_what_was_measured(inputs: Inputs, tmp_path: Path) -> None:
    stop, finished = asyncio.Event(), asyncio.Event()
    async with ScriptedServer(Script(reply_s=0.2)) as server:
        config = RunConfig(ReplayConfig(server.url, pacing=PacingConfig(chunk_ms=100)), LoadConfig(2))
        entries = [*inputs("short"), *inputs("long", seconds=30.0), *inputs("never")]
        done: list[str] = []

        def on_result(result: Any) -> None:
            done.append(result.case_id)
            finished.set()

        work = asyncio.create_task(run(entries, config, output=tmp_path, stop=stop, on_result=on_result))
        await finished.wait()
        stop.set()
        result = await work
    assert not result.complete
    statuses = {c.case_id: c.status for c in result.cases}
    assert statuses["short"] == "ok"
    assert statuses["long"] == "cancelled"
    assert statuses.get("never", "cancelled") == "cancelled"
    saved = load_run((tmp_path / "results.json").read_bytes())
    assert not saved.complete
    assert saved.metrics["ttfp_ms"] is not None
    assert (tmp_path / "long" / ".failed.json").is_file()
    assert not (tmp_path / "long" / ".done").exists()


def test_resume_keeps_finished_cases_and_does_the_rest(bench: Bench, inputs: Inputs, tmp_path: Path) -> None:
    first = bench(Script(), inputs("a"), output=tmp_path)
    second = bench(Script(), inputs("a", "b"), output=tmp_path, resume=True)
    assert second.cases[0].responses == first.cases[0].responses
    assert second.cases[1].status == "ok"
    assert json.loads((tmp_path / "batch_summary.json").read_text())["total"] == 2


def test_a_disk_that_refuses_costs_the_artifacts_and_not_the_numbers(
    bench: Bench, inputs: Inputs, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("a file where the folder should be")
    result = bench(Script(), inputs("a", "b"), output=tmp_path)
    bad, good = result.cases
    assert bad.status == good.status == "ok"
    assert "cannot publish" in (bad.artifact_error or "")
    assert not bad.eligible
    assert bad.responses
    assert good.eligible


def test_a_session_past_its_limit_ends(bench: Bench, inputs: Inputs) -> None:
    result = bench(Script(), inputs("a", seconds=20.0), replay={"session_timeout_s": 0.5})
    assert result.cases[0].status == "failed"
    assert "limit of 0.5 s" in (result.cases[0].error or "")
