"""Tables for people, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from omni_duplex_bench.compare import Comparison
from omni_duplex_bench.metrics import SESSION_UNITS, UNITS
from omni_duplex_bench.probe import ProbeResult
from omni_duplex_bench.results import RunResult


def figure(value: float | None, unit: str) -> str:
    """A number in as many digits as mean something; a dash where nothing was measured."""
    if value is None:
        return "–"
    digits = (0 if abs(value) >= 100 else 1) if unit == "ms" else 2 if abs(value) >= 0.1 or value == 0 else 3
    text = f"{value:.{digits}f}"
    return text[1:] if float(text) == 0 and text.startswith("-") else text


def plural(count: int, noun: str) -> str:
    """``1 response``, ``2 responses``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def metrics_table(run: RunResult, percents: Sequence[float]) -> Table:
    """Means and percentiles of what was measured; metrics without a value are not listed."""
    shown = [p for p in percents if p != 50][-3:]
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    table.add_column("metric", max_width=31, overflow="fold")
    table.add_column("n", justify="right")
    for name in ("mean", "median", *(f"p{p:g}" for p in shown)):
        table.add_column(name, justify="right")
    for name, (label, unit) in (UNITS | SESSION_UNITS).items():
        summary = run.metrics.get(name)
        if summary is None:
            continue
        values = [summary.mean, summary.median, *(summary.percentiles.get(f"p{p:g}") for p in shown)]
        title = f"{label}, {unit}" if unit else label
        table.add_row(title, str(summary.count), *(figure(value, unit) for value in values))
    return table


def headline(run: RunResult) -> str:
    """One sentence on how the run went."""
    totals = run.totals
    parts = [f"{totals.ok} of {totals.sessions} sessions ok"]
    parts += [
        f"{count} {name}"
        for name, count in (
            ("listen-only", totals.listen_only),
            ("failed", totals.failed),
            ("cancelled", totals.cancelled),
        )
        if count
    ]
    text = f"{', '.join(parts)}; {plural(totals.responses, 'response')} in {totals.wall_s:.1f} s, at most"
    text += f" {totals.peak_concurrency} at once"
    if run.goodput is not None:
        text += f"; goodput {run.goodput.good}/{run.goodput.of}"
    return text + ("" if run.complete else "  [INCOMPLETE: interrupted]")


def sweep_table(runs: Sequence[RunResult]) -> Table:
    """A row for each point of a sweep."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("point", "ok", "at once", "1st audio p50", "p99, ms", "RTF", "lag max", "goodput"):
        table.add_column(name, justify="left" if name == "point" else "right")
    for run in runs:
        audio, rtf, lag = (run.metrics.get(n) for n in ("ttfp_speech_end_ms", "rtf", "lag_max_ms"))
        table.add_row(
            run.label + ("" if run.complete else " (incomplete)"),
            f"{run.totals.ok}/{run.totals.sessions}",
            str(run.totals.peak_concurrency),
            figure(audio.median if audio else None, "ms"),
            figure(audio.percentiles.get("p99", audio.max) if audio else None, "ms"),
            figure(rtf.mean if rtf else None, ""),
            figure(lag.max if lag else None, "ms"),
            f"{run.goodput.good}/{run.goodput.of}" if run.goodput else "–",
        )
    return table


def comparison_table(comparison: Comparison) -> Table:
    """A row a metric; a difference whose interval leaves out zero is marked."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("metric", max_width=31)
    for name in ("n", "A", "B", "B - A", "95 % interval"):
        table.add_column(name, justify="right")
    for d in comparison.differences:
        interval = f"{figure(d.low, d.unit)} … {figure(d.high, d.unit)}" if d.low is not None else "–"
        table.add_row(
            f"{d.label}, {d.unit}" if d.unit else d.label,
            str(d.count_a) if d.paired or d.count_a == d.count_b else f"{d.count_a}/{d.count_b}",
            figure(d.mean_a, d.unit),
            figure(d.mean_b, d.unit),
            figure(d.difference, d.unit),
            interval + (" *" if d.clear else "  "),
        )
    return table


def probe_table(result: ProbeResult) -> Table:
    """What a server showed, a line each."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    dialect = f"{result.dialect} (from {result.dialect_from})" if result.dialect else "not shown"
    capabilities = ", ".join(f"{k} {v}" for k, v in result.capabilities.items()) or "none announced (plain OpenAI)"
    answer = f"{result.answered_with_audio_s:.2f} s" if result.answered_with_audio_s is not None else "no audio"
    rate = f", deltas at {result.output_rate_hz} Hz" if result.output_rate_hz else ""
    rows = [
        ("server", result.url),
        ("model", result.model or "not shown"),
        ("event names", dialect),
        ("turns ended by", result.turn_ended_by),
        ("input", result.input_format or "not shown"),
        ("output", (result.output_format or "not shown") + rate),
        ("capabilities", capabilities),
        ("resume", "by token" if result.resumable else "not offered"),
        ("decision", f"{result.decision or 'none'}, {answer}"),
        ("events", ", ".join(f"{name} ×{count}" for name, count in result.events.items())),
    ]
    rows += [("violation", text) for text in result.violations]
    rows += [("server error", text) for text in result.errors]
    rows += [("problem", result.problem)] if result.problem else []
    for name, text in rows:
        table.add_row(name, Text(text))
    return table
