"""Two runs side by side: differences of means with bootstrap intervals, paired where both ran the same cases."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import msgspec

from omni_duplex_bench.aggregate import session_values
from omni_duplex_bench.errors import UsageError
from omni_duplex_bench.metrics import SESSION_UNITS, UNITS
from omni_duplex_bench.results import RunResult, load_run
from omni_duplex_bench.stats import bootstrap_difference


class Difference(msgspec.Struct, kw_only=True):
    """One metric in both runs. ``low`` and ``high`` bound the difference of means (b - a) with 95 % confidence."""

    metric: str
    label: str
    unit: str
    count_a: int
    count_b: int
    mean_a: float | None
    mean_b: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    paired: bool = False

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


class Comparison(msgspec.Struct, kw_only=True):
    """What ``compare --json`` prints."""

    a: str
    b: str
    complete: bool
    shared_cases: int
    differences: list[Difference]
    notes: list[str] = []


def load(path: Path) -> RunResult:
    """Read a run from its folder or results.json.

    Raises:
        UsageError: If there is none, or it is a sweep's root.
    """
    file = path / "results.json" if path.is_dir() else path
    if path.is_dir() and not file.exists() and (path / "sweep.json").exists():
        points = sorted(p.parent.name for p in path.glob("*/results.json"))
        raise UsageError(f"{path} is a sweep; compare its points: {', '.join(points)}")
    try:
        return load_run(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{file}: not the results of a run: {error}") from error


def compare(a: RunResult, b: RunResult, *, names: tuple[str, str] = ("A", "B"), seed: int = 0) -> Comparison:
    """Compare every metric that either run measured.

    Sessions are the unit: a session's responses share its network and server state, so their mean is one sample. Cases
    that succeeded in both runs are compared pair by pair when each run measured at least two of them.
    """
    by_id = [{c.case_id: c for c in run.cases if c.status == "ok"} for run in (a, b)]
    shared = sorted(set(by_id[0]) & set(by_id[1]))
    differences = []
    for name, (label, unit) in (UNITS | SESSION_UNITS).items():
        means = [{i: fmean(v) for i, c in cases.items() if (v := session_values(c, name))} for cases in by_id]
        if not means[0] and not means[1]:
            continue
        both = [i for i in shared if i in means[0] and i in means[1]]
        paired = len(both) >= 2 and len(both) == len(means[0]) == len(means[1])
        keys = (both, both) if paired else (sorted(means[0]), sorted(means[1]))
        values = [[side[i] for i in key] for side, key in zip(means, keys, strict=True)]
        interval = bootstrap_difference(values[0], values[1], paired=paired, seed=seed)
        enough = interval is not None and min(len(v) for v in values) >= 2
        differences.append(
            Difference(
                metric=name,
                label=label,
                unit=unit,
                count_a=len(values[0]),
                count_b=len(values[1]),
                mean_a=fmean(values[0]) if values[0] else None,
                mean_b=fmean(values[1]) if values[1] else None,
                difference=interval.value if interval else None,
                low=interval.low if interval and enough else None,
                high=interval.high if interval and enough else None,
                paired=paired,
            )
        )
    notes = [f"{name} is incomplete" for name, run in zip(names, (a, b), strict=True) if not run.complete]
    if a.machine != b.machine:
        notes.append("the runs come from different machines or versions: " + _changed(a.machine, b.machine))
    if any(min(d.count_a, d.count_b) < 2 for d in differences):
        notes.append("fewer than two sessions on a side give no interval")
    return Comparison(
        a=names[0],
        b=names[1],
        complete=a.complete and b.complete,
        shared_cases=len(shared),
        differences=differences,
        notes=notes,
    )


def _changed(a: dict[str, object], b: dict[str, object]) -> str:
    keys = sorted(k for k in a.keys() | b.keys() if a.get(k) != b.get(k))
    return ", ".join(f"{k} {a.get(k)} → {b.get(k)}" for k in keys)
