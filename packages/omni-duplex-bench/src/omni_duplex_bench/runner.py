"""A whole run from prepared inputs to results.json: the facade that the command line and other programs call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from omni_duplex_bench.aggregate import goodput, summaries, totals
from omni_duplex_bench.artifacts import write_root
from omni_duplex_bench.atomic import write_file
from omni_duplex_bench.bench import Failed, LoadConfig, RunState, run_load
from omni_duplex_bench.cases import Prepared
from omni_duplex_bench.errors import ArtifactError
from omni_duplex_bench.replay import ReplayConfig
from omni_duplex_bench.results import CaseResult, RunResult, to_json
from omni_duplex_bench.stats import PERCENTILES
from omni_duplex_bench.urls import redact_url


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One run: how sessions are held, how they arrive, what is reported."""

    replay: ReplayConfig
    load: LoadConfig = field(default_factory=LoadConfig)
    percentiles: tuple[float, ...] = PERCENTILES
    goodput: dict[str, float] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    resume: bool = False
    label: str = ""


def machine() -> dict[str, Any]:
    """What the numbers were measured on, in words and counts."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "websockets": version("websockets"),
        "numpy": version("numpy"),
    }


@contextlib.contextmanager
def exclusive(root: Path, *, timeout_s: float = 3600.0) -> Iterator[None]:
    """Hold the root's lock: runs that share an output folder take turns.

    Raises:
        ArtifactError: If another run holds it for longer than ``timeout_s``, or the folder cannot be made.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock", timeout=timeout_s):
            yield
    except Timeout as error:
        raise ArtifactError(0, f"another run has held {root} for {timeout_s:g} s") from error


async def run(
    inputs: Sequence[Prepared | Failed],
    config: RunConfig,
    *,
    output: Path | None = None,
    state: RunState | None = None,
    stop: asyncio.Event | None = None,
    on_result: Callable[[CaseResult], None] = lambda result: None,
) -> RunResult:
    """Run every input and return the results; with ``output`` they are also written, artifacts included.

    Raises:
        ArtifactError: Only if ``output`` cannot be locked at all. Files that cannot be written later become warnings.
    """
    stop, state = stop or asyncio.Event(), state or RunState()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    await run_load(
        inputs,
        config.replay,
        config.load,
        output=output,
        stop=stop,
        state=state,
        resume=config.resume,
        on_result=on_result,
    )
    result = RunResult(
        version=version("omni-duplex-bench"),
        complete=not state.interrupted and len(state.results) == len(inputs),
        started=started,
        url=redact_url(config.replay.url),
        model=config.replay.model,
        options=config.options,
        machine=machine(),
        server=state.server,
        totals=totals(state.results, state.wall_s),
        metrics=summaries(state.results, config.percentiles),
        goodput=goodput(state.results, config.goodput, state.wall_s),
        cases=state.results,
        label=config.label,
    )
    if output is not None:
        cases = [entry.case for entry in inputs]
        try:
            write_root(output, cases, state.results)
            write_file(output / "results.json", to_json(result))
        except ArtifactError as error:
            result.warnings.append(str(error))
    return result


@contextlib.contextmanager
def interruptible(stop: asyncio.Event) -> Iterator[None]:
    """While entered, the first Ctrl-C (or SIGTERM) sets ``stop``; a second one ends the program as usual."""
    loop = asyncio.get_running_loop()

    def first(number: int) -> None:
        stop.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, first, number)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
