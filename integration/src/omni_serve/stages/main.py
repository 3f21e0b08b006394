"""The entry of a stage process: ``python -m omni_serve.stages.main``, started by the supervisor only.

Standard input brings one line (a Launch) and then stays open: its end means that the parent is gone. Reports go to the
descriptor named by the only argument.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from io import FileIO
from typing import Literal

import msgspec

from omni_serve.errors import StartupError
from omni_serve.stages.build import build
from omni_serve.stages.links import Links
from omni_serve.stages.memory import give_back
from omni_serve.stages.runtime import Runtime
from omni_serve.stages.spec import Launch, Report

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_EXIT_LIMIT_S = 5.0


def main() -> int:
    """Run one stage until its parent says stop, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    launch = msgspec.json.decode(sys.stdin.buffer.readline(), type=Launch)
    libc.prctl(_PR_SET_NAME, f"omni-{launch.process}".encode()[:15], 0, 0, 0)
    # The parent may have died before the line above asked to be told.
    if os.getppid() != launch.parent_pid:
        return 1
    with FileIO(int(sys.argv[1]), "wb") as reports:
        status = _serve(launch, reports, stopped)
    sys.stderr.flush()
    # Nothing of value is left, and the native runtimes of the parts may take long over their own exits.
    os._exit(status)


def _serve(launch: Launch, reports: FileIO, stopped: threading.Event) -> int:
    """Load the part, tell the parent, and serve."""

    def report(state: Literal["progress", "ready", "failed"], text: str = "") -> None:
        reports.write(msgspec.json.encode(Report(state, text)) + b"\n")

    with Links(launch.process, launch.incarnation, launch.scope, launch.spec.ring_bytes) as links:
        runtime = Runtime(links)
        _watch(runtime, links, stopped)
        try:
            stage = build(launch.spec, links, lambda text: report("progress", text))
        except (StartupError, ImportError, OSError, ValueError) as error:
            report("failed", str(error) if isinstance(error, StartupError) else f"{type(error).__name__}: {error}")
            return 1
        give_back()
        try:
            report("ready")
            runtime.run(stage)
        finally:
            # What other processes can see goes first.
            links.close()
            stage.close()
            runtime.join()
    return 0


def _watch(runtime: Runtime, links: Links, stopped: threading.Event) -> None:
    """Stop the runtime on SIGTERM and when standard input ends; end the process when it does not follow in time."""

    def expire() -> None:
        links.close()
        os._exit(1)

    def wait_for_stop() -> None:
        stopped.wait()
        runtime.stop()
        timer = threading.Timer(_EXIT_LIMIT_S, expire)
        timer.daemon = True
        timer.start()

    def wait_for_parent() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        stopped.set()

    for target in (wait_for_stop, wait_for_parent):
        threading.Thread(target=target, name=target.__name__, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
