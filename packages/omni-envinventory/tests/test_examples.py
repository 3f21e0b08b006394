"""The examples run as they are, and so does the README's first one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((HOME / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example(example: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert list(tmp_path.iterdir()) == []


def test_quickstart(tmp_path: Path) -> None:
    text = (HOME / "README.md").read_text()
    found = re.search(r"^## Quickstart\n.*?^```python\n(?P<code>.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    done = subprocess.run(
        [sys.executable, "-c", found["code"]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "APP_DEBUG" in done.stdout
