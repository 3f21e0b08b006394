"""The three modes, and every failure code by a case that produces it."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from omni_hwr import Resolution, StoreConfig, TensorSink, TensorSpec, WeightKey, WeightStore
from omni_hwr.errors import DeniedError, MissingError, StorageError, WeightStoreError
from omni_hwr.locks import BuildLock

Weights = dict[str, torch.Tensor]


class Loader:
    """A loader that counts its calls."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.calls = 0

    def __call__(self) -> Mapping[str, torch.Tensor]:
        self.calls += 1
        return self.weights


@pytest.fixture
def loader(weights: Weights) -> Loader:
    return Loader(weights)


def damage(root: Path, key: WeightKey) -> None:
    (root / "artifacts" / key.digest / "extra").write_bytes(b"")


def test_disabled_touches_nothing(root: Path, key: WeightKey, loader: Loader) -> None:
    with WeightStore(root) as store, store.resolve(key, mode="disabled", producer=loader) as result:
        assert (result.outcome, result.lease, result.code, result.stage) == ("missed", None, None, "load")
        assert result.tensors is loader.weights
        assert store.resolve(key, mode="disabled").tensors is None
    assert not root.exists()


def test_preferred_builds_then_hits(store: WeightStore, key: WeightKey, loader: Loader) -> None:
    outcomes = []
    for _ in range(2):
        with store.resolve(key, mode="preferred", producer=loader) as result:
            assert result.lease is not None
            assert result.tensors is not None
            assert torch.equal(result.tensors["block.0.bias"], loader.weights["block.0.bias"])
            assert result.code is None
            outcomes.append(result.outcome)
        assert result.lease_s >= 0
    assert outcomes == ["built", "hit"]
    assert loader.calls == 1


