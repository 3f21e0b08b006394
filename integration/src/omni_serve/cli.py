"""The ``omni-serve`` command."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import warnings
from importlib import resources
from pathlib import Path

import click
from rich.console import Console

from omni_serve.errors import ServeError

_PASS = {"ignore_unknown_options": True, "help_option_names": []}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="omni-serve", prog_name="omni-serve")
def main() -> None:
    """Serve speech, text and pictures from stages in processes of their own.

    \b
    omni-serve serve                        a voice assistant on the CPU; open the printed address and talk
    omni-serve bench --input hello.wav      measure how it feels, while it runs
    omni-serve plan FILE                    what a deploy file would start
    """


@main.command()
@click.argument("model_dir", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--deploy", metavar="FILE", help="A deploy file, or a built-in: voice (the default), text, image.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 for any free one.  [default: 8000]")
@click.option("--max-sessions", type=click.IntRange(1), help="Realtime sessions at a time.  [default: 8]")
@click.option("--max-session-s", type=click.FloatRange(1), help="Longest session.  [default: 3600]")
@click.option("--idle-s", type=click.FloatRange(1), help="Longest silence of a client.  [default: 300]")
@click.option(
    "--api-key", envvar="OMNI_SERVE_API_KEY", help="Ask clients for this key. Better in OMNI_SERVE_API_KEY than here."
)
@click.option(
    "--allow-origin", multiple=True, metavar="ORIGIN", help="A web origin, besides this host, that may connect."
)
@click.option("--ssl-certfile", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Certificate (PEM).")
@click.option("--ssl-keyfile", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its key (PEM).")
@click.option("--drain-s", default=10.0, show_default=True, type=click.FloatRange(0), help="Time to finish on a stop.")
@click.option("--rules", is_flag=True, help="Answer by fixed rules instead of the language model.")
@click.option("--verbose", is_flag=True, help="Log what the stages log.")
def serve(
    model_dir: Path | None,
    deploy: str | None,
    host: str | None,
    port: int | None,
    max_sessions: int | None,
    max_session_s: float | None,
    idle_s: float | None,
    api_key: str | None,
    allow_origin: tuple[str, ...],
    ssl_certfile: Path | None,
    ssl_keyfile: Path | None,
    drain_s: float,
    rules: bool,
    verbose: bool,
) -> None:
    """Start the server: a full-duplex voice assistant, or what a deploy file or a model folder says.

    \b
    omni-serve serve                          talk to it in a browser
    omni-serve serve MODEL_DIR                a transformers or diffusers folder
    omni-serve serve --deploy deploy.yaml     a graph of one's own; its server settings yield to flags
    """
    from omni_serve.api.settings import ApiSettings
    from omni_serve.deploy import instructions, models, specs
    from omni_serve.deploy.select import by_rules, require_ready, select
    from omni_serve.engine.config import EngineConfig
    from omni_serve.engine.engine import LocalEngine
    from omni_serve.server import serve as run

    if (ssl_certfile is None) != (ssl_keyfile is None):
        raise click.UsageError("--ssl-certfile and --ssl-keyfile go together")
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    _warn_of_strangers()
    try:
        deployment = select(deploy, model_dir)
        if rules:
            deployment = by_rules(deployment)
        require_ready(deployment)
        asked = deployment.server
        settings = ApiSettings(
            host=asked.host if host is None else host,
            port=asked.port if port is None else port,
            api_key=api_key,
            allow_origins=allow_origin,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            session_limit_s=asked.max_session_s if max_session_s is None else max_session_s,
            idle_limit_s=asked.idle_s if idle_s is None else idle_s,
        )
        limits = EngineConfig(max_sessions=asked.max_sessions if max_sessions is None else max_sessions)
        engine = LocalEngine(specs(deployment), models(deployment), instructions(deployment), limits)
        asyncio.run(run(engine, settings, Console(stderr=True), drain_s))
    except ServeError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.argument("file")
@click.argument("model_dir", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
def plan(file: str, model_dir: Path | None) -> None:
    """What a deploy file, or a built-in (voice, text, image), would start: graph, memory, edges. Starts nothing."""
    from omni_serve.deploy import show
    from omni_serve.deploy.select import select

    try:
        show(select(file, model_dir), Console())
    except ServeError as error:
        raise click.ClickException(str(error)) from error


def _warn_of_strangers() -> None:
    """Point out OMNI_ variables that nothing here reads."""
    from omni_envinventory import parse_inventory, warn_unknown

    text = resources.files("omni_serve").joinpath("envinventory.toml").read_text(encoding="utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_unknown(prefixes=("OMNI_",), inventory=parse_inventory(text, "omni_serve/envinventory.toml"))
    for warning in caught:
        click.echo(f"Warning: {warning.message}", err=True)


@main.command(context_settings=_PASS, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> None:
    """Measure a realtime server: omni-duplex-bench, run against this host unless told otherwise.

    \b
    omni-serve bench --input hello.wav          stream a recording to 127.0.0.1:8000
    omni-serve bench run|probe|compare …        everything omni-duplex-bench does
    """
    given = list(arguments)
    if given and given[0].startswith("-") and given[0] not in ("-h", "--help", "--version"):
        given = ["run", *given]
        if not any(word.startswith("--url") for word in given):
            given += ["--url", "ws://127.0.0.1:8000/v1/realtime"]
    _delegate("omni_duplex_bench.cli", "omni-duplex-bench", "omni-serve bench", given)


@main.command(context_settings=_PASS, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def weights(arguments: tuple[str, ...]) -> None:
    """Look after the node's weight store: omni-hwr."""
    _delegate("omni_hwr.cli", "omni-hwr", "omni-serve weights", list(arguments), extra="transformers")


@main.command(context_settings=_PASS, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def env(arguments: tuple[str, ...]) -> None:
    """Review environment variables: omni-envinventory."""
    from omni_envinventory.cli import main as envinventory

    sys.exit(envinventory(list(arguments), prog="omni-serve env"))


def _delegate(module: str, distribution: str, name: str, arguments: list[str], extra: str | None = None) -> None:
    """Run another library's click command in place of ours."""
    try:
        command = importlib.import_module(module).main
    except ModuleNotFoundError as error:
        install = f'pip install "omni-serve[{extra}]"' if extra else f"pip install {distribution}"
        raise click.ClickException(f"{name} needs {error.name}, which is not installed: {install}") from error
    command.main(args=arguments, prog_name=name)
