"""report.html: one file with everything in it, readable in light and dark, on a phone and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from omni_duplex_bench.aggregate import session_values
from omni_duplex_bench.charts import histogram, timeline, waterfall
from omni_duplex_bench.metrics import SESSION_UNITS, UNITS
from omni_duplex_bench.page import PAGE
from omni_duplex_bench.results import CaseResult, RunResult
from omni_duplex_bench.tables import figure, headline

MAX_SESSIONS = 60
"""Sessions drawn one by one; all count in the tables and histograms."""

_DISTRIBUTIONS = "<h3>Distributions <small>solid line p50, dashed p95</small></h3>"
_LEGEND = (
    '<p class="legend"><span class="k wait">waiting for response.created</span><span class="k think">to first text'
    '</span><span class="k speakup">to first audio</span><span class="k stream">audio streams</span></p>'
)


def report_html(runs: Sequence[RunResult]) -> bytes:
    """The page of one run, or of a sweep's points one below the other."""
    title = f"omni-duplex-bench · {runs[0].url}" if runs else "omni-duplex-bench"
    body = [_sweep(runs)] if len(runs) > 1 else []
    body += [_run(run, alone=len(runs) == 1) for run in runs]
    return PAGE.replace("{title}", escape(title)).replace("{body}", "\n".join(body)).encode()


def _run(run: RunResult, *, alone: bool) -> str:
    badge = "" if run.complete else '<span class="badge">incomplete: interrupted</span>'
    facts = [("started", run.started), ("model", run.model or "–"), ("dialect", str(run.server.get("dialect") or "–"))]
    facts += [(key, str(value)) for key, value in run.machine.items()]
    chips = "".join(f"<span><b>{escape(k)}</b> {escape(v)}</span>" for k, v in facts)
    warnings = "".join(f'<p class="warn">{escape(w)}</p>' for w in run.warnings)
    shown = run.cases[:MAX_SESSIONS]
    more = (
        f"<p>{len(run.cases) - len(shown)} more sessions are in results.json.</p>"
        if len(shown) < len(run.cases)
        else ""
    )
    inner = (
        f'<p class="lead">{escape(headline(run))} {badge}</p><div class="facts">{chips}</div>{warnings}'
        f"<h3>Metrics</h3>{_metrics(run)}{_DISTRIBUTIONS}{_histograms(run)}"
        f"<h3>Sessions</h3>{_LEGEND}{''.join(_case(case) for case in shown)}{more}"
    )
    name = escape(f"{run.url} {run.label}".strip())
    if alone:
        return f"<section><h2>{name}</h2>{inner}</section>"
    return f"<details><summary><h2>{escape(run.label or run.started)}</h2></summary>{inner}</details>"


def _metrics(run: RunResult) -> str:
    names = sorted({p for s in run.metrics.values() if s for p in s.percentiles}, key=lambda p: float(p[1:]))
    head = "".join(f"<th>{escape(n)}</th>" for n in ("n", "mean", "std", "min", *names, "max"))
    rows = []
    for name, (label, unit) in (UNITS | SESSION_UNITS).items():
        s = run.metrics.get(name)
        if s is None:
            continue
        values = [s.mean, s.std, s.min, *(s.percentiles.get(p) for p in names), s.max]
        cells = "".join(f"<td>{figure(v, unit)}</td>" for v in values)
        rows.append(f"<tr><th>{escape(label)}{f' [{unit}]' if unit else ''}</th><td>{s.count}</td>{cells}</tr>")
    if not rows:
        return "<p>Nothing was measured.</p>"
    good = ""
    if run.goodput is not None:
        limits = ", ".join(f"{k} ≤ {v:g}" for k, v in run.goodput.limits.items())
        good = f"<p>Goodput: {run.goodput.good} of {run.goodput.of} sessions met {escape(limits)}.</p>"
    return f'<div class="wide"><table><tr><th></th>{head}</tr>{"".join(rows)}</table></div>{good}'


def _histograms(run: RunResult) -> str:
    names = ("ttfp_speech_end_ms", "ttft_speech_end_ms", "ttft_ms", "ttfp_ms", "ttfp_commit_ms", "rtf", "barge_in_ms")
    figures = []
    for name in (*names, "lag_max_ms"):
        label, unit = (UNITS | SESSION_UNITS)[name]
        values = [value for case in run.cases for value in session_values(case, name)]
        if values:
            figures.append(histogram(values, label, unit))
    return f'<div class="figures">{"".join(figures)}</div>' if figures else "<p>Nothing was measured.</p>"


def _case(case: CaseResult) -> str:
    notes = [case.error, case.decision_note, *case.violations, *case.server_errors, *case.warnings, case.artifact_error]
    said = "".join(f'<p class="warn">{escape(note)}</p>' for note in notes if note)
    user = f'<p class="heard">heard: {escape(" / ".join(case.user_transcript))}</p>' if case.user_transcript else ""
    turns = waterfall(case)
    body = (
        timeline(case) + (f"<h4>Turns, from the end of your speech</h4>{turns}" if turns else "")
        if case.streamed_s
        else ""
    )
    mark = "ok" if case.status == "ok" else "bad"
    return (
        f'<article><h4>{escape(case.case_id)} <span class="status {mark}">{escape(case.status)}</span></h4>'
        f"{said}{user}{body}</article>"
    )


def _sweep(runs: Sequence[RunResult]) -> str:
    columns = ("ttfp_speech_end_ms", "ttft_ms", "ttfp_ms", "rtf", "lag_max_ms")
    labels = UNITS | SESSION_UNITS
    head = "".join(f"<th>{escape(labels[n][0])}{f' [{labels[n][1]}]' if labels[n][1] else ''}</th>" for n in columns)
    rows = []
    for run in runs:
        cells = []
        for name in columns:
            s = run.metrics.get(name)
            cells.append(f"<td>{figure(s.median if s else None, labels[name][1])}</td>")
        done = f"{run.totals.ok}/{run.totals.sessions}"
        rows.append(f"<tr><th>{escape(run.label)}</th><td>{done}</td>{''.join(cells)}</tr>")
    table = f'<div class="wide"><table><tr><th>point</th><th>ok</th>{head}</tr>{"".join(rows)}</table></div>'
    return f"<section><h2>Sweep</h2><p>Medians.</p>{table}</section>"
