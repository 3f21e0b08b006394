"""Goodput and totals by hand."""

from __future__ import annotations

import pytest

from omni_duplex_bench.aggregate import goodput, is_good, session_values, summaries, totals
from omni_duplex_bench.metrics import ResponseMetrics
from omni_duplex_bench.results import CaseResult, Pacing


def case(*ttfp: float | None, status: str = "ok", **fields: object) -> CaseResult:
    responses = [ResponseMetrics(response_id=str(n), status="completed", ttfp_ms=v) for n, v in enumerate(ttfp)]
    made = CaseResult(case_id="c", source="c", status=status, responses=responses)  # type: ignore[arg-type]
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_the_worst_response_of_the_same_session_counts() -> None:
    limits = {"ttfp_ms": 300.0}
    assert is_good(case(100.0, 300.0), limits)
    assert not is_good(case(100.0, 301.0), limits)


def test_a_missing_value_fails_its_limit() -> None:
    assert not is_good(case(100.0, None), {"ttfp_ms": 300.0})
    assert not is_good(case(), {"ttfp_ms": 300.0})
    assert not is_good(case(100.0), {"ttfp_ms": 300.0, "rtf": 1.0})
    assert not is_good(case(100.0, status="failed"), {"ttfp_ms": 300.0})


def test_goodput_is_the_share_and_the_rate() -> None:
    found = goodput([case(100.0), case(900.0), case(200.0)], {"ttfp_ms": 300.0}, 4.0)
    assert found is not None
    assert (found.good, found.of, found.ratio, found.per_s) == (2, 3, pytest.approx(2 / 3), 0.5)
    assert goodput([], {}, 1.0) is None
    empty = goodput([], {"ttfp_ms": 1.0}, 0.0)
    assert empty is not None
    assert (empty.ratio, empty.per_s) == (None, None)


def test_summaries_leave_out_failed_sessions_and_missing_values() -> None:
    table = summaries([case(100.0, None), case(300.0), case(9999.0, status="failed")])
    assert table["ttfp_ms"] is not None
    assert (table["ttfp_ms"].count, table["ttfp_ms"].mean) == (2, 200.0)
    assert table["ttft_ms"] is None


def test_session_metrics_give_at_most_one_value() -> None:
    made = case(1.0, 2.0, tpot_ms=5.0, itl_ms=[1.0, 2.0], pacing=Pacing(3, 0.5, 2.0))
    assert session_values(made, "tpot_ms") == [5.0]
    assert session_values(made, "itl_ms") == [1.0, 2.0]
    assert session_values(made, "lag_max_ms") == [2.0]
    assert session_values(made, "overlap_s") == []
    assert session_values(made, "ttfp_ms") == [1.0, 2.0]


def test_totals_by_hand() -> None:
    cases = [
        case(1.0, started_s=0.0, ended_s=2.0),
        case(1.0, 2.0, started_s=1.0, ended_s=3.0),
        case(status="cancelled"),
    ]
    found = totals(cases, 4.0)
    assert (found.sessions, found.ok, found.cancelled, found.responses) == (3, 2, 1, 3)
    assert (found.peak_concurrency, found.sessions_per_s) == (2, 0.5)
    assert totals([], 0.0).sessions_per_s is None
