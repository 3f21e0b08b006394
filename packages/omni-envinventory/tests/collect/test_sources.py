"""Other processes: what they were started with, and never "unset" for what cannot be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omni_envinventory import Inventory, Label, State, Variable, collect, of_process

APP = Inventory("app", (Variable("APP_A", "public"),))

CHILD = "import os, sys\nos.environ['APP_A'] = 'changed'\nprint('up', flush=True)\nsys.stdin.read()"

EMPTIED = """
import ctypes, sys
# A process-title change overwrites the memory that /proc/PID/environ shows; do what it does, on this process.
libc = ctypes.CDLL(None)
fields = open('/proc/self/stat').read().rpartition(')')[2].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, 0, end - start)
print('up', flush=True)
sys.stdin.read()
"""


def start(code: str, env: dict[str, str]) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


def test_another_process_is_shown_as_it_was_started() -> None:
    with start(CHILD, {"APP_A": "first"}) as child:
        snapshot = collect(APP, environment=of_process(child.pid))
        child.communicate("")
    assert snapshot.label is Label.EXEC
    assert {entry.name: entry.value for entry in snapshot.entries}["APP_A"] == "first"
    assert "As it was started" in snapshot.to_text()


def test_an_emptied_environment_is_unavailable_and_not_unset() -> None:
    with start(EMPTIED, {"APP_A": "first"}) as child:
        snapshot = collect(APP, environment=of_process(child.pid))
        child.communicate("")
    assert snapshot.label is Label.UNAVAILABLE
    assert not any(entry.state is State.UNSET for entry in snapshot.entries)
    assert "Nothing is known" in snapshot.to_text()
    assert "Not set" not in snapshot.to_text()


def test_an_environment_overwritten_by_a_title(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "environ").write_bytes(b"worker: idle\0\0\0\0")
    assert of_process(7, proc=tmp_path).label is Label.UNAVAILABLE
    (folder / "environ").write_bytes(b"title spilled over\0APP_A=1\0")
    partly = of_process(7, proc=tmp_path)
    assert partly.label is Label.EXEC
    assert partly.variables == {"APP_A": "1"}
    assert "overwritten" in partly.reason


def test_a_process_that_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    gone = of_process(child.pid)
    assert (gone.label, gone.reason) == (Label.UNAVAILABLE, "there is no such process")


@pytest.mark.skipif(os.geteuid() != 0, reason="waits for root, which alone can become another user")
def test_a_process_of_somebody_else(tmp_path: Path) -> None:
    with start(CHILD, {"APP_A": "first"}) as child:
        code = f"import os\nos.setgid(65534); os.setuid(65534)\nprint(open('/proc/{child.pid}/environ').read())"
        refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        child.communicate("")
    assert "PermissionError" in refused.stderr


def test_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "environ").write_bytes(b"APP_A=caf\xe9\0")
    assert "caf\\xe9" in collect(APP, environment=of_process(7, proc=tmp_path)).to_text()
