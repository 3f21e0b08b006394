"""One session of a benchmark: connect, configure, speak, wait for the decision, and measure whatever happened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from omni_duplex_bench import events as ev
from omni_duplex_bench.audio import SPEECH_METHOD, Interval
from omni_duplex_bench.cases import Prepared
from omni_duplex_bench.client import ClientConfig, RealtimeClient, server_error
from omni_duplex_bench.errors import DuplexBenchError, NoDecisionError, SessionEndedError
from omni_duplex_bench.metrics import overlap_s, response_metrics, talk_ratio
from omni_duplex_bench.pacing import Pacer, PacingConfig
from omni_duplex_bench.playback import Playback
from omni_duplex_bench.recorder import EventRecord, Recorder
from omni_duplex_bench.results import CaseResult, Pacing, Speech, Status
from omni_duplex_bench.stage import combine
from omni_duplex_bench.stats import finite, summarise


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """How each session is held. ``vad`` UNSET keeps the server's turn detection."""

    url: str
    model: str | None = None
    client: ClientConfig = field(default_factory=lambda: ClientConfig(queue_events=False))
    pacing: PacingConfig = field(default_factory=PacingConfig)
    instructions: str | None = None
    voice: str | None = None
    ref_audio: Path | None = None
    require_response: bool = False
    session_timeout_s: float = 900.0


@dataclass(slots=True)
class LiveSession:
    """What a view shows of a session while it runs."""

    case_id: str
    phase: str = "waiting"
    duration_s: float = 0.0
    client: RealtimeClient | None = None
    pacer: Pacer | None = None
    result: CaseResult | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """A session's result with what its artifacts are made of. ``start_at_s`` is on the client's clock."""

    result: CaseResult
    playback: Playback
    events: list[EventRecord]
    start_at_s: float
    texts: dict[str, str]
    server: dict[str, Any]


async def replay(
    prepared: Prepared,
    config: ReplayConfig,
    *,
    stop: asyncio.Event,
    live: LiveSession | None = None,
    now_s: Callable[[], float] = time.monotonic,
) -> Replay:
    """Hold one session. Never raises for what the server, the network or ``stop`` do: the result says it."""
    live = live or LiveSession(prepared.case.case_id)
    recorder, transcripts = Recorder(), list[str]()
    client = RealtimeClient(config.url, model=config.model, config=config.client)
    client.observe(recorder.received)
    client.observe(lambda e: transcripts.append(e.transcript) if isinstance(e, ev.InputTranscript) else None)
    client.observe_sent(recorder.sent)
    live.client, live.duration_s, live.phase = client, prepared.duration_s, "connecting"
    started = now_s()
    pacer: Pacer | None = None
    status: Status = "failed"
    fault: BaseException | None = None
    try:
        async with asyncio.timeout(config.session_timeout_s):
            work = asyncio.create_task(_converse(client, prepared, config, live))
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
                    status = "ok"
                else:
                    status = "cancelled"
            finally:
                work.cancel()
                stopping.cancel()
                await asyncio.gather(work, stopping, return_exceptions=True)
    except NoDecisionError as error:
        listening = client.core.turns.listens > 0 and not len(client.core.ledger)
        status, fault = ("listen_only" if listening else "no_decision"), error
    except TimeoutError:
        fault = NoDecisionError(f"the session ran past its limit of {config.session_timeout_s:g} s")
    except (DuplexBenchError, OSError) as error:
        fault = error
    finally:
        live.phase = "closing"
        await client.close()
    pacer = live.pacer
    result = _result(prepared, client, pacer, status, fault, started, now_s())
    result.user_transcript = transcripts
    if recorder.dropped:
        result.warnings.append(f"{recorder.dropped} events past the first ones are not in events.json")
    if status == "ok" and config.require_response and not any(r.audio_s or r.text for r in result.responses):
        result.status, result.error = "failed", "no response, and one is required"
    start = pacer.trace.start_at_s if pacer is not None and pacer.trace.start_at_s else started
    texts = {record.response_id: record.text for record in client.core.ledger}
    live.result, live.phase = result, result.status
    server = {"session": _without_secrets(client.core.session), "dialect": client.core.dialect}
    live.client = live.pacer = None
    return Replay(result, client.core.playback, recorder.since(start), start, texts, server)


