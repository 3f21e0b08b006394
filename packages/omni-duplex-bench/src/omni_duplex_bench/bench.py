"""Runs many sessions: at a concurrency, at an arrival rate, with warm-ups, until done or interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omni_duplex_bench.artifacts import load_done, write_case, write_failure
from omni_duplex_bench.cases import Case, Prepared
from omni_duplex_bench.errors import ArtifactError, UsageError
from omni_duplex_bench.replay import LiveSession, ReplayConfig, replay
from omni_duplex_bench.results import CaseResult


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """How sessions arrive.

    Attributes:
        concurrency: Most sessions at once.
        request_rate: Sessions a second on a seeded Poisson schedule (None: as fast as the concurrency allows).
        warmups: Sessions held and forgotten before the clock starts.
    """

    concurrency: int = 1
    request_rate: float | None = None
    warmups: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise UsageError(f"concurrency must be at least 1, got {self.concurrency}")
        if self.request_rate is not None and not 0 < self.request_rate < float("inf"):
            raise UsageError(f"request rate must be a positive number, got {self.request_rate}")
        if self.warmups < 0:
            raise UsageError(f"warm-ups must be at least 0, got {self.warmups}")


@dataclass(frozen=True, slots=True)
class Failed:
    """A case that could not be prepared."""

    case: Case
    error: str
    error_type: str


@dataclass(slots=True)
class RunState:
    """What a view shows; grows while the run goes."""

    total: int = 0
    sessions: list[LiveSession] = field(default_factory=list)
    results: list[CaseResult] = field(default_factory=list)
    started_at_s: float = 0.0
    wall_s: float = 0.0
    interrupted: bool = False
    server: dict[str, Any] = field(default_factory=dict)


def arrivals(count: int, rate: float | None, seed: int) -> list[float]:
    """Start times in seconds: exponential gaps of mean 1 / rate, the same for the same seed; all 0 without a rate."""
    if rate is None:
        return [0.0] * count
    source, at, times = random.Random(seed), 0.0, []
    for _ in range(count):
        times.append(at)
        at += source.expovariate(rate)
    return times


async def run_load(
    inputs: Sequence[Prepared | Failed],
    config: ReplayConfig,
    load: LoadConfig,
    *,
    output: Path | None,
    stop: asyncio.Event,
    state: RunState | None = None,
    resume: bool = False,
    on_result: Callable[[CaseResult], None] = lambda result: None,
) -> RunState:
    """Hold a session for every input and return what is known of each, in the order of the inputs.

    One session's failure, or a disk that refuses its artifacts, is that session's result and nothing else's. ``stop``
    ends the running ones at once, keeps what they measured, and starts no more.
    """
    state = state or RunState()
    state.total = len(inputs)
    usable = [entry for entry in inputs if isinstance(entry, Prepared)]
    for index in range(load.warmups if usable else 0):
        if stop.is_set():
            break
        await replay(usable[index % len(usable)], config, stop=stop)
    gate = asyncio.Semaphore(load.concurrency)
    times = arrivals(len(inputs), load.request_rate, load.seed)
    state.started_at_s = origin = time.monotonic()
    slots: list[CaseResult | None] = [None] * len(inputs)

    async def one(index: int, entry: Prepared | Failed) -> None:
        result = await _one(entry, origin + times[index])
        if result is None:
            return
        slots[index] = result
        state.results = [known for known in slots if known is not None]
        on_result(result)

    async def _one(entry: Prepared | Failed, due_s: float) -> CaseResult | None:
        if isinstance(entry, Failed):
            return _failed(entry, output)
        if resume and output is not None and (done := load_done(output, entry.case)) is not None:
            return done
        if not await _until(due_s, stop):
            return None
        async with gate:
            if stop.is_set():
                return None
            live = LiveSession(entry.case.case_id)
            state.sessions.append(live)
            started = time.monotonic()
            outcome = await replay(entry, config, stop=stop, live=live)
            result = outcome.result
            result.started_s, result.ended_s = started - origin, time.monotonic() - origin
            result.wait_to_start_ms = (started - due_s) * 1000 if load.request_rate is not None else None
            state.server = outcome.server or state.server
            if output is not None:
                try:
                    await asyncio.to_thread(write_case, output, entry.case, outcome)
                except ArtifactError as error:
                    result.artifacts, result.artifact_error = None, str(error)
                    result.eligible, result.ineligible_reason = False, "its artifacts could not be written"
            return result

    await asyncio.gather(*(one(index, entry) for index, entry in enumerate(inputs)))
    state.wall_s = time.monotonic() - origin
    state.interrupted = stop.is_set()
    return state


async def _until(due_s: float, stop: asyncio.Event) -> bool:
    """Wait for a point in time; False when ``stop`` came first."""
    delay = due_s - time.monotonic()
    if delay > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), delay)
    return not stop.is_set()


def _failed(entry: Failed, output: Path | None) -> CaseResult:
    case = entry.case
    result = CaseResult(
        case_id=case.case_id,
        source=case.path.name,
        subset=case.subset,
        scene_type=case.scene_type,
        status="failed",
        error=entry.error,
        error_type=entry.error_type,
        ineligible_reason="status failed",
    )
    if output is not None:
        try:
            write_failure(output, case, result)
        except ArtifactError as error:
            result.artifact_error = str(error)
    return result
