"""What a session's trace says about latency, overlap and speed. Pure: the same trace gives the same numbers.

Anchors of first text (TTFT) and first audio (TTFP): the client's receipt of response.created, as published, and, since
a server decides when it announces a response, the moment the user stopped speaking, the commit, and the stream's start.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from omni_duplex_bench.audio import Interval
from omni_duplex_bench.ledger import ResponseRecord
from omni_duplex_bench.playback import Playback


class ResponseMetrics(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One response; what was not measured is absent. ``*_s`` but ``audio_s`` count from the start of the stream."""

    response_id: str
    status: str
    text: str = ""
    created_s: float | None = None
    first_audio_s: float | None = None
    done_s: float | None = None
    audio_s: float | None = None
    ttft_ms: float | None = None
    ttfp_ms: float | None = None
    ttft_speech_end_ms: float | None = None
    ttfp_speech_end_ms: float | None = None
    ttft_commit_ms: float | None = None
    ttfp_commit_ms: float | None = None
    ttft_stream_start_ms: float | None = None
    ttfp_stream_start_ms: float | None = None
    rtf: float | None = None
    barge_in_ms: float | None = None
    stage0_ttft_ms: float | None = None


UNITS: dict[str, tuple[str, str]] = {
    "ttfp_speech_end_ms": ("First audio after speech", "ms"),
    "ttft_speech_end_ms": ("First text after speech", "ms"),
    "ttft_ms": ("TTFT from response.created", "ms"),
    "ttfp_ms": ("TTFP from response.created", "ms"),
    "ttft_commit_ms": ("First text after commit", "ms"),
    "ttfp_commit_ms": ("First audio after commit", "ms"),
    "ttft_stream_start_ms": ("First text after start", "ms"),
    "ttfp_stream_start_ms": ("First audio after start", "ms"),
    "rtf": ("RTF", ""),
    "barge_in_ms": ("Barge-in to silence", "ms"),
    "stage0_ttft_ms": ("Engine TTFT (stage 0)", "ms"),
}
"""Per-response metrics in the order of tables: label and unit."""

SESSION_UNITS: dict[str, tuple[str, str]] = {
    "tpot_ms": ("Engine TPOT (stage 0)", "ms"),
    "itl_ms": ("Engine ITL (stage 0)", "ms"),
    "overlap_s": ("Both speak at once", "s"),
    "talk_ratio": ("Share of time it speaks", ""),
    "lag_mean_ms": ("Pacing lag, mean", "ms"),
    "lag_max_ms": ("Pacing lag, max", "ms"),
}
"""Per-session metrics: label and unit."""


def response_metrics(
    record: ResponseRecord,
    *,
    start_at_s: float,
    speech: Sequence[Interval],
    commits_at_s: Sequence[float],
    playback: Playback,
) -> ResponseMetrics:
    """Measure one response.

    Args:
        start_at_s: Start of the stream on the client's clock.
        speech: Where the user speaks, seconds from stream start.
        commits_at_s: When turns were committed, on the client's clock.
        playback: When its audio was heard.
    """
    ends = [start_at_s + interval.end_s for interval in speech]
    anchor_speech = _latest(ends, record.created_at_s)
    anchor_commit = _latest(commits_at_s, record.created_at_s)
    stage_ttft = record.stage0.get("vllm_ttft_ms") if record.stage0 is not None else None
    return ResponseMetrics(
        response_id=record.response_id,
        status=record.status or "incomplete",
        text=record.text,
        created_s=record.created_at_s - start_at_s,
        first_audio_s=_minus(record.first_audio_at_s, start_at_s),
        done_s=_minus(record.done_at_s, start_at_s),
        audio_s=record.audio_s if record.audio_bytes else None,
        ttft_ms=_ms(record.first_text_at_s, record.created_at_s),
        ttfp_ms=_ms(record.first_audio_at_s, record.created_at_s),
        ttft_speech_end_ms=_ms(record.first_text_at_s, anchor_speech),
        ttfp_speech_end_ms=_ms(record.first_audio_at_s, anchor_speech),
        ttft_commit_ms=_ms(record.first_text_at_s, anchor_commit),
        ttfp_commit_ms=_ms(record.first_audio_at_s, anchor_commit),
        ttft_stream_start_ms=_ms(record.first_text_at_s, start_at_s),
        ttfp_stream_start_ms=_ms(record.first_audio_at_s, start_at_s),
        rtf=real_time_factor(record),
        barge_in_ms=barge_in_ms(record, start_at_s, speech, playback.heard(record.response_id)),
        stage0_ttft_ms=float(stage_ttft)
        if isinstance(stage_ttft, int | float) and not isinstance(stage_ttft, bool) and stage_ttft >= 0
        else None,
    )


def real_time_factor(record: ResponseRecord) -> float | None:
    """(last audio - created) / audio emitted; None without audio."""
    if record.last_audio_at_s is None or not record.audio_bytes:
        return None
    return (record.last_audio_at_s - record.created_at_s) / record.audio_s


def barge_in_ms(
    record: ResponseRecord, start_at_s: float, speech: Sequence[Interval], heard: Sequence[Interval]
) -> float | None:
    """From the user's first word into a response that was then cut off, to the last of its audio that was heard.

    None when nobody spoke into it or it was not cut off.
    """
    if record.status != "cancelled" or not heard:
        return None
    first, last = heard[0].start_s, heard[-1].end_s
    starts = [start_at_s + interval.start_s for interval in speech]
    into = [at for at in starts if first <= at <= last]
    return (last - into[0]) * 1000.0 if into else None


def overlap_s(a: Sequence[Interval], b: Sequence[Interval]) -> float:
    """Seconds in which both speak. Each sequence is ordered and without overlaps of its own."""
    total, i, j = 0.0, 0, 0
    while i < len(a) and j < len(b):
        total += max(0.0, min(a[i].end_s, b[j].end_s) - max(a[i].start_s, b[j].start_s))
        if a[i].end_s <= b[j].end_s:
            i += 1
        else:
            j += 1
    return total


def talk_ratio(heard: Sequence[Interval], conversation_s: float) -> float | None:
    """Share of the conversation in which the server is heard; None for an empty conversation."""
    return sum(interval.duration_s for interval in heard) / conversation_s if conversation_s > 0 else None


def _latest(times: Sequence[float], at_s: float) -> float | None:
    return max((time for time in times if time <= at_s), default=None)


def _minus(value: float | None, origin: float) -> float | None:
    return None if value is None else value - origin


def _ms(value: float | None, origin: float | None) -> float | None:
    return None if value is None or origin is None else (value - origin) * 1000.0
