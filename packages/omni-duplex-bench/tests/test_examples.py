"""Every example runs, and the first block of the README does alone in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]


@pytest.mark.parametrize("name", [p.name for p in sorted((PACKAGE / "examples").glob("*.py"))])
def test_examples_run(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(PACKAGE / "examples" / name)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_quickstart_runs_as_it_stands(tmp_path: Path) -> None:
    text = (PACKAGE / "README.md").read_text().partition("## Quickstart")[2]
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    command = [sys.executable, "-c", block[1]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "response.done" in done.stdout
