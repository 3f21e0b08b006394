"""What a session leaves on disk, and the root files that list what an evaluator may use."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from omni_duplex_bench.atomic import publish, write_file
from omni_duplex_bench.audio import Pcm, resample
from omni_duplex_bench.cases import Case
from omni_duplex_bench.playback import Playback
from omni_duplex_bench.replay import Replay
from omni_duplex_bench.results import CaseResult, to_json
from omni_duplex_bench.wavfile import wav_bytes

OUTPUT_RATE_HZ = 24_000
SET = ("output.wav", "wav_transcript.json", "events.json", "result.json", ".done")
FAILED = ".failed.json"
_EDGE_S = 0.001
"""Audio shorter than this past the horizon is rounding, not a clip."""


@dataclass(frozen=True, slots=True)
class Output:
    """The mixed output: samples at 24 kHz, and whether audio fell behind its end."""

    pcm: Pcm
    clipped_s: float


def horizon_s(result: CaseResult, playback: Playback, start_at_s: float, *, official: bool) -> int:
    """Length of output.wav in whole seconds.

    A dataset case lasts as long as its video: the evaluator lays both side by side. Any other case lasts until the
    conversation does, the playing of the last answer included.
    """
    if official:
        return max(1, math.ceil(result.duration_s - 1e-6))
    heard_s = playback.end_s - start_at_s if playback.segments else 0.0
    return max(1, math.ceil(max(result.duration_s, result.streamed_s, heard_s) - 1e-6))


def mix(playback: Playback, start_at_s: float, seconds: int) -> Output:
    """Lay every segment where it was heard, resampled to 24 kHz, over ``seconds``."""
    out = np.zeros(seconds * OUTPUT_RATE_HZ, np.int16)
    clipped = 0.0
    for segment in playback.segments:
        samples = np.frombuffer(bytes(segment.audio), "<i2").astype(np.int16)
        samples = resample(samples, segment.sample_rate_hz, OUTPUT_RATE_HZ)
        at = round((segment.start_s - start_at_s) * OUTPUT_RATE_HZ)
        skip = max(0, -at)
        room = max(0, len(out) - max(at, 0))
        piece = samples[skip : skip + room]
        out[max(at, 0) : max(at, 0) + len(piece)] = piece
        clipped += (len(samples) - skip - len(piece)) / OUTPUT_RATE_HZ
    return Output(out, clipped)


def transcript(replay: Replay, seconds: float) -> dict[str, Any]:
    """``text`` and ``chunks`` with their start and end, as the OmniInteract evaluator reads them."""
    chunks: list[dict[str, Any]] = []
    for response_id, text in replay.texts.items():
        heard = replay.playback.heard(response_id)
        if not text or not heard:
            continue
        start, end = heard[0].start_s - replay.start_at_s, heard[-1].end_s - replay.start_at_s
        if start < seconds:
            chunks.append({"text": text, "timestamp": [round(max(0.0, start), 6), round(min(end, seconds), 6)]})
    return {"text": " ".join(chunk["text"] for chunk in chunks), "chunks": chunks}


def judge(result: CaseResult, clipped_s: float) -> None:
    """Set ``eligible`` and why not: failed, interrupted, cut off or protocol-breaking sessions do not count."""
    reason = None
    if result.status != "ok":
        reason = f"status {result.status}"
    elif clipped_s > _EDGE_S:
        reason = f"clipped: {clipped_s:.2f} s of audio fall behind the end"
    elif any(r.status == "cancelled" for r in result.responses):
        reason = "a response was cancelled"
    elif result.violations:
        reason = "the server broke the protocol"
    result.ineligible_reason, result.eligible = reason, reason is None


def write_case(root: Path, case: Case, replay: Replay) -> None:
    """Publish one session's files; a session that failed leaves ``.failed.json`` instead of ``.done``.

    Raises:
        ArtifactError: If the files cannot be written; then none of them is there.
    """
    result, folder = replay.result, root / case.case_id
    seconds = horizon_s(result, replay.playback, replay.start_at_s, official=case.official)
    output = mix(replay.playback, replay.start_at_s, seconds)
    judge(result, output.clipped_s)
    result.artifacts = case.case_id
    body = to_json(result)
    files = {
        "output.wav": wav_bytes(output.pcm, OUTPUT_RATE_HZ),
        "wav_transcript.json": to_json(transcript(replay, seconds)),
        "events.json": to_json(replay.events),
        "result.json": body,
    }
    if result.status == "ok":
        publish(folder, files | {".done": body}, marker=".done", stale=(FAILED,))
    else:
        publish(folder, files | {FAILED: _failure(result)}, marker=FAILED, stale=(".done",))


def write_failure(root: Path, case: Case, result: CaseResult) -> None:
    """Publish ``.failed.json`` for a case that never became a session."""
    judge(result, 0.0)
    publish(root / case.case_id, {FAILED: _failure(result)}, marker=FAILED, stale=SET)


def _failure(result: CaseResult) -> bytes:
    return to_json(
        {"case_id": result.case_id, "status": result.status, "error": result.error, "type": result.error_type}
    )


def load_done(root: Path, case: Case) -> CaseResult | None:
    """The result of a case that an earlier run finished, or None."""
    folder = root / case.case_id
    if not all((folder / name).is_file() for name in SET):
        return None
    try:
        return msgspec.json.decode((folder / ".done").read_bytes(), type=CaseResult)
    except (msgspec.DecodeError, OSError):
        return None


def write_root(root: Path, cases: Iterable[Case], results: Iterable[CaseResult]) -> None:
    """Write batch_summary.json and official_eval_manifest.jsonl (eligible cases only)."""
    known = {case.case_id: case for case in cases}
    listed = list(results)
    summary = {
        "total": len(listed),
        "success": sum(r.status == "ok" for r in listed),
        "failed": sum(r.status != "ok" for r in listed),
        "eligible": sum(r.eligible for r in listed),
        "results": [_summary(r) for r in listed],
    }
    lines = [
        _manifest_line(root, known[r.case_id]) for r in listed if r.eligible and r.artifacts and r.case_id in known
    ]
    write_file(root / "batch_summary.json", to_json(summary))
    write_file(root / "official_eval_manifest.jsonl", b"".join(lines))


def _summary(result: CaseResult) -> dict[str, Any]:
    return {
        "case_id": result.case_id,
        "subset": result.subset,
        "status": result.status,
        "eligible": result.eligible,
        "ineligible_reason": result.ineligible_reason,
        "duration_s": result.duration_s,
        "responses": len(result.responses),
        "error": result.error,
        "artifact_error": result.artifact_error,
    }


def _manifest_line(root: Path, case: Case) -> bytes:
    row = {
        "sample_id": case.sample_id,
        "gt_json": str(case.annotation) if case.annotation is not None else None,
        "model_json": str((root / case.case_id / "wav_transcript.json").resolve()),
        "scene_type": case.scene_type,
    }
    return msgspec.json.encode(row) + b"\n"
