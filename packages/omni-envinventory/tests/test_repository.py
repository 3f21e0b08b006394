"""This repository against its own inventory, wherever the tests run from a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_envinventory.testing import assert_inventory

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def inventory() -> Path:
    path = ROOT / "envinventory.toml"
    if not (path.is_file() and (ROOT / "integration" / "src").is_dir()):
        pytest.skip("waits for a checkout of the whole repository")
    return path


def test_the_repository_agrees_with_its_inventory(inventory: Path) -> None:
    result = assert_inventory(inventory)
    assert {"OMNI_SERVE_API_KEY", "OMNI_HWR_ROOT"} <= set(result.scan.names)
    assert not result.scan.unparsed
