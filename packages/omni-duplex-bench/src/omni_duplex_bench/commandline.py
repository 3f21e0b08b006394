"""What the ``run`` command does once its options are checked."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from omni_duplex_bench.aggregate import parse_goodput
from omni_duplex_bench.atomic import write_file
from omni_duplex_bench.bench import Failed, LoadConfig, RunState
from omni_duplex_bench.cases import Prepared
from omni_duplex_bench.client import ClientConfig
from omni_duplex_bench.errors import ArtifactError
from omni_duplex_bench.export import results_csv
from omni_duplex_bench.inputs import all_cases
from omni_duplex_bench.live import LiveView
from omni_duplex_bench.media import MediaConfig
from omni_duplex_bench.options import RunOptions
from omni_duplex_bench.pacing import PacingConfig
from omni_duplex_bench.prepare import prepare
from omni_duplex_bench.replay import ReplayConfig
from omni_duplex_bench.report import report_html
from omni_duplex_bench.results import RunResult, to_json
from omni_duplex_bench.runner import RunConfig, exclusive, interruptible, run
from omni_duplex_bench.tables import headline, metrics_table, sweep_table

INTERRUPTED = 130
"""Exit status of a run that Ctrl-C ended, as shells have it."""


def execute(options: RunOptions, console: Console) -> int:
    """Load, decode, run, report; returns the exit status: 0, 1 when a session failed, 130 when interrupted."""
    cases, warnings = all_cases(
        options.inputs,
        repeat=options.repeat,
        subsets=options.subsets,
        num_prompts=options.num_prompts,
        seed=options.seed,
        shuffle=options.shuffle,
    )
    for warning in warnings:
        console.print(f"[yellow]warning:[/] {warning}", soft_wrap=True, highlight=False)
    media = MediaConfig(options.media_timeout_s, options.max_video_s)
    with console.status(f"decoding {len(cases)} inputs") if console.is_terminal else contextlib.nullcontext():
        inputs = prepare(cases, media)
    with exclusive(options.output_dir):
        return _points(options, inputs, warnings, console)


def _points(options: RunOptions, inputs: list[Prepared | Failed], warnings: list[str], console: Console) -> int:
    rates: tuple[float | None, ...] = options.request_rate or (None,)
    points = [(concurrency, rate) for concurrency in options.concurrency for rate in rates]
    runs: list[RunResult] = []
    for concurrency, rate in points:
        label = f"c{concurrency}" + (f"-r{rate:g}" if rate is not None else "")
        folder = options.output_dir / label if options.is_sweep else options.output_dir
        if options.is_sweep:
            console.rule(label, align="left")
        result = asyncio.run(_one(options, inputs, label, concurrency, rate, folder, console))
        result.warnings += warnings
        runs.append(result)
        _report(folder, result, runs[:-1], options, console)
        if not result.complete:
            break
    if options.is_sweep:
        _sweep(options, runs, console)
    console.print(f"results in {options.output_dir}", soft_wrap=True, highlight=False)
    if not runs[-1].complete:
        return INTERRUPTED
    return 1 if any(r.totals.failed for r in runs) else 0


async def _one(
    options: RunOptions,
    inputs: list[Prepared | Failed],
    label: str,
    concurrency: int,
    rate: float | None,
    folder: Path,
    console: Console,
) -> RunResult:
    client = ClientConfig(dialect=options.dialect, headers=dict(options.headers), queue_events=False)
    pacing = PacingConfig(
        chunk_ms=options.chunk_ms,
        turns=options.turns,
        tail_s=options.tail_s,
        decision_timeout_s=options.decision_timeout_s,
    )
    session = ReplayConfig(
        url=options.url,
        model=options.model,
        client=client,
        pacing=pacing,
        instructions=options.instructions,
        voice=options.voice,
        ref_audio=options.ref_audio,
        require_response=options.require_response,
        session_timeout_s=options.session_timeout_s,
    )
    config = RunConfig(
        session,
        LoadConfig(concurrency, rate, options.warmups, options.seed),
        options.percentiles,
        parse_goodput(options.goodput),
        described(options),
        options.resume,
        label,
    )
    stop, state = asyncio.Event(), RunState()
    with interruptible(stop), LiveView(console, state, title=f"{options.url}  {label}") as view:

        async def ticking() -> None:
            while True:
                await asyncio.sleep(0.125)
                view.tick()

        ticker = asyncio.create_task(ticking())
        try:
            return await run(inputs, config, output=folder, state=state, stop=stop, on_result=view.finished)
        finally:
            ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)


def described(options: RunOptions) -> dict[str, Any]:
    """The options as results.json keeps them: no header values, no query of the URL."""
    kept = asdict(replace(options, headers=tuple((name, "…") for name, _ in options.headers)))
    kept.pop("url")
    kept.pop("given")
    known: dict[str, Any] = msgspec.to_builtins(kept, enc_hook=str)
    return known


def _report(folder: Path, result: RunResult, before: list[RunResult], options: RunOptions, console: Console) -> None:
    console.print(headline(result), soft_wrap=True, highlight=False)
    if any(summary is not None for summary in result.metrics.values()):
        console.print(metrics_table(result, options.percentiles))
    else:
        console.print("nothing was measured: no session produced a response", highlight=False)
    try:
        write_file(folder / "results.csv", results_csv(result))
        write_file(folder / "report.html", report_html([result, *before]))
    except ArtifactError as error:
        result.warnings.append(str(error))
    for warning in result.warnings:
        console.print(f"[yellow]warning:[/] {warning}", soft_wrap=True, highlight=False)


def _sweep(options: RunOptions, runs: list[RunResult], console: Console) -> None:
    console.rule("sweep", align="left")
    console.print(sweep_table(runs))
    points = [
        {"label": r.label, "complete": r.complete, "totals": r.totals, "metrics": r.metrics, "goodput": r.goodput}
        for r in runs
    ]
    try:
        write_file(
            options.output_dir / "sweep.json", to_json({"format": "omni-duplex-bench-sweep/1", "points": points})
        )
        write_file(options.output_dir / "report.html", report_html(runs))
    except ArtifactError as error:
        console.print(f"[yellow]warning:[/] {error}", soft_wrap=True, highlight=False)
