"""Speaks a recording at the pace of real time on an absolute schedule, and stops when the server has decided."""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from omni_duplex_bench.audio import Interval, Pcm, resample, speech_intervals
from omni_duplex_bench.commands import TurnMode
from omni_duplex_bench.core import DecisionKind
from omni_duplex_bench.errors import UsageError

if TYPE_CHECKING:
    from omni_duplex_bench.client import RealtimeClient


@dataclass(frozen=True, slots=True)
class PacingConfig:
    """How input is streamed.

    Attributes:
        chunk_ms: Audio per append. A chunk is sent when a microphone would have captured its last sample.
        turns: ``server`` streams silence after the input until the server has ended and answered the turn, ``commit``
            ends it with a final commit, ``auto`` asks the session's settings.
        tail_s: Silence after the last speech before the client gives up on the server's detector and commits.
        decision_timeout_s: Longest wait for the decision after the input ended.
        acknowledge: Report audio as it is heard, where the server takes it.
    """

    chunk_ms: int = 200
    turns: Literal["auto", "server", "commit"] = "auto"
    tail_s: float = 10.0
    decision_timeout_s: float = 60.0
    acknowledge: bool = True

    def __post_init__(self) -> None:
        if not 5 <= self.chunk_ms <= 10_000:
            raise UsageError(f"chunk_ms must be 5 to 10000, got {self.chunk_ms}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Samples ``[start, end)`` of the input, due ``due_s`` after the stream's start, with the frames seen by then."""

    start: int
    end: int
    due_s: float
    frames: tuple[int, ...] = ()


def plan_chunks(
    samples: int, rate_hz: int, chunk_ms: int, *, hold_back: bool = False, frame_times_s: Sequence[float] = ()
) -> tuple[Chunk, ...]:
    """Cut an input into appends, each sample in exactly one.

    Borders are computed from the start each time, so that 44.1 kHz in 15 ms chunks (661.5 samples) never drifts
    (openai/openai-cookbook#2977). With ``hold_back`` the last sample is a chunk of its own, due with the one before
    it: the commit that follows then carries it. Frame i goes with the first chunk that ends at or after its time;
    frames past the end go with the last.
    """
    borders = [0]
    while borders[-1] < samples:
        borders.append(min(samples, max(borders[-1] + 1, len(borders) * rate_hz * chunk_ms // 1000)))
    if hold_back and samples > 1:
        borders[-1:] = [samples - 1, samples] if borders[-2] < samples - 1 else [samples]
    chunks, frame = [], 0
    for index, (start, end) in enumerate(itertools.pairwise(borders)):
        due_s = end / rate_hz
        first = frame
        while frame < len(frame_times_s) and (frame_times_s[frame] <= due_s or index == len(borders) - 2):
            frame += 1
        chunks.append(Chunk(start, end, due_s, tuple(range(first, frame))))
    return tuple(chunks)


def fills_units(samples: int, rate_hz: int, chunk_period_ms: int | None) -> bool:
    """Whether an input is an exact number of the model's units, so that a bare commit would carry nothing."""
    if not chunk_period_ms or chunk_period_ms <= 0 or not samples:
        return False
    return samples * 1000 % (rate_hz * chunk_period_ms) == 0


@dataclass(slots=True)
class PacingTrace:
    """What happened on the way out. Times are seconds on the monotonic clock; ``lags_s`` one per append."""

    mode: TurnMode = "commit"
    start_at_s: float = 0.0
    input_s: float = 0.0
    input_ended_at_s: float | None = None
    streamed_s: float = 0.0
    commit_at_s: float | None = None
    commit_was_fallback: bool = False
    speech: tuple[Interval, ...] = ()
    lags_s: list[float] = field(default_factory=list)
    frames_sent: int = 0
    frames_withheld: int = 0
    decision: DecisionKind | None = None


class Pacer:
    """Streams one input through a client. ``trace`` fills while :meth:`run` goes and stays readable after a fault."""

    def __init__(
        self,
        client: RealtimeClient,
        pcm16: bytes | Pcm,
        *,
        rate_hz: int,
        config: PacingConfig,
        frames: Sequence[tuple[float, bytes]] = (),
        speech: tuple[Interval, ...] | None = None,
    ) -> None:
        samples = np.frombuffer(pcm16, "<i2").astype(np.int16) if isinstance(pcm16, bytes) else pcm16
        self._client, self._config, self._frames = client, config, frames
        self._rate_hz = client.input_rate_hz
        found = speech_intervals(samples, rate_hz) if speech is None else speech
        self.trace = PacingTrace(speech=found, input_s=len(samples) / rate_hz)
        self._pcm = resample(samples, rate_hz, self._rate_hz)

    async def run(self) -> DecisionKind:
        """Stream everything and wait for the decision.

        Raises:
            NoDecisionError: If it does not come within the bound.
            SessionEndedError: If the session ends first.
        """
        trace, core = self.trace, self._client.core
        auto: TurnMode = "server" if core.server_ends_turns else "commit"
        trace.mode = auto if self._config.turns == "auto" else self._config.turns
        period = core.capabilities.get("chunk_period_ms")
        hold = trace.mode == "commit" and fills_units(
            len(self._pcm), self._rate_hz, period if isinstance(period, int) else None
        )
        takes_frames = core.extended
        times = [at for at, _ in self._frames] if takes_frames else []
        trace.frames_withheld = 0 if takes_frames else len(self._frames)
        chunks = plan_chunks(len(self._pcm), self._rate_hz, self._config.chunk_ms, hold_back=hold, frame_times_s=times)
        trace.start_at_s = time.monotonic()
        for chunk in chunks:
            frames = [base64.b64encode(self._frames[i][1]).decode("ascii") for i in chunk.frames]
            await self._send(self._pcm[chunk.start : chunk.end].tobytes(), chunk.due_s, frames)
            trace.frames_sent += len(frames)
        trace.input_ended_at_s = time.monotonic()
        decision = await self._silence() if trace.mode == "server" else None
        if decision is None:
            decision = await self._commit()
        trace.decision = decision
        return decision

    async def _send(self, pcm16: bytes, due_s: float, frames: list[str]) -> None:
        due = self.trace.start_at_s + due_s
        delay = due - time.monotonic()
        if delay > 0:
            await asyncio.sleep(delay)
        self.trace.lags_s.append(max(0.0, time.monotonic() - due))
        await self._client.append(pcm16, rate_hz=self._rate_hz, end_ms=round(due_s * 1000), frames=frames)
        self.trace.streamed_s = due_s
        if self._config.acknowledge:
            await self._client.acknowledge_playback()

    async def _silence(self) -> DecisionKind | None:
        """A microphone goes on after the last word; None when the server's detector never ended the turn."""
        trace, turns = self.trace, self._client.core.turns
        speech_end = trace.speech[-1].end_s if trace.speech else 0.0
        chunk = np.zeros(self._rate_hz * self._config.chunk_ms // 1000, np.int16).tobytes()
        give_up_s = speech_end + self._config.tail_s
        bound_s = max(trace.input_s, give_up_s) + self._config.decision_timeout_s
        due_s = trace.streamed_s
        while True:
            decision = self._client.core.complete_after_input(trace.start_at_s + speech_end)
            if decision is not None:
                return decision
            waiting = turns.last_commit_at_s is None or turns.last_commit_at_s < trace.start_at_s + speech_end
            if (waiting and not turns.speech_open and due_s >= max(give_up_s, trace.input_s)) or due_s >= bound_s:
                return None
            due_s += self._config.chunk_ms / 1000
            await self._send(chunk, due_s, [])

    async def _commit(self) -> DecisionKind:
        core, trace = self._client.core, self.trace
        trace.commit_was_fallback = trace.mode == "server"
        trace.commit_at_s = time.monotonic()
        await self._client.commit(final=True)
        await self._client.wait_until(
            lambda: core.complete_after_commit() is not None, timeout_s=self._config.decision_timeout_s
        )
        decision = core.complete_after_commit()
        if decision is None:
            raise AssertionError("woken without a decision")
        return decision
