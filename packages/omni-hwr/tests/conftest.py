"""Stores on a temporary folder, keys and weights that all tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from omni_hwr import StoreConfig, WeightKey, WeightStore


@pytest.fixture
def make_key() -> Callable[..., WeightKey]:
    """A key that differs from another where its fields do."""

    def make(model: str = "org/model", **fields: object) -> WeightKey:
        given: dict[str, object] = {"component": "transformer", "representation": "bf16-final", "producer": "test/1"}
        return WeightKey(model=model, **(given | fields))  # type: ignore[arg-type]

    return make


@pytest.fixture
def key(make_key: Callable[..., WeightKey]) -> WeightKey:
    return make_key()


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    """Several data types, a tied pair, a scalar and an empty tensor."""
    torch.manual_seed(7)
    tied = torch.randn(32, 16)
    return {
        "embed.weight": tied,
        "head.weight": tied,
        "block.0.weight": torch.randn(64, 32).bfloat16(),
        "block.0.bias": torch.randn(33).half(),
        "step": torch.tensor(3),
        "empty": torch.empty(0, 4),
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[WeightStore]:
    """A store whose files are small, so that every artifact of several tensors has several."""
    with WeightStore(root, config=StoreConfig(shard_bytes=4096, reserve_bytes=0, lock_wait_s=10.0)) as opened:
        yield opened


@pytest.fixture
def leftovers(root: Path) -> Callable[[], list[str]]:
    """Names in the store's folders that only a publication under way may have there."""

    def find() -> list[str]:
        found = [f"{folder}/{item.name}" for folder in ("staging", "locks") for item in (root / folder).iterdir()]
        found += [item.name for item in root.iterdir() if item.name.startswith(".")]
        return sorted(found)

    return find
