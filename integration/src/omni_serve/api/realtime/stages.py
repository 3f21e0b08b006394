"""Stage timing in the form that benchmarks of vLLM-Omni read: ``metadata.vllm_omni.stage_metrics``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from omni_serve.contract import StageMetrics


def event_metadata(stages: Mapping[str, StageMetrics]) -> dict[str, Any]:
    """The metadata of a response.done event."""
    return {"vllm_omni": {"stage_metrics": {name: _one(metrics) for name, metrics in stages.items()}}}


def response_metadata(stages: Mapping[str, StageMetrics]) -> dict[str, str]:
    """The metadata of its response: OpenAI's maps text to text, so the object travels as JSON text."""
    if not stages:
        return {}
    return {name: json.dumps(value, separators=(",", ":")) for name, value in event_metadata(stages).items()}


def _one(metrics: StageMetrics) -> dict[str, Any]:
    given: dict[str, Any] = {"num_tokens_out": metrics.num_tokens_out}
    times = {"vllm_ttft_ms": metrics.ttft_ms, "vllm_tpot_ms": metrics.tpot_ms, "busy_ms": metrics.busy_ms}
    given |= {name: round(value, 3) for name, value in times.items() if value is not None and math.isfinite(value)}
    if metrics.itls_ms:
        given["vllm_itls_ms"] = [round(value, 3) for value in metrics.itls_ms]
    return given
