"""Talks to a server once and says what it speaks, takes and offers."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from omni_duplex_bench.audio import to_pcm16
from omni_duplex_bench.client import ClientConfig, RealtimeClient, server_error
from omni_duplex_bench.errors import DuplexBenchError, NoDecisionError
from omni_duplex_bench.pacing import PacingConfig
from omni_duplex_bench.urls import redact_url


class ProbeResult(msgspec.Struct, kw_only=True):
    """What a server showed. None: it did not show it."""

    url: str
    dialect: str | None = None
    dialect_from: str = ""
    session_id: str | None = None
    model: str | None = None
    turn_ended_by: str = "client"
    input_format: str | None = None
    output_format: str | None = None
    output_rate_hz: int | None = None
    capabilities: dict[str, Any] = {}
    resumable: bool = False
    decision: str | None = None
    answered_with_audio_s: float | None = None
    events: dict[str, int] = {}
    violations: list[str] = []
    errors: list[str] = []
    problem: str | None = None


async def probe(
    url: str, *, model: str | None = None, config: ClientConfig | None = None, timeout_s: float = 20.0
) -> ProbeResult:
    """Open a session, ask for a response after a second of a quiet tone, and report what came.

    Raises:
        ConnectError: If the server cannot be reached. What goes wrong later is part of the result.
    """
    result = ProbeResult(url=redact_url(url))
    counts: dict[str, int] = {}
    async with RealtimeClient(url, model=model, config=config) as client:
        client.observe(lambda event: counts.update({event.type: counts.get(event.type, 0) + 1}))
        try:
            await client.configure()
            tone = to_pcm16(np.sin(np.arange(client.input_rate_hz) * 0.17).astype(np.float32) * 0.2)
            pacing = PacingConfig(decision_timeout_s=timeout_s, tail_s=3.0)
            async for _ in client.stream(tone.tobytes(), rate_hz=client.input_rate_hz, pacing=pacing):
                pass
        except NoDecisionError:
            result.problem = f"no decision within {timeout_s:g} s"
        except DuplexBenchError as error:
            result.problem = str(error)
        core = client.core
        _describe(result, core.session)
        shape = "beta" if "input_audio_format" in core.session else "ga"
        result.dialect = core.dialect or (shape if core.session else None)
        result.dialect_from = "event names" if core.dialect else "the session's fields" if core.session else ""
        result.capabilities = core.capabilities
        result.turn_ended_by = "server (voice detector)" if core.server_ends_turns else "client (commit)"
        result.decision = core.turns.decided
        spoken = [r for r in core.ledger if r.audio_bytes]
        if spoken:
            result.answered_with_audio_s = spoken[0].audio_s
            result.output_rate_hz = spoken[0].sample_rate_hz
        result.events = dict(sorted(counts.items()))
        result.violations = [v.message for v in client.violations]
        result.errors = [str(server_error(e)) for e in client.errors]
    return result


def _describe(result: ProbeResult, session: dict[str, Any]) -> None:
    def text(value: object) -> str | None:
        if isinstance(value, dict):
            rate = f" at {value['rate']} Hz" if "rate" in value else ""
            return f"{value.get('type', '?')}{rate}"
        return value if isinstance(value, str) else None

    audio = session.get("audio")
    sides = audio if isinstance(audio, dict) else {}
    for side in ("input", "output"):
        inner = sides.get(side)
        new = inner.get("format") if isinstance(inner, dict) else None
        found = text(new) or text(session.get(f"{side}_audio_format"))
        if side == "input":
            result.input_format = found
        else:
            result.output_format = found
    result.session_id, result.model = text(session.get("id")), text(session.get("model"))
    result.resumable = isinstance(session.get("resume_token"), str)
