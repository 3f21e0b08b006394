"""Shared helpers as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omni_envinventory import ScanResult, scan


@pytest.fixture
def scan_files(tmp_path: Path) -> Callable[[dict[str, str]], ScanResult]:
    """Write files below a fresh folder and scan it."""

    def run(files: dict[str, str]) -> ScanResult:
        for name, text in files.items():
            target = tmp_path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return scan([tmp_path], base=tmp_path)

    return run
