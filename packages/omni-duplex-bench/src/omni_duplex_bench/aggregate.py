"""From sessions to one run: totals, summaries of every metric, goodput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omni_duplex_bench.errors import UsageError
from omni_duplex_bench.metrics import SESSION_UNITS, UNITS
from omni_duplex_bench.results import CaseResult, Goodput, Totals
from omni_duplex_bench.stats import PERCENTILES, Summary, finite, peak_concurrency, summarise

GOODPUT_NAMES = (*UNITS, "tpot_ms", "lag_max_ms")
"""Metrics that a goodput limit may name; the ``_ms`` may be left out."""


def session_values(result: CaseResult, name: str) -> list[float]:
    """A session's measured values of one metric: one a response for per-response metrics, else at most one."""
    match name:
        case "tpot_ms" | "overlap_s" | "talk_ratio":
            return finite([getattr(result, name)])
        case "itl_ms":
            return finite(result.itl_ms or ())
        case "lag_mean_ms":
            return finite([result.pacing.lag_mean_ms])
        case "lag_max_ms":
            return finite([result.pacing.lag_max_ms])
        case _:
            return finite([getattr(response, name) for response in result.responses])


def summaries(results: Sequence[CaseResult], percents: Sequence[float] = PERCENTILES) -> dict[str, Summary | None]:
    """Every metric over the sessions that were measured; None where no session measured it.

    A session that only listened has no response and so takes no part in response metrics: nothing becomes a zero.
    """
    measured = [result for result in results if result.status in ("ok", "listen_only", "no_decision")]
    table: dict[str, Summary | None] = {}
    for name in (*UNITS, *SESSION_UNITS):
        summary = summarise([value for result in measured for value in session_values(result, name)], percents)
        table[name] = summary if summary.count else None
    return table


def parse_goodput(limits: Sequence[str]) -> dict[str, float]:
    """Turn ``ttfp:800`` or ``ttfp_speech_end_ms:1000`` into limits.

    Raises:
        UsageError: If a name is unknown (the known ones are listed), given twice, or its value no positive number.
    """
    parsed: dict[str, float] = {}
    for limit in limits:
        name, colon, text = limit.partition(":")
        full = name if name in GOODPUT_NAMES else f"{name}_ms"
        if full not in GOODPUT_NAMES:
            raise UsageError(f"unknown goodput limit {name!r}; known: {', '.join(GOODPUT_NAMES)} (_ms may be left out)")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not colon or not 0 < value < float("inf"):
            raise UsageError(f"goodput limit {limit!r}: write NAME:VALUE with a positive number")
        if full in parsed:
            raise UsageError(f"goodput limit {full} is given twice")
        parsed[full] = value
    return parsed


def is_good(result: CaseResult, limits: Mapping[str, float]) -> bool:
    """Whether one session met every limit. Its worst response counts, and a missing value fails its limit."""
    if result.status != "ok":
        return False
    for name, limit in limits.items():
        values = session_values(result, name)
        if not values or max(values) > limit:
            return False
        if name in UNITS and name != "barge_in_ms":
            answered = [r for r in result.responses if r.status != "cancelled"]
            if any(getattr(r, name) is None for r in answered):
                return False
    return True


def goodput(results: Sequence[CaseResult], limits: Mapping[str, float], wall_s: float) -> Goodput | None:
    """Sessions that met every limit; None without limits."""
    if not limits:
        return None
    good = sum(is_good(result, limits) for result in results)
    return Goodput(
        limits=dict(limits),
        good=good,
        of=len(results),
        ratio=good / len(results) if results else None,
        per_s=good / wall_s if wall_s > 0 else None,
    )


def totals(results: Sequence[CaseResult], wall_s: float) -> Totals:
    """Counts over a run."""
    ok = sum(r.status == "ok" for r in results)
    spans = [(r.started_s, r.ended_s) for r in results if r.started_s is not None and r.ended_s is not None]
    return Totals(
        sessions=len(results),
        ok=ok,
        listen_only=sum(r.status == "listen_only" for r in results),
        failed=sum(r.status in ("failed", "no_decision") for r in results),
        cancelled=sum(r.status == "cancelled" for r in results),
        responses=sum(len(r.responses) for r in results),
        wall_s=wall_s,
        peak_concurrency=peak_concurrency(spans),
        sessions_per_s=ok / wall_s if wall_s > 0 else None,
        audio_out_s=sum(x.audio_s or 0.0 for r in results for x in r.responses),
    )
