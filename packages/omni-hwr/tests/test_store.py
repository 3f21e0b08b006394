"""Publishing, leasing, building: the promises of the facade."""

from __future__ import annotations

import gc
import os
import pickle
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from omni_hwr import Entry, Progress, PrunePolicy, StoreConfig, WeightKey, WeightStore
from omni_hwr.errors import (
    BusyError,
    ClosedError,
    ConflictError,
    DeniedError,
    KeyFormatError,
    MissingError,
    SpaceError,
    TensorError,
)

Weights = dict[str, torch.Tensor]


def assert_same(found: dict[str, torch.Tensor] | object, wanted: Weights) -> None:
    assert list(found) == list(wanted)  # type: ignore[call-overload]
    for name, tensor in wanted.items():
        got = found[name]  # type: ignore[index]
        assert got.dtype == tensor.dtype
        assert got.shape == tensor.shape
        assert got.stride() == tensor.stride()
        assert torch.equal(got, tensor), name


def test_what_is_published_is_leased(store: WeightStore, key: WeightKey, weights: Weights) -> None:
    assert store.lease(key) is None
    store.publish(key, weights)
    with store.lease(key, verify="full") as lease:
        assert_same(lease.tensors, weights)
        assert lease.tensors["embed.weight"].data_ptr() == lease.tensors["head.weight"].data_ptr()
        assert lease.key == key
        assert lease.digest == key.digest
        assert lease.source == "hit"
        assert lease.nbytes == sum(region.nbytes for region in lease.regions)
        for tensor in lease.tensors.values():
            inside = [r for r in lease.regions if r.address <= tensor.data_ptr() < r.address + r.nbytes]
            assert len(inside) == (1 if tensor.numel() else 0)


