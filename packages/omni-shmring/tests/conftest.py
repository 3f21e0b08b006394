"""What several test modules share: a scope of one's own, and processes that run a function of a test file."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from omni_shmring import Transport, TransportConfig


@pytest.fixture
def scope() -> str:
    """A scope no other test uses."""
    return f"test-{os.getpid()}-{secrets.token_hex(4)}"


@pytest.fixture
def open_transport(scope: str) -> Iterator[Callable[..., Transport]]:
    """Open transports in this process, closed (without lingering) at the test's end."""
    with ExitStack() as stack:

        def start(name: str | int, **settings: object) -> Transport:
            config = TransportConfig(**settings)  # type: ignore[arg-type]
            transport = Transport(name, scope=scope, config=config)
            stack.callback(transport.close, linger_s=0)
            return transport

        yield start


class Child:
    """Another Python process that talks in lines: it prints, the test reads; the test writes, it reads."""

    def __init__(self, source: str, *arguments: str, wrap: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*wrap, sys.executable, "-c", textwrap.dedent(source), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line it prints; empty when it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str = "") -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """End it at once, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def finish(self) -> int:
        """Wait for its own end; its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)

    def end(self) -> None:
        """Whatever state it is in: continue, kill, reap, close its pipes."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                stream.close()


@pytest.fixture
def child() -> Iterator[Callable[..., Child]]:
    """Start processes that are gone when the test ends."""
    children: list[Child] = []

    def start(source: str, *arguments: str, wrap: tuple[str, ...] = ()) -> Child:
        children.append(Child(source, *arguments, wrap=wrap))
        return children[-1]

    yield start
    for each in children:
        each.end()
