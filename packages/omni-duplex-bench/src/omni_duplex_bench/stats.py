"""Summaries of measured values: missing ones are left out, never counted as zero."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median, stdev

import msgspec

PERCENTILES = (50.0, 90.0, 95.0, 99.0)


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of ``count`` measured values; every figure is None when there was none, ``std`` also for a single one."""

    count: int
    mean: float | None = msgspec.field(default=None)
    median: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    percentiles: dict[str, float] = {}


def finite(values: Iterable[float | None]) -> list[float]:
    """The measured values, NaN and infinities left out."""
    return [value for value in values if value is not None and math.isfinite(value)]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Linear interpolation between closest ranks (method 7 of Hyndman and Fan 1996) of a non-empty sorted sequence."""
    position = (len(ordered) - 1) * percent / 100.0
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def percentile_name(percent: float) -> str:
    """``p99`` or ``p99.9``."""
    return f"p{percent:g}"


def summarise(values: Iterable[float | None], percents: Sequence[float] = PERCENTILES) -> Summary:
    """Summarise; an empty input gives a summary with count 0 and nothing else."""
    measured = sorted(finite(values))
    if not measured:
        return Summary(0)
    return Summary(
        len(measured),
        fmean(measured),
        median(measured),
        stdev(measured) if len(measured) > 1 else None,
        measured[0],
        measured[-1],
        {percentile_name(p): percentile(measured, p) for p in percents},
    )


def peak_concurrency(spans: Iterable[tuple[float, float]]) -> int:
    """Most spans open at once, by a sweep over their ends; one that ends when another starts does not overlap it."""
    edges: list[tuple[float, int]] = []
    for start, end in spans:
        edges += [(start, 1), (max(start, end), -1)]
    edges.sort()
    open_now = peak = 0
    for _, step in edges:
        open_now += step
        peak = max(peak, open_now)
    return peak


class Interval95(msgspec.Struct, frozen=True):
    """A statistic with its bootstrap interval."""

    value: float
    low: float
    high: float


def bootstrap_difference(
    a: Sequence[float], b: Sequence[float], *, paired: bool, seed: int = 0, rounds: int = 2000, level: float = 0.95
) -> Interval95 | None:
    """Mean(b) - mean(a) with a percentile bootstrap interval (Efron 1979); None when a side has no values.

    ``paired`` resamples index by index (same cases in both runs) and needs equal lengths. Same seed, same interval.
    """
    if not a or not b:
        return None
    if paired and len(a) != len(b):
        raise ValueError(f"paired samples need equal lengths, got {len(a)} and {len(b)}")
    source = random.Random(seed)
    draws = []
    if paired:
        deltas = [y - x for x, y in zip(a, b, strict=True)]
        draws = [fmean(source.choices(deltas, k=len(deltas))) for _ in range(rounds)]
    else:
        draws = [fmean(source.choices(b, k=len(b))) - fmean(source.choices(a, k=len(a))) for _ in range(rounds)]
    draws.sort()
    edge = 100 * (1 - level) / 2
    return Interval95(fmean(b) - fmean(a), percentile(draws, edge), percentile(draws, 100 - edge))


def compact(mapping: Mapping[str, float | None]) -> dict[str, float]:
    """Only what was measured."""
    return {key: value for key, value in mapping.items() if value is not None and math.isfinite(value)}