def test_preferred_joins_the_build_of_another(
    store: WeightStore, root: Path, key: WeightKey, loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire = BuildLock.try_acquire

    def late(self: BuildLock) -> bool:
        monkeypatch.setattr(BuildLock, "try_acquire", acquire)
        with WeightStore(root) as other:
            other.publish(key, loader.weights)
        return acquire(self)

    monkeypatch.setattr(BuildLock, "try_acquire", late)
    with store.resolve(key, mode="preferred", producer=loader) as result:
        assert result.outcome == "joined"
    assert loader.calls == 0


def test_preferred_without_a_producer_says_missed_or_denied(
    store: WeightStore, root: Path, key: WeightKey, weights: Weights
) -> None:
    missed = store.resolve(key, mode="preferred")
    assert (missed.outcome, missed.code, missed.lease, missed.retry) == ("missed", "missing", None, True)
    store.publish(key, weights)
    damage(root, key)
    denied = store.resolve(key, mode="preferred")
    assert (denied.outcome, denied.code, denied.lease) == ("denied", "denied", None)
    assert "listing" in denied.message


def test_preferred_rebuilds_what_is_damaged(store: WeightStore, root: Path, key: WeightKey, loader: Loader) -> None:
    store.publish(key, loader.weights)
    damage(root, key)
    with store.resolve(key, mode="preferred", producer=loader) as result:
        assert result.outcome == "built"


def test_required_takes_an_exact_hit_only(store: WeightStore, root: Path, key: WeightKey, loader: Loader) -> None:
    with pytest.raises(MissingError, match="publish it first"):
        store.resolve(key, mode="required", producer=loader)
    store.publish(key, loader.weights)
    with store.resolve(key, mode="required") as result:
        assert result.outcome == "hit"
    damage(root, key)
    with pytest.raises(DeniedError):
        store.resolve(key, mode="required")
    assert loader.calls == 0


def test_an_unknown_mode_is_refused(store: WeightStore, key: WeightKey) -> None:
    with pytest.raises(ValueError, match="preferred"):
        store.resolve(key, mode="maybe")  # type: ignore[arg-type]


Break = Callable[[WeightStore, Path, WeightKey, pytest.MonkeyPatch], WeightStore]


def over_the_limit(store: WeightStore, root: Path, key: WeightKey, patch: pytest.MonkeyPatch) -> WeightStore:
    return WeightStore(root, max_bytes=10)


def being_built(store: WeightStore, root: Path, key: WeightKey, patch: pytest.MonkeyPatch) -> WeightStore:
    store.entries()
    patch.setattr(BuildLock, "try_acquire", lambda self: False)
    return WeightStore(root, config=StoreConfig(build_wait_s=0.01))


def on_sysfs(store: WeightStore, root: Path, key: WeightKey, patch: pytest.MonkeyPatch) -> WeightStore:
    return WeightStore("/proc/self/weights")


def open_to_others(store: WeightStore, root: Path, key: WeightKey, patch: pytest.MonkeyPatch) -> WeightStore:
    root.mkdir(mode=0o755)
    return WeightStore(root)


def failing_sync(store: WeightStore, root: Path, key: WeightKey, patch: pytest.MonkeyPatch) -> WeightStore:
    store.entries()

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    patch.setattr(os, "fsync", fail)
    return WeightStore(root)


def below_a_file(store: WeightStore, root: Path, key: WeightKey, patch: pytest.MonkeyPatch) -> WeightStore:
    root.write_bytes(b"")
    return WeightStore(root / "store")


def closed(store: WeightStore, root: Path, key: WeightKey, patch: pytest.MonkeyPatch) -> WeightStore:
    store.close()
    return store


def no_memory_to_map(store: WeightStore, root: Path, key: WeightKey, patch: pytest.MonkeyPatch) -> WeightStore:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    patch.setattr(mmap, "mmap", fail)
    return WeightStore(root)


FAULTS: dict[str, tuple[str, Break]] = {
    "over the limit": ("space", over_the_limit),
    "another builds too long": ("busy", being_built),
    "not a local file system": ("filesystem", on_sysfs),
    "open to others": ("domain", open_to_others),
    "fsync fails": ("storage", failing_sync),
    "no directory": ("storage", below_a_file),
    "no memory to map": ("storage", no_memory_to_map),
    "closed": ("closed", closed),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_no_fault_of_the_store_fails_a_preferred_start(
    name: str, store: WeightStore, root: Path, key: WeightKey, loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, break_it = FAULTS[name]
    with break_it(store, root, key, monkeypatch) as broken:
        result = broken.resolve(key, mode="preferred", producer=loader)
        assert isinstance(result, Resolution)
        assert (result.outcome, result.code, result.lease) == ("failed", code, None)
        assert result.tensors is loader.weights
        assert result.message
        assert loader.calls == 1
        # The same fault in the required mode is raised, and without a producer it is told.
        bare = broken.resolve(key, mode="preferred")
        assert bare.outcome in ("failed", "missed")
        with pytest.raises(WeightStoreError):
            broken.resolve(key, mode="required")


def test_what_cannot_be_kept_is_loaded_as_usual(store: WeightStore, key: WeightKey) -> None:
    loader = Loader({"x": torch.eye(2).to_sparse()})
    result = store.resolve(key, mode="preferred", producer=loader)
    assert (result.outcome, result.code, result.retry) == ("failed", "tensor", False)
    assert result.tensors is loader.weights


@pytest.mark.parametrize("mode", ["disabled", "preferred"])
def test_the_loaders_own_exception_passes(mode: str, store: WeightStore, key: WeightKey) -> None:
    def broken() -> Weights:
        raise KeyError("no such checkpoint")

    with pytest.raises(KeyError, match="no such checkpoint"):
        store.resolve(key, mode=mode, producer=broken)  # type: ignore[arg-type]


class Rows:
    """A streaming producer that writes the rows it is told to."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows

    def declare(self) -> Mapping[str, TensorSpec]:
        return {"x": TensorSpec("F32", (4, 3))}

    def write(self, sink: TensorSink) -> None:
        for row in self.rows:
            sink.write("x", torch.full((1, 3), float(row)), row)


def test_a_streaming_producer_is_only_for_publishing(store: WeightStore, key: WeightKey) -> None:
    result = store.resolve(key, mode="preferred", producer=Rows([0, 1, 1, 2]))
    assert (result.outcome, result.code, result.tensors) == ("failed", "coverage", None)
    assert store.resolve(key, mode="disabled", producer=Rows([0])).tensors is None
    with store.resolve(key, mode="preferred", producer=Rows([3, 1, 0, 2])) as built:
        assert built.outcome == "built"
        assert built.tensors is not None
        assert built.tensors["x"][:, 0].tolist() == [0, 1, 2, 3]


def test_a_fault_without_a_type_of_ours_is_reported_as_storage(
    store: WeightStore, key: WeightKey, loader: Loader
) -> None:
    def broken(report: object) -> None:
        raise RuntimeError("the progress bar fell over")

    result = store.resolve(key, mode="preferred", producer=loader, progress=broken)
    assert (result.outcome, result.code) == ("failed", StorageError.code)
    assert "fell over" in result.message
    assert result.tensors is loader.weights
