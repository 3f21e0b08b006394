"""Runs that share a root take turns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omni_duplex_bench.errors import ArtifactError
from omni_duplex_bench.runner import exclusive, machine


def test_a_root_in_use_is_waited_for_and_then_refused(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from omni_duplex_bench.runner import exclusive\n"
        "with exclusive(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.readline()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(ArtifactError, match="another run has held"), exclusive(tmp_path, timeout_s=0.1):
        pass
    other.communicate("\n", timeout=20)
    with exclusive(tmp_path, timeout_s=10):
        pass


def test_the_machine_is_described() -> None:
    assert machine()["cores"] >= 1
