"""The ``omni-duplex-bench`` command."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from omni_duplex_bench.client import ClientConfig
from omni_duplex_bench.commandline import execute
from omni_duplex_bench.compare import compare as compare_runs
from omni_duplex_bench.compare import load
from omni_duplex_bench.errors import DuplexBenchError, UsageError
from omni_duplex_bench.options import SUBSETS, RunOptions, numbers
from omni_duplex_bench.probe import probe as run_probe
from omni_duplex_bench.results import to_json
from omni_duplex_bench.tables import comparison_table, probe_table

USAGE = 2


class _Group(click.Group):
    """Turns the package's errors into one sentence on stderr and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DuplexBenchError as error:
            click.echo(f"omni-duplex-bench: {error}", err=True)
            ctx.exit(USAGE if isinstance(error, UsageError) else 1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="omni-duplex-bench")
def main() -> None:
    """Measure how a realtime full-duplex server feels.

    Speech (and video frames) go in at the pace of real time while speech and text come out, over one WebSocket.

    \b
    omni-duplex-bench run --url ws://127.0.0.1:8000/v1/realtime --input hello.wav
    omni-duplex-bench probe --url ws://127.0.0.1:8000/v1/realtime
    omni-duplex-bench compare before/ after/
    """


def _header(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    parsed = []
    for text in value:
        name, colon, content = text.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter("write NAME: VALUE")
        parsed.append((name.strip(), content.strip()))
    return tuple(parsed)


@main.command()
@click.option("--url", required=True, help="Where the server listens: ws://, wss://, http:// or https://.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    help="A WAV or video file, a folder, a .jsonl manifest, an OmniInteract folder, archive or Hub id. Repeatable.",
)
@click.option("--output-dir", type=click.Path(path_type=Path), help="Where results go.  [default: duplex-<time>]")
@click.option("--model", help="Model to ask for.")
@click.option("--dialect", type=click.Choice(["auto", "ga", "beta"]), default="auto", show_default=True)
@click.option(
    "--turns",
    type=click.Choice(["auto", "server", "commit"]),
    default="auto",
    show_default=True,
    help="Who ends a turn: the server's detector (silence follows the input) or a commit; auto asks the session.",
)
@click.option("--concurrency", default="1", show_default=True, help="Sessions at once; 1,2,4 sweeps.")
@click.option("--request-rate", default="", help="Sessions a second (Poisson, seeded); 0.5,1,2 sweeps.")
@click.option("--warmups", default=0, show_default=True, help="Sessions held before the clock starts.")
@click.option("--repeat", default=1, show_default=True, help="Hold a session for every input this many times.")
@click.option("--goodput", multiple=True, metavar="NAME:VALUE", help="Limit such as ttfp_speech_end:1000. Repeatable.")
@click.option("--percentiles", default="50,90,95,99", show_default=True)
@click.option("--subsets", default=",".join(SUBSETS), show_default=True, help="Of OmniInteract.")
@click.option("--num-prompts", default=3, show_default=True, help="Cases to take from a dataset; 0 takes all.")
@click.option("--seed", default=0, show_default=True)
@click.option("--shuffle/--no-shuffle", default=True, show_default=True, help="Draw cases, or take the first ones.")
@click.option("--ref-audio", type=click.Path(path_type=Path), help="A voice to speak with, where the server takes one.")
@click.option("--instructions", help="What the model is told.")
@click.option("--voice", help="Name of a voice of the server.")
@click.option("--require-response", is_flag=True, help="A session without a response has failed.")
@click.option("--session-timeout-s", default=900.0, show_default=True)
@click.option("--media-timeout-s", default=600.0, show_default=True)
@click.option("--max-video-s", default=3600.0, show_default=True)
@click.option("--decision-timeout-s", default=60.0, show_default=True, help="Longest wait for a decision.")
@click.option("--tail-s", default=10.0, show_default=True, help="Silence that a server's detector gets.")
@click.option("--chunk-ms", default=200, show_default=True)
@click.option("--header", "headers", multiple=True, callback=_header, help="NAME: VALUE of the handshake. Repeatable.")
@click.option("--resume", is_flag=True, help="Go on with the run in --output-dir: finished cases are kept.")
@click.pass_context
def run(ctx: click.Context, /, **values: Any) -> None:
    """Stream inputs to a server in real time and measure what comes back.

    With OPENAI_API_KEY set, it is sent as the Authorization header and never printed.
    """
    given = {name for name in values if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE}
    values["concurrency"] = numbers(values["concurrency"], int, "--concurrency")
    values["request_rate"] = numbers(values["request_rate"], float, "--request-rate")
    values["percentiles"] = numbers(values["percentiles"], float, "--percentiles")
    values["subsets"] = tuple(part.strip() for part in values["subsets"].split(",") if part.strip())
    values["output_dir"] = values["output_dir"] or Path(f"duplex-{datetime.now():%Y%m%d-%H%M%S}")
    options = RunOptions(**values, given=frozenset(given))
    options.check()
    ctx.exit(execute(options, Console(highlight=False)))


@main.command()
@click.option("--url", required=True, help="Where the server listens.")
@click.option("--model", help="Model to ask for.")
@click.option("--dialect", type=click.Choice(["auto", "ga", "beta"]), default="auto", show_default=True)
@click.option("--timeout-s", default=20.0, show_default=True, help="Longest wait for an answer.")
@click.option("--header", "headers", multiple=True, callback=_header, help="NAME: VALUE of the handshake. Repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def probe(ctx: click.Context, /, **values: Any) -> None:
    """Talk to a server once and say which event names, formats and capabilities it shows."""
    config = ClientConfig(dialect=values["dialect"], headers=dict(values["headers"]), queue_events=True)
    work = run_probe(values["url"], model=values["model"], config=config, timeout_s=values["timeout_s"])
    result = asyncio.run(work)
    if values["as_json"]:
        click.echo(to_json(result).decode(), nl=False)
    else:
        Console(highlight=False).print(probe_table(result))
    ctx.exit(1 if result.problem else 0)


@main.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--seed", default=0, show_default=True, help="Of the bootstrap.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(a: Path, b: Path, seed: int, as_json: bool) -> None:
    """Put two runs (folders or results.json) side by side, with 95 % confidence intervals."""
    comparison = compare_runs(load(a), load(b), names=(str(a), str(b)), seed=seed)
    if as_json:
        click.echo(to_json(comparison).decode(), nl=False)
        return
    console = Console(highlight=False)
    console.print(f"A {a}\nB {b}", soft_wrap=True)
    console.print(comparison_table(comparison))
    paired = any(d.paired for d in comparison.differences)
    console.print(f"* the interval leaves out zero; {'pairs of the same case' if paired else 'sessions'} resampled")
    for note in comparison.notes:
        console.print(f"[yellow]note:[/] {note}", soft_wrap=True)
