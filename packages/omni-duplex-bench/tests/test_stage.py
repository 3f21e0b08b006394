"""Engine timing: where it is found, and the rules by which it counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omni_duplex_bench.stage import combine, stage0_of

STAGE = {"num_tokens_out": 3, "vllm_ttft_ms": 50.0, "vllm_tpot_ms": 10.0, "vllm_itls_ms": [8.0, 12.0]}
HOLDER = {"vllm_omni": {"stage_metrics": {"0": STAGE, "1": {}}}}


@pytest.mark.parametrize(
    "event",
    [
        HOLDER,
        {"metadata": HOLDER},
        {"response": HOLDER},
        {"response": {"metadata": HOLDER}},
        {"response": {"metadata": {"vllm_omni": json.dumps(HOLDER["vllm_omni"])}}},
        {"metadata": {"vllm_omni.stage_metrics": json.dumps({"0": STAGE})}},
    ],
)
def test_stage_0_is_found_wherever_servers_put_it(event: dict[str, Any]) -> None:
    assert stage0_of(event) == STAGE


@pytest.mark.parametrize(
    "event", [{}, {"metadata": None}, {"response": {"metadata": {"vllm_omni": "{"}}}, {"vllm_omni": {}}]
)
def test_absent_or_broken_timing_is_none(event: dict[str, Any]) -> None:
    assert stage0_of(event) is None


def test_itl_counts_when_every_response_has_its_intervals() -> None:
    # (8 + 12 + 4) / 3 = 8; the response of one token has no interval to give.
    other = {"num_tokens_out": 2, "vllm_itls_ms": [4.0]}
    timing = combine([STAGE, other, {"num_tokens_out": 1}])
    assert timing.itl_ms == (8.0, 12.0, 4.0)
    assert timing.tpot_ms == pytest.approx(8.0)
    assert timing.ttft_ms == (50.0,)


@pytest.mark.parametrize(
    "broken",
    [
        None,
        {"num_tokens_out": 3, "vllm_itls_ms": [1.0]},
        {"num_tokens_out": 2, "vllm_itls_ms": [-1.0]},
        {"num_tokens_out": 2, "vllm_itls_ms": [float("nan")]},
        {"num_tokens_out": 2, "vllm_itls_ms": "x"},
        {"vllm_itls_ms": [1.0]},
    ],
)
def test_one_response_without_proper_intervals_means_no_itl(broken: dict[str, Any] | None) -> None:
    timing = combine([STAGE, broken])
    assert timing.itl_ms is None
    assert timing.tpot_ms == pytest.approx(10.0)


def test_tpot_is_else_weighted_by_tokens() -> None:
    # (10 * (5 - 1) + 20 * (3 - 1)) / (4 + 2) = 80 / 6
    timing = combine([{"num_tokens_out": 5, "vllm_tpot_ms": 10.0}, {"num_tokens_out": 3, "vllm_tpot_ms": 20.0}])
    assert timing.tpot_ms == pytest.approx(80 / 6)
    assert timing.itl_ms is None


def test_nothing_measured_is_none_and_a_measured_zero_stays() -> None:
    assert combine([]).tpot_ms is None
    assert combine([{"num_tokens_out": 1, "vllm_tpot_ms": 9.0}]).tpot_ms is None
    assert combine([{"num_tokens_out": 2, "vllm_itls_ms": [0.0]}]).tpot_ms == 0.0