def test_the_payload_is_plain_safetensors(store: WeightStore, key: WeightKey, weights: Weights, root: Path) -> None:
    store.publish(key, weights)
    files = sorted((root / "artifacts" / key.digest).glob("*.safetensors"))
    assert len(files) > 1
    seen = {}
    for file in files:
        with safe_open(file, framework="pt") as opened:
            seen.update({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118
    assert set(seen) == set(weights) - {"head.weight"}
    assert all(torch.equal(seen[name], weights[name]) for name in seen)


def test_files_are_private_and_read_only(store: WeightStore, key: WeightKey, weights: Weights, root: Path) -> None:
    store.publish(key, weights)
    for path in [root, *root.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o400), path


def test_get_or_build_builds_once(
    store: WeightStore, key: WeightKey, weights: Weights, leftovers: Callable[[], list[str]]
) -> None:
    calls = []

    def produce() -> Weights:
        calls.append(1)
        return weights

    with store.get_or_build(key, produce) as first, store.get_or_build(key, produce) as second:
        assert (first.source, second.source) == ("built", "hit")
        assert_same(second.tensors, weights)
    assert calls == [1]
    assert leftovers() == []


def test_threads_join_one_build(store: WeightStore, key: WeightKey, weights: Weights) -> None:
    entered, go = threading.Event(), threading.Event()
    waits: list[Progress] = []
    sources: list[str] = []

    def produce() -> Weights:
        entered.set()
        assert go.wait(60)
        return weights

    def build(progress: Callable[[Progress], None]) -> None:
        with store.get_or_build(key, produce, progress=progress) as lease:
            sources.append(lease.source)

    def note(report: Progress) -> None:
        waits.append(report)
        go.set()

    builder = threading.Thread(target=build, args=(lambda report: None,))
    builder.start()
    assert entered.wait(60)
    joiner = threading.Thread(target=build, args=(note,))
    joiner.start()
    builder.join()
    joiner.join()
    assert sorted(sources) == ["built", "joined"]
    assert waits[0].stage == "waiting"
    assert f"process {os.getpid()}" in waits[0].item


def test_the_wait_for_a_builder_is_bounded_and_names_it(
    root: Path, store: WeightStore, key: WeightKey, weights: Weights
) -> None:
    with WeightStore(root, config=StoreConfig(build_wait_s=0.05)) as impatient:

        def produce() -> Weights:
            with pytest.raises(BusyError, match=f"process {os.getpid()}") as caught:
                impatient.get_or_build(key, lambda: weights)
            assert caught.value.retry
            assert isinstance(caught.value, TimeoutError)
            return weights

        store.get_or_build(key, produce).close()


def test_publishing_the_same_again_is_harmless_other_content_is_refused(
    store: WeightStore, key: WeightKey, weights: Weights
) -> None:
    first = store.publish(key, weights)
    assert (
        store.publish(
            key,
            {name: tensor.clone() for name, tensor in weights.items()}
            | {"head.weight": weights["embed.weight"], "embed.weight": weights["embed.weight"]},
        ).content_digest
        == first.content_digest
    )
    with pytest.raises(ConflictError, match="change the key"):
        store.publish(key, {**weights, "step": torch.tensor(4)})
    with store.lease(key) as lease:
        assert_same(lease.tensors, weights)


def test_a_producers_exception_passes_and_leaves_nothing(
    store: WeightStore, key: WeightKey, leftovers: Callable[[], list[str]]
) -> None:
    def produce() -> Weights:
        raise RuntimeError("the checkpoint is gone")

    with pytest.raises(RuntimeError, match="the checkpoint is gone"):
        store.get_or_build(key, produce)
    assert store.entries() == []
    assert leftovers() == []


def test_what_is_no_tensor_is_refused(store: WeightStore, key: WeightKey, root: Path) -> None:
    with pytest.raises(TensorError, match="is list under"):
        store.publish(key, {"x": [1, 2]})  # type: ignore[dict-item]
    assert not root.exists()


def test_tensors_outlive_lease_artifact_and_store(root: Path, key: WeightKey, weights: Weights) -> None:
    with WeightStore(root) as store:
        store.publish(key, weights)
        lease = store.lease(key)
        tensor = lease.tensors["block.0.weight"]
        lease.close()
        lease.close()
        with pytest.raises(ClosedError):
            _ = lease.tensors
        assert store.remove(key)
    del lease
    gc.collect()
    assert torch.equal(tensor, weights["block.0.weight"])


def test_the_mapping_goes_with_its_last_tensor(store: WeightStore, key: WeightKey, weights: Weights) -> None:
    store.publish(key, weights)

    def maps() -> int:
        return Path("/proc/self/maps").read_text().count(key.digest)

    lease = store.lease(key)
    assert maps() == len(lease.regions)
    kept = lease.tensors["block.0.weight"]
    lease.close()
    gc.collect()
    assert maps() == 1
    del kept
    gc.collect()
    assert maps() == 0


def test_a_lease_cannot_be_pickled(store: WeightStore, key: WeightKey, weights: Weights) -> None:
    store.publish(key, weights)
    with store.lease(key) as lease, pytest.raises(TypeError, match="send the key"):
        pickle.dumps(lease)


def test_removing_and_publishing_again_never_changes_what_is_mapped(
    store: WeightStore, key: WeightKey, weights: Weights
) -> None:
    store.publish(key, weights)
    lease = store.lease(key)
    old = lease.tensors["block.0.weight"]
    assert not store.remove(key)
    lease.close()
    assert store.remove(key)
    other = {**weights, "block.0.weight": weights["block.0.weight"] + 1}
    store.publish(key, other)
    with store.lease(key) as again:
        assert_same(again.tensors, other)
        assert torch.equal(old, weights["block.0.weight"])


def test_ten_thousand_tensors_take_as_many_maps_as_files(root: Path, key: WeightKey) -> None:
    weights = {f"t.{index}": torch.full((3,), index) for index in range(10_000)}
    with WeightStore(root) as store:
        store.publish(key, weights)
        with store.lease(key) as lease:
            assert Path("/proc/self/maps").read_text().count(key.digest) == len(lease.regions) == 1
            assert lease.tensors["t.9999"].tolist() == [9999] * 3


def test_new_limits_hold_on_an_existing_store(root: Path, make_key: Callable[..., WeightKey], weights: Weights) -> None:
    with WeightStore(root) as store:
        store.publish(make_key("a"), weights)
    with WeightStore(root, max_bytes=20_000) as small, pytest.raises(SpaceError, match="the store is at its limit"):
        small.publish(make_key("b"), weights)
    with (
        WeightStore(root, config=StoreConfig(max_artifact_bytes=100)) as tiny,
        pytest.raises(SpaceError, match="of one"),
    ):
        tiny.publish(make_key("b"), weights)
    with WeightStore(root, config=StoreConfig(reserve_bytes=1 << 60)) as full, pytest.raises(SpaceError, match="disk"):
        full.publish(make_key("b"), weights)
    with WeightStore(root) as store:
        store.publish(make_key("b"), weights)
        assert len(store.entries()) == 2


def test_a_store_that_may_prune_makes_room_by_least_recent_use(
    root: Path, make_key: Callable[..., WeightKey], weights: Weights
) -> None:
    names = ["a", "b", "c"]
    with WeightStore(root) as store:
        for age, name in enumerate(names):
            store.publish(make_key(name), weights)
            os.utime(root / "artifacts" / make_key(name).digest, (age, age))
        each = store.entries()[0].nbytes
        store.pin(make_key("a"))
        held = store.lease(make_key("b"))
        os.utime(root / "artifacts" / make_key("b").digest, (1, 1))
    config = StoreConfig(max_bytes=each * 3 + 8000, prune_to_fit=True)
    with WeightStore(root, config=config) as store:
        store.publish(make_key("d"), weights)
        assert {entry.key.model for entry in store.entries()} == {"a", "b", "d"}
        store.unpin(make_key("a"))
        # Were all that may go not enough, nothing would go.
        with pytest.raises(SpaceError):
            store.publish(make_key("e"), {"big": torch.zeros(3 * each, dtype=torch.uint8)})
        assert {entry.key.model for entry in store.entries()} == {"a", "b", "d"}
    held.close()


def test_prune_spares_leased_and_pinned(
    store: WeightStore, make_key: Callable[..., WeightKey], weights: Weights
) -> None:
    for name in ("leased", "pinned", "idle"):
        store.publish(make_key(name), weights)
    store.pin(make_key("pinned"))
    with store.lease(make_key("leased")):
        would = store.prune(PrunePolicy(max_count=0), dry_run=True)
        assert {entry.key.model for entry in would} == {"leased", "idle"}
        assert len(store.entries()) == 3
        gone = store.prune(PrunePolicy(max_count=0))
        assert [entry.key.model for entry in gone] == ["idle"]
    assert {entry.key.model for entry in store.entries()} == {"leased", "pinned"}


def test_entries_say_when_and_how_large(store: WeightStore, key: WeightKey, weights: Weights) -> None:
    before = time.time() - 1
    store.publish(key, weights)
    (entry,) = store.entries()
    assert isinstance(entry, Entry)
    assert entry.key == key
    assert before < entry.created_s <= entry.used_s + 1 <= time.time() + 2
    assert entry.nbytes > sum(tensor.nbytes for tensor in weights.values()) - weights["head.weight"].nbytes


def test_a_lease_makes_an_artifact_recent(
    store: WeightStore, make_key: Callable[..., WeightKey], weights: Weights, root: Path
) -> None:
    for name in ("a", "b"):
        store.publish(make_key(name), weights)
        os.utime(root / "artifacts" / make_key(name).digest, (1, 1))
    store.lease(make_key("a")).close()
    assert [entry.key.model for entry in store.entries()] == ["a", "b"]


def test_pinning_needs_an_artifact_and_digests_are_checked(store: WeightStore, key: WeightKey) -> None:
    with pytest.raises(MissingError):
        store.pin(key)
    with pytest.raises(MissingError):
        store.verify(key)
    with pytest.raises(MissingError):
        store.manifest(key)
    with pytest.raises(KeyFormatError):
        store.remove("../../etc")
    assert not store.remove(key)


def test_a_flipped_bit_is_denied_quarantined_and_rebuilt_once(
    store: WeightStore, key: WeightKey, weights: Weights, root: Path
) -> None:
    store.publish(key, weights)
    victim = max((root / "artifacts" / key.digest).glob("*.safetensors"))
    victim.chmod(0o600)
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    victim.chmod(0o400)
    store.lease(key).close()  # the structure is intact
    with pytest.raises(DeniedError, match="payload") as caught:
        store.verify(key)
    assert caught.value.reason == "payload"
    assert store.lease(key) is None
    assert len(list((root / "quarantine").iterdir())) == 1
    calls = []
    for _ in range(2):
        with store.get_or_build(key, lambda: calls.append(1) or weights, verify="full") as lease:
            assert_same(lease.tensors, weights)
    assert calls == [1]


def test_a_closed_store_says_so(root: Path, key: WeightKey) -> None:
    store = WeightStore(root)
    store.close()
    store.close()
    with pytest.raises(ClosedError):
        store.lease(key)
