"""Charts of the report as inline SVG that stretches to its column; labels are HTML, so that they never shrink."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from omni_duplex_bench.results import CaseResult
from omni_duplex_bench.stats import percentile
from omni_duplex_bench.tables import figure

_WIDTH = 1000.0
MAX_TICKS = 6


def ticks(length: float) -> list[float]:
    """Round positions from 0 up to ``length``, at most seven."""
    if length <= 0:
        return [0.0]
    raw = length / MAX_TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw - 1e-12)
    return [step * i for i in range(int(length / step + 1e-9) + 1)]


def _svg(height: float, body: str, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {height:g}" preserveAspectRatio="none" role="img" aria-label="{escape(label)}"'
        f' style="height:{height:g}px">{body}</svg>'
    )


def _bar(x: float, y: float, width: float, height: float, css: str, title: str) -> str:
    return (
        f'<rect class="{css}" x="{x:.2f}" y="{y:g}" width="{max(width, 1.5):.2f}" height="{height:g}" rx="2">'
        f"<title>{escape(title)}</title></rect>"
    )


def _axis(length: float, unit: str) -> str:
    marks = ticks(length)
    names = [f"{mark:g}" for mark in marks]
    names[-1] += unit
    places = [100 * mark / length if length else 0.0 for mark in marks]
    spans = "".join(f'<span style="left:{at:.2f}%">{name}</span>' for at, name in zip(places, names))
    return f'<div class="axis">{spans}</div>'


def timeline(case: CaseResult) -> str:
    """Who spoke when: the user above, the server below, a line where each response was created."""
    ends = [s.end_s for s in (*case.user_speech, *case.server_heard)]
    length = max([case.streamed_s, case.duration_s, *ends, 0.1])
    scale = _WIDTH / length
    parts = [f'<line class="grid" x1="{t * scale:.2f}" x2="{t * scale:.2f}" y1="0" y2="52"/>' for t in ticks(length)]
    for css, y, spans, who in (("user", 4, case.user_speech, "you"), ("server", 29, case.server_heard, "server")):
        for s in spans:
            title = f"{who} {s.start_s:.2f}–{s.end_s:.2f} s"
            parts.append(_bar(s.start_s * scale, y, (s.end_s - s.start_s) * scale, 19, css, title))
    for r in case.responses:
        if r.created_s is not None:
            x = r.created_s * scale
            title = escape(f"response created at {r.created_s:.2f} s ({r.status})")
            parts.append(f'<line class="mark" x1="{x:.2f}" x2="{x:.2f}" y1="25" y2="52"><title>{title}</title></line>')
    chart = _svg(52, "".join(parts), f"timeline of {case.case_id}")
    rows = '<div class="who"><span class="k user">you</span><span class="k server">server</span></div>'
    return f'<div class="lane">{rows}<div class="plot">{chart}{_axis(length, " s")}</div></div>'


def histogram(values: Sequence[float], label: str, unit: str) -> str:
    """Counts in equal bins (square-root rule, at most 40) with the median and the 95th percentile marked."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    span = high - low or max(abs(high), 1e-9) * 0.1
    bins = min(40, max(5, math.ceil(math.sqrt(len(ordered)))))
    counts = [0] * bins
    for value in ordered:
        counts[min(bins - 1, int((value - low) / span * bins))] += 1
    width, top = _WIDTH / bins, max(counts)
    parts = []
    for i, count in enumerate(counts):
        if count:
            height = 86 * count / top
            edge = low + span * i / bins
            title = f"{figure(edge, unit)}–{figure(edge + span / bins, unit)} {unit}: {count}"
            parts.append(_bar(i * width + 1, 90 - height, width - 2, height, "hist", title))
    for percent, css in ((50, "median"), (95, "high")):
        at = percentile(ordered, percent)
        x = (at - low) / span * _WIDTH
        title = f"p{percent} {figure(at, unit)} {unit}"
        parts.append(f'<line class="{css}" x1="{x:.2f}" x2="{x:.2f}" y1="0" y2="90"><title>{title}</title></line>')
    middle, late = figure(percentile(ordered, 50), unit), figure(percentile(ordered, 95), unit)
    return (
        f"<figure><figcaption>{escape(label)}{f' [{unit}]' if unit else ''}"
        f"<small>n {len(ordered)} · p50 {middle} · p95 {late}</small></figcaption>{_svg(90, ''.join(parts), label)}"
        f'<div class="ends"><span>{figure(low, unit)}</span><span>{figure(low + span, unit)}</span></div></figure>'
    )


def waterfall(case: CaseResult) -> str:
    """One row a response, from the end of the user's speech (or response.created) to done, in milliseconds."""
    rows, longest = [], 0.0
    for number, r in enumerate(case.responses, 1):
        if r.created_s is None:
            continue
        anchor = r.created_s
        if r.ttfp_speech_end_ms is not None and r.first_audio_s is not None:
            anchor = r.first_audio_s - r.ttfp_speech_end_ms / 1000
        points = [("wait", "until response.created", anchor, r.created_s)]
        if r.first_audio_s is not None:
            text_s = r.created_s + r.ttft_ms / 1000 if r.ttft_ms is not None else None
            if text_s is not None and text_s < r.first_audio_s:
                points.append(("think", "until first text", r.created_s, text_s))
                points.append(("speakup", "first text to first audio", text_s, r.first_audio_s))
            else:
                points.append(("think", "until first audio", r.created_s, r.first_audio_s))
            if r.done_s is not None:
                points.append(("stream", "audio streams", r.first_audio_s, r.done_s))
        elif r.done_s is not None:
            points.append(("think", "until done, no audio", r.created_s, r.done_s))
        shifted = [(css, what, (a - anchor) * 1000, (b - anchor) * 1000) for css, what, a, b in points]
        longest = max(longest, *(b for _, _, _, b in shifted))
        rows.append((number, r.text or r.status, shifted))
    if not rows:
        return ""
    longest = longest or 1.0
    html = []
    for number, text, parts in rows:
        bars = "".join(
            _bar(a / longest * _WIDTH, 3, (b - a) / longest * _WIDTH, 16, css, f"{what}: {b - a:.0f} ms")
            for css, what, a, b in parts
            if b >= a
        )
        said = escape(text[:120])
        html.append(
            f'<div class="lane"><div class="who">{number}</div><div class="plot">{_svg(22, bars, f"turn {number}")}'
            f'<div class="said">{said}</div></div></div>'
        )
    axis = f'<div class="lane"><div class="who"></div><div class="plot">{_axis(longest, " ms")}</div></div>'
    return "".join(html) + axis
