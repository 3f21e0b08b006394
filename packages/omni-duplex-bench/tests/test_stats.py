"""Percentiles, sweeps and bootstraps against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from omni_duplex_bench.results import to_json
from omni_duplex_bench.stats import (
    bootstrap_difference,
    compact,
    peak_concurrency,
    percentile,
    percentile_name,
    summarise,
)


def test_a_summary_by_hand() -> None:
    summary = summarise([4.0, 1.0, None, 3.0, 2.0], (50.0, 25.0, 99.0))
    assert (summary.count, summary.mean, summary.median, summary.min, summary.max) == (4, 2.5, 2.5, 1.0, 4.0)
    assert summary.std == pytest.approx(math.sqrt(5 / 3))
    assert summary.percentiles == {"p50": 2.5, "p25": 1.75, "p99": pytest.approx(3.97)}


def test_missing_is_not_zero_and_zero_is_not_missing() -> None:
    assert summarise([None, float("nan"), float("inf")]).count == 0
    assert to_json(summarise([])) == b'{\n  "count": 0\n}\n'
    assert summarise([0.0]).mean == 0.0
    assert compact({"a": None, "b": 0.0, "c": float("nan")}) == {"b": 0.0}


def test_one_sample_has_no_spread() -> None:
    summary = summarise([7.0])
    assert summary.std is None
    assert set(summary.percentiles.values()) == {7.0}


def test_percentiles_without_99_are_fine() -> None:
    assert summarise([1.0, 2.0], (50.0,)).percentiles == {"p50": 1.5}
    assert summarise([1.0, 2.0], ()).percentiles == {}
    assert percentile([1.0, 2.0, 3.0], 100) == 3.0
    assert [percentile_name(p) for p in (50.0, 99.9)] == ["p50", "p99.9"]


def test_peak_concurrency_by_sweep() -> None:
    assert peak_concurrency([]) == 0
    assert peak_concurrency([(0, 1), (1, 2), (2, 3)]) == 1
    assert peak_concurrency([(0, 3), (1, 2), (1.5, 4)]) == 3
    assert peak_concurrency([(0, 0), (0, 0)]) <= 2


def test_the_bootstrap_is_seeded_and_covers_what_is_plain() -> None:
    a, b = [1.0, 1.1, 0.9, 1.0], [2.0, 2.1, 1.9, 2.0]
    one = bootstrap_difference(a, b, paired=True)
    assert one is not None
    assert one == bootstrap_difference(a, b, paired=True)
    assert one.value == pytest.approx(1.0)
    assert one.low == pytest.approx(1.0)
    assert one.high == pytest.approx(1.0)
    two = bootstrap_difference(a, b, paired=False, seed=3)
    assert two is not None
    assert 0.8 < two.low < 1.0 < two.high < 1.2


def test_the_bootstrap_of_nothing_is_none_and_pairs_need_partners() -> None:
    assert bootstrap_difference([], [1.0], paired=False) is None
    with pytest.raises(ValueError, match="equal lengths"):
        bootstrap_difference([1.0], [1.0, 2.0], paired=True)
