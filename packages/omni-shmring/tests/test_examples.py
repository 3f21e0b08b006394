"""Every example runs by itself and ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
EXPECTED = {
    "one_to_one": "chunk 4: codes 4..31",
    "several_receivers": "60 jobs, each done once",
    "async_consumer": "prompt 6/0, prompt 6/1, prompt 6/2\ncancelled: CancelledError",
    "zero_copy_lease": "pending after the lease: 0",
    "vllm_omni_connector": "chunks taken back: 1",
}


def test_every_example_is_here() -> None:
    if not EXAMPLES.is_dir():
        pytest.skip("waits for the source checkout: the wheel carries no examples")
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    if not EXAMPLES.is_dir():
        pytest.skip("waits for the source checkout: the wheel carries no examples")
    found = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert found.returncode == 0, found.stderr
    assert EXPECTED[name] in found.stdout
    assert "Traceback" not in found.stderr


def test_the_readme_quickstart_runs(tmp_path: Path) -> None:
    readme = EXAMPLES.parent / "README.md"
    if not readme.is_file():
        pytest.skip("waits for the source checkout: the wheel carries no README file")
    block = readme.read_text().split("## Quickstart", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    (tmp_path / "quickstart.py").write_text(block)
    found = subprocess.run([sys.executable, "quickstart.py"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert found.returncode == 0, found.stderr
    assert "Traceback" not in found.stderr
