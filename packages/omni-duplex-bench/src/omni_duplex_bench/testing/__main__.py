"""``python -m omni_duplex_bench.testing``: a scripted server to try clients on, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib

import click

from omni_duplex_bench.testing import Script, ScriptedServer


@click.command()
@click.option("--dialect", type=click.Choice(["ga", "beta"]), default="ga", show_default=True)
@click.option("--turns", type=click.Choice(["server", "commit"]), default="server", show_default=True)
@click.option("--plain", is_flag=True, help="Announce no capabilities, as OpenAI's own servers do.")
@click.option("--reply-s", default=1.5, show_default=True, help="Length of each answer.")
@click.option("--quiet", is_flag=True, help="Keep no record of what clients send, so that memory does not grow.")
def main(dialect: str, turns: str, plain: bool, reply_s: float, quiet: bool) -> None:
    """Print the address of a scripted realtime server on a free loopback port, and serve."""
    ga, by_server = dialect == "ga", turns == "server"
    script = Script(
        dialect="ga" if ga else "beta",
        turns="server" if by_server else "commit",
        extended=not plain,
        reply_s=reply_s,
        speed=2.0,
    )

    async def serve() -> None:
        async with ScriptedServer(script, record=not quiet) as server:
            click.echo(server.url)
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())


if __name__ == "__main__":
    main()
