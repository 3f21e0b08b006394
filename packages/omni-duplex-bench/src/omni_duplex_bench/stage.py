"""Engine timing of stage 0 as vLLM-Omni reports it: ``vllm_omni.stage_metrics["0"]``.

Fields read: ``num_tokens_out``, ``vllm_ttft_ms``, ``vllm_tpot_ms``, ``vllm_itls_ms``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec


def stage0_of(event: dict[str, Any]) -> dict[str, Any] | None:
    """Stage 0's metrics in an event, its metadata, its response or the response's metadata; None when absent.

    A value that is JSON text (metadata of the OpenAI API is text only) is parsed.
    """
    response = event.get("response")
    places = [event, event.get("metadata")]
    if isinstance(response, dict):
        places += [response, response.get("metadata")]
    for place in places:
        if not isinstance(place, dict):
            continue
        for holder in (_parsed(place.get("vllm_omni")), place):
            if not isinstance(holder, dict):
                continue
            found = _parsed(holder.get("stage_metrics", holder.get("vllm_omni.stage_metrics")))
            stage = _parsed(found.get("0")) if isinstance(found, dict) else None
            if isinstance(stage, dict):
                return stage
    return None


@dataclass(frozen=True, slots=True)
class StageTiming:
    """Token timing over several responses, in milliseconds; None where the rules do not allow a number."""

    ttft_ms: tuple[float, ...]
    tpot_ms: float | None
    itl_ms: tuple[float, ...] | None


def combine(stages: Sequence[dict[str, Any] | None]) -> StageTiming:
    """Combine the stage-0 metrics of every response.

    ITL is measured only when every response has stage-0 timing and each with n > 1 tokens has exactly n - 1 finite,
    non-negative intervals. TPOT is the mean ITL, else Σ tpotᵢ(nᵢ-1) / Σ(nᵢ-1), else not measured.
    """
    ttft = tuple(v for s in stages if s is not None and (v := _number(s.get("vllm_ttft_ms"))) is not None)
    itl = _intervals(stages)
    if itl:
        return StageTiming(ttft, math.fsum(itl) / len(itl), itl)
    weighted, weight = 0.0, 0
    for stage in stages:
        if stage is None:
            continue
        tokens, tpot = _tokens(stage), _number(stage.get("vllm_tpot_ms"))
        if tokens is not None and tokens > 1 and tpot is not None:
            weighted += tpot * (tokens - 1)
            weight += tokens - 1
    return StageTiming(ttft, weighted / weight if weight else None, None)


def _intervals(stages: Sequence[dict[str, Any] | None]) -> tuple[float, ...] | None:
    collected: list[float] = []
    for stage in stages:
        tokens = _tokens(stage) if stage is not None else None
        if stage is None or tokens is None:
            return None
        if tokens <= 1:
            continue
        values = stage.get("vllm_itls_ms")
        if not isinstance(values, list) or len(values) != tokens - 1:
            return None
        numbers = [_number(value) for value in values]
        if any(number is None for number in numbers):
            return None
        collected += [number for number in numbers if number is not None]
    return tuple(collected) or None


def _tokens(stage: dict[str, Any]) -> int | None:
    value = stage.get("num_tokens_out")
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _parsed(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return None