async def _converse(client: RealtimeClient, prepared: Prepared, config: ReplayConfig, live: LiveSession) -> None:
    await client.connect()
    live.phase = "configuring"
    detection: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    if config.pacing.turns == "commit":
        detection = None
    elif config.pacing.turns == "server":
        detection = {"type": "server_vad"}
    await client.configure(
        instructions=config.instructions, voice=config.voice, turn_detection=detection, ref_audio=config.ref_audio
    )
    rate_hz = client.input_rate_hz
    live.pacer = Pacer(
        client,
        prepared.at_rate(rate_hz),
        rate_hz=rate_hz,
        config=config.pacing,
        frames=prepared.frames,
        speech=prepared.speech,
    )
    live.phase = "talking"
    await live.pacer.run()
    failed = [r for r in client.core.ledger if r.status == "failed"]
    if failed:
        raise SessionEndedError(f"response {failed[-1].response_id} failed on the server")


def _result(
    prepared: Prepared,
    client: RealtimeClient,
    pacer: Pacer | None,
    status: Status,
    fault: BaseException | None,
    started: float,
    ended: float,
) -> CaseResult:
    core, case = client.core, prepared.case
    result = CaseResult(
        case_id=case.case_id,
        source=case.path.name,
        subset=case.subset,
        scene_type=case.scene_type,
        status=status,
        error=str(fault) if fault is not None else None,
        error_type=type(fault).__name__ if fault is not None else None,
        duration_s=prepared.duration_s,
        session_s=ended - started,
        dialect=core.dialect,
        commits=core.turns.commits,
        listens=core.turns.listens,
        server_errors=[str(server_error(e)) for e in client.errors if not _expected(e)],
        violations=[v.message for v in client.violations],
        warnings=list(prepared.warnings),
        server_speech_end_ms=[at for _, at in core.turns.speech_stopped if at is not None],
    )
    if pacer is None or not pacer.trace.start_at_s:
        return result
    trace, start = pacer.trace, pacer.trace.start_at_s
    commits = [*core.turns.committed_at_s]
    if trace.commit_at_s is not None:
        commits.append(trace.commit_at_s)
    # A client commit is the moment something should happen; its acknowledgement must not move that moment.
    if trace.commit_at_s is not None and trace.mode == "commit":
        commits = [at for at in commits if at <= trace.commit_at_s]
    result.responses = [
        response_metrics(r, start_at_s=start, speech=trace.speech, commits_at_s=commits, playback=core.playback)
        for r in core.ledger
    ]
    heard = [Interval(i.start_s - start, i.end_s - start) for i in core.playback.heard()]
    conversation_s = max([trace.streamed_s, ended - start, *(i.end_s for i in heard)])
    stages = combine([r.stage0 for r in core.ledger])
    lags = summarise([lag * 1000 for lag in trace.lags_s], (99.0,))
    result.streamed_s, result.turn_mode, result.decision = trace.streamed_s, trace.mode, trace.decision
    result.frames_sent = trace.frames_sent
    result.user_speech = [Speech(i.start_s, i.end_s) for i in trace.speech]
    result.user_speech_method = SPEECH_METHOD
    result.server_heard = [Speech(i.start_s, i.end_s) for i in heard]
    result.overlap_s = overlap_s(trace.speech, heard)
    result.talk_ratio = talk_ratio(heard, conversation_s)
    result.tpot_ms, result.itl_ms = stages.tpot_ms, finite(stages.itl_ms) if stages.itl_ms else None
    result.pacing = Pacing(len(trace.lags_s), lags.mean, lags.max, lags.percentiles.get("p99"))
    if trace.commit_was_fallback:
        result.decision_note = (
            "the server's detector did not end the turn; the client committed after the tail of silence"
        )
    if trace.frames_withheld:
        result.warnings.append(f"{trace.frames_withheld} video frames not sent: the server announced no capabilities")
    if not trace.speech:
        result.warnings.append("no speech found in the input, so nothing is measured from the end of speech")
    return result


def _expected(event: ev.ErrorEvent) -> bool:
    """A final commit that finds nothing left to commit is how a server with a detector says that it is up to date."""
    return event.command == "input_audio_buffer.commit" and "empty" in (event.code or "")


def _without_secrets(session: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in session.items() if k not in ("client_secret", "resume_token", "instructions")}
