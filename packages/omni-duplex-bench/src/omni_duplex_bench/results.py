"""The shapes of result.json and results.json."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from omni_duplex_bench.metrics import ResponseMetrics
from omni_duplex_bench.stats import Summary

Status = Literal["ok", "listen_only", "no_decision", "failed", "cancelled"]
"""``listen_only``: the server listened until the bound; ``cancelled``: the run was interrupted."""


class Speech(msgspec.Struct):
    """One stretch of speech, seconds from stream start."""

    start_s: float
    end_s: float


class Pacing(msgspec.Struct, omit_defaults=True):
    """How well real time was kept: lag is max(0, now - due) before each send."""

    sends: int = 0
    lag_mean_ms: float | None = None
    lag_max_ms: float | None = None
    lag_p99_ms: float | None = None


class CaseResult(msgspec.Struct, kw_only=True):
    """One session, whatever became of it."""

    case_id: str
    source: str
    status: Status
    error: str | None = None
    error_type: str | None = None
    subset: str = ""
    scene_type: str = ""
    started_s: float | None = None
    ended_s: float | None = None
    wait_to_start_ms: float | None = None
    duration_s: float = 0.0
    streamed_s: float = 0.0
    session_s: float = 0.0
    turn_mode: str | None = None
    decision: str | None = None
    decision_note: str | None = None
    dialect: str | None = None
    commits: int = 0
    listens: int = 0
    user_speech: list[Speech] = []
    user_speech_method: str = ""
    server_heard: list[Speech] = []
    server_speech_end_ms: list[float] = []
    responses: list[ResponseMetrics] = []
    pacing: Pacing = msgspec.field(default_factory=Pacing)
    tpot_ms: float | None = None
    itl_ms: list[float] | None = None
    overlap_s: float | None = None
    talk_ratio: float | None = None
    frames_sent: int = 0
    user_transcript: list[str] = []
    server_errors: list[str] = []
    violations: list[str] = []
    warnings: list[str] = []
    eligible: bool = False
    ineligible_reason: str | None = None
    artifacts: str | None = None
    artifact_error: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the session ran to a decision."""
        return self.status == "ok"


class Totals(msgspec.Struct, kw_only=True):
    """Counts and rates over the measured sessions of a run."""

    sessions: int
    ok: int
    listen_only: int
    failed: int
    cancelled: int
    responses: int
    wall_s: float
    peak_concurrency: int
    sessions_per_s: float | None = None
    audio_out_s: float = 0.0


class Goodput(msgspec.Struct, kw_only=True):
    """Share of sessions of which every response met every limit."""

    limits: dict[str, float]
    good: int
    of: int
    ratio: float | None
    per_s: float | None


class RunResult(msgspec.Struct, kw_only=True):
    """results.json. ``complete`` is False when the run was interrupted; ``metrics`` maps names to summaries."""

    format: str = "omni-duplex-bench/1"
    version: str
    complete: bool
    started: str
    url: str
    model: str | None
    options: dict[str, Any]
    machine: dict[str, Any]
    server: dict[str, Any] = {}
    totals: Totals
    metrics: dict[str, Summary | None]
    goodput: Goodput | None = None
    cases: list[CaseResult] = []
    warnings: list[str] = []
    label: str = ""


def to_json(value: object) -> bytes:
    """Indented JSON, in which NaN and infinities are null (msgspec writes them so)."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def load_run(data: bytes) -> RunResult:
    """Parse results.json.

    Raises:
        msgspec.ValidationError: If it is of another shape.
    """
    return msgspec.json.decode(data, type=RunResult)
