"""A server's whole life: stages up, address printed, requests served, drained on a signal, all gone at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator

import uvicorn
from rich.console import Console

from omni_serve.api.app import create_app
from omni_serve.api.settings import ApiSettings
from omni_serve.engine.engine import LocalEngine
from omni_serve.errors import StartupError
from omni_serve.progress import StartProgress

log = logging.getLogger("omni_serve")

_CLOSE_LIMIT_S = 3


class _Uvicorn(uvicorn.Server):
    """uvicorn that says when it listens, and leaves signals to us: they mean draining the engine first."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(settings: ApiSettings) -> socket.socket:
    """The bound socket. Raises StartupError when the address cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        raise StartupError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}; "
            "choose another with --port, or --port 0 for any free one"
        ) from error
    return bound


async def serve(engine: LocalEngine, settings: ApiSettings, console: Console, drain_s: float) -> None:
    """Start everything, serve until SIGINT or SIGTERM, and leave nothing behind.

    The first signal stops admission and gives what is under way up to ``drain_s`` seconds; a second one ends that.

    Raises StartupError when the address or a stage cannot be had.
    """
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signals.put_nowait, number)
    bound = listen(settings)
    try:
        started = asyncio.ensure_future(_start(engine, console))
        stopped = asyncio.ensure_future(signals.get())
        await asyncio.wait({started, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            started.cancel()
            await asyncio.gather(started, return_exceptions=True)
            return
        await started
        config = uvicorn.Config(
            create_app(engine, settings),
            log_level="warning",
            lifespan="on",
            ws="websockets-sansio",
            ws_max_size=settings.max_message_bytes,
            ssl_certfile=settings.ssl_certfile,
            ssl_keyfile=settings.ssl_keyfile,
            timeout_graceful_shutdown=_CLOSE_LIMIT_S,
        )
        server = _Uvicorn(config)
        serving = asyncio.ensure_future(server.serve(sockets=[bound]))
        listening = asyncio.ensure_future(server.listening.wait())
        await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
        if listening.cancel():
            await serving
            raise StartupError("the HTTP server ended before it listened; see above")
        _announce(bound, settings, console)
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            console.print("Stopping: no new work is taken; press Ctrl-C again to stop at once.", highlight=False)
            again = asyncio.ensure_future(signals.get())
            draining = asyncio.ensure_future(engine.drain(drain_s))
            await asyncio.wait({draining, again, serving}, return_when=asyncio.FIRST_COMPLETED)
            for task in (draining, again):
                task.cancel()
        stopped.cancel()
        # Sessions end with a reason before their sockets close.
        await engine.end_sessions()
        server.should_exit = True
        await serving
    finally:
        bound.close()
        await engine.close()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _start(engine: LocalEngine, console: Console) -> None:
    with StartProgress(console) as progress:
        await engine.start(progress.report)


def _announce(bound: socket.socket, settings: ApiSettings, console: Console) -> None:
    """Print where the server is, as a person would open it."""
    host, port = bound.getsockname()[:2]
    shown = "localhost" if host in ("127.0.0.1", "::1") else f"[{host}]" if ":" in host else host
    scheme = "https" if settings.ssl_certfile else "http"
    console.print(f"\nTalk to it at [bold]{scheme}://{shown}:{port}/[/bold]", highlight=False)
    console.print(
        f"Realtime API  {'wss' if settings.ssl_certfile else 'ws'}://{shown}:{port}/v1/realtime", highlight=False
    )
    if host not in ("127.0.0.1", "::1") and settings.api_key is None:
        console.print("Anyone who reaches this address can use it: give --api-key to ask for a key.", style="yellow")
