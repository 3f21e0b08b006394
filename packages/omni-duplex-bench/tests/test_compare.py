"""Two runs: paired where the cases are the same, intervals only where there is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_duplex_bench.compare import compare, load
from omni_duplex_bench.errors import UsageError
from omni_duplex_bench.metrics import ResponseMetrics
from omni_duplex_bench.results import CaseResult, RunResult, Totals, to_json


def run(values: dict[str, float | None], **fields: object) -> RunResult:
    cases = [
        CaseResult(
            case_id=name,
            source="x",
            status="ok",
            responses=[ResponseMetrics(response_id="r", status="completed", ttfp_ms=value)],
        )
        for name, value in values.items()
    ]
    totals = Totals(sessions=1, ok=1, listen_only=0, failed=0, cancelled=0, responses=1, wall_s=1, peak_concurrency=1)
    made = RunResult(
        version="1", complete=True, started="", url="", model=None, options={}, machine={}, totals=totals, metrics={}
    )
    made.cases = cases
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_same_cases_are_paired() -> None:
    a, b = run({"x": 100.0, "y": 900.0, "z": 500.0}), run({"x": 110.0, "y": 912.0, "z": 508.0})
    result = compare(a, b)
    (found,) = result.differences
    assert found.paired
    assert found.clear
    assert found.difference == pytest.approx(10.0)
    assert (found.low, found.high) == (pytest.approx(8.0, abs=1), pytest.approx(12.0, abs=1))
    assert result.shared_cases == 3
    assert compare(a, b) == result


def test_other_cases_are_not() -> None:
    result = compare(run({"x": 100.0, "y": 900.0}), run({"p": 110.0, "q": 912.0}))
    (found,) = result.differences
    assert not found.paired
    assert not found.clear


def test_a_single_session_gives_no_interval_and_a_missing_value_no_zero() -> None:
    (found,) = compare(run({"x": 100.0}), run({"x": 150.0})).differences
    assert found.difference == 50.0
    assert found.low is None
    (found,) = compare(run({"x": 100.0, "y": 200.0}), run({"x": None, "y": None})).differences
    assert (found.count_b, found.mean_b, found.difference) == (0, None, None)


def test_differences_of_the_setting_are_noted() -> None:
    notes = compare(run({}, machine={"cores": 1}), run({}, machine={"cores": 2}, complete=False)).notes
    assert any("cores 1 → 2" in note for note in notes)
    assert "B is incomplete" in notes


def test_runs_are_loaded_from_folder_or_file(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_bytes(to_json(run({"x": 1.0})))
    assert load(tmp_path) == load(tmp_path / "results.json")
    (tmp_path / "other.json").write_text("{}")
    for path, words in ((tmp_path / "other.json", "not the results"), (tmp_path / "none", "No such file")):
        with pytest.raises(UsageError, match=words):
            load(path)
