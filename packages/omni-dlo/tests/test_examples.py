"""Examples, the quickstart, and the benchmarks run as a user runs them."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

PACKAGE = pathlib.Path(__file__).parents[1]


def run(arguments: list[str], folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, env=environment, timeout=110
    )


@pytest.mark.parametrize("path", sorted((PACKAGE / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_run(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = run([str(path)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "False" not in done.stdout.replace("encoder=False", "")
    assert list(tmp_path.iterdir()) == []


def test_the_quickstart_runs_in_an_empty_folder(tmp_path: pathlib.Path) -> None:
    block = re.search(r"## Quickstart\n.*?```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert block is not None
    done = run(["-c", block[1]], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "stream" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="waits for a machine without CUDA")
def test_the_gpu_benchmark_refuses_clearly_without_one(tmp_path: pathlib.Path) -> None:
    done = run([str(PACKAGE / "benchmarks" / "gpu.py")], tmp_path)
    assert done.returncode == 3
    assert "needs a CUDA device" in done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="waits for a CUDA device")
def test_the_gpu_benchmark_is_exact(tmp_path: pathlib.Path) -> None:
    done = run([str(PACKAGE / "benchmarks" / "gpu.py"), "--quick", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(bar["holds"] for bar in json.loads(done.stdout)["bars"])
