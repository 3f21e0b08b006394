"""What is pruned, what quarantine keeps, and a model of the whole store that random operations are held to."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from omni_hwr import PrunePolicy, StoreConfig, WeightKey, WeightStore
from omni_hwr.errors import ConflictError, DeniedError, MissingError
from omni_hwr.space import Usage, choose

Weights = dict[str, torch.Tensor]


def usage(name: str, nbytes: int, used_s: float, pinned: bool = False) -> Usage:
    return Usage(name, nbytes, 0.0, used_s, pinned)


ENTRIES = [usage("a", 10, 1), usage("b", 20, 2, pinned=True), usage("c", 30, 3), usage("d", 40, 4)]


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        (PrunePolicy(), ""),
        (PrunePolicy(max_age_s=7), "a"),
        (PrunePolicy(max_age_s=0), "acd"),
        (PrunePolicy(max_bytes=100), ""),
        (PrunePolicy(max_bytes=99), "a"),
        (PrunePolicy(max_bytes=61), "ac"),
        (PrunePolicy(max_bytes=0), "acd"),
        (PrunePolicy(max_count=3), "a"),
        (PrunePolicy(max_count=0), "acd"),
        (PrunePolicy(max_age_s=7, max_count=2), "ac"),
    ],
)
def test_the_least_recently_used_go_first_and_pins_stay(policy: PrunePolicy, gone: str) -> None:
    assert "".join(item.digest for item in choose(ENTRIES, policy, 10.0 - 1.5)) == gone


def test_negative_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        PrunePolicy(max_bytes=-1)
    with pytest.raises(ValueError, match="negative"):
        StoreConfig(max_bytes=-1)


def damage(root: Path, key: WeightKey) -> None:
    (root / "artifacts" / key.digest / "extra").write_bytes(b"")


def test_quarantine_keeps_the_newest_within_its_budget(
    root: Path, make_key: Callable[..., WeightKey], weights: Weights
) -> None:
    with WeightStore(root) as store:
        each = sum(item.nbytes for item in [store.publish(make_key("0"), weights)])
    with WeightStore(root, config=StoreConfig(quarantine_bytes=int(each * 2.5))) as store:
        for number in range(4):
            key = make_key(str(number))
            store.publish(key, weights)
            damage(root, key)
            with pytest.raises(DeniedError):
                store.lease(key)
        kept = {path.name.split(".")[0] for path in (root / "quarantine").iterdir()}
        assert make_key("3").digest in kept
        assert make_key("0").digest not in kept
    with WeightStore(root, config=StoreConfig(quarantine_bytes=0)) as store:
        store.entries()
        assert list((root / "quarantine").iterdir()) == []


def test_a_denial_that_was_not_finished_is_finished_by_the_next_open(
    root: Path, key: WeightKey, weights: Weights
) -> None:
    with WeightStore(root) as store:
        store.publish(key, weights)
    folder = root / "artifacts" / key.digest
    (folder / "READY.json").rename(folder / "DENIED.json")
    with WeightStore(root) as store:
        assert store.entries() == []
    assert len(list((root / "quarantine").iterdir())) == 1


def test_pins_of_what_is_gone_go_with_the_next_open(root: Path, key: WeightKey, weights: Weights) -> None:
    with WeightStore(root) as store:
        store.publish(key, weights)
        store.pin(key)
        store.pin(key)
    shutil.rmtree(root / "artifacts" / key.digest)
    with WeightStore(root) as store:
        store.publish(key, weights)
        assert not store.entries()[0].pinned


def test_the_store_behaves_as_its_model(make_key: Callable[..., WeightKey]) -> None:
    """Random operations on a store and on a dictionary that says what it must hold."""
    pytest.importorskip("hypothesis", reason="the state machine needs hypothesis")
    from hypothesis import settings
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

    names = st.sampled_from("abc")
    values = st.integers(0, 2)

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.root = Path(tempfile.mkdtemp()) / "store"
            self.store = WeightStore(self.root, config=StoreConfig(reserve_bytes=0, lock_wait_s=5.0))
            self.content: dict[str, int] = {}
            self.pins: set[str] = set()
            self.leases: list[tuple[str, int, object]] = []

        def teardown(self) -> None:
            for _, _, lease in self.leases:
                lease.close()  # type: ignore[attr-defined]
            self.store.close()
            shutil.rmtree(self.root.parent)

        @staticmethod
        def weights(value: int) -> Weights:
            return {"x": torch.full((5,), value), "y": torch.tensor(float(value))}

        @rule(name=names, value=values)
        def publish(self, name: str, value: int) -> None:
            if self.content.get(name, value) != value:
                with pytest.raises(ConflictError):
                    self.store.publish(make_key(name), self.weights(value))
            else:
                self.store.publish(make_key(name), self.weights(value))
                self.content[name] = value

        @rule(name=names, value=values)
        def build(self, name: str, value: int) -> None:
            lease = self.store.get_or_build(make_key(name), lambda: self.weights(value))
            assert lease.source == ("hit" if name in self.content else "built")
            self.content.setdefault(name, value)
            self.leases.append((name, self.content[name], lease))

        @rule(name=names)
        def lease(self, name: str) -> None:
            lease = self.store.lease(make_key(name), verify="full")
            assert (lease is not None) == (name in self.content)
            if lease is not None:
                self.leases.append((name, self.content[name], lease))

        @rule()
        def release(self) -> None:
            if self.leases:
                self.leases.pop(0)[2].close()  # type: ignore[attr-defined]

        @rule(name=names)
        def remove(self, name: str) -> None:
            free = name in self.content and name not in self.leased
            assert self.store.remove(make_key(name)) == free
            if free:
                del self.content[name]
                self.pins.discard(name)

        @rule(name=names)
        def pin(self, name: str) -> None:
            if name in self.content:
                self.store.pin(make_key(name))
                self.pins.add(name)
            else:
                with pytest.raises(MissingError):
                    self.store.pin(make_key(name))

        @rule(name=names)
        def unpin(self, name: str) -> None:
            self.store.unpin(make_key(name))
            self.pins.discard(name)

        @rule()
        def prune(self) -> None:
            removed = {entry.key.model for entry in self.store.prune(PrunePolicy(max_count=0)) if entry.key}
            assert removed == set(self.content) - self.pins - self.leased
            for name in removed:
                del self.content[name]

        @rule()
        def reopen(self) -> None:
            self.store.close()
            self.store = WeightStore(self.root, config=StoreConfig(reserve_bytes=0, lock_wait_s=5.0))

        @rule(name=names)
        def damage(self, name: str) -> None:
            if name in self.content:
                damage(self.root, make_key(name))
                with pytest.raises(DeniedError):
                    self.store.lease(make_key(name))
                del self.content[name]
                # The old artifact's leases hold nothing in the store any more.
                for item in [item for item in self.leases if item[0] == name]:
                    assert item[2].tensors["y"].item() == item[1]  # type: ignore[attr-defined]
                    item[2].close()  # type: ignore[attr-defined]
                    self.leases.remove(item)
                self.store.unpin(make_key(name))
                self.pins.discard(name)

        @property
        def leased(self) -> set[str]:
            return {name for name, _, _ in self.leases}

        @invariant()
        def listing_is_the_models(self) -> None:
            entries = self.store.entries()
            assert {entry.key.model for entry in entries if entry.key} == set(self.content)
            assert {entry.key.model for entry in entries if entry.key and entry.pinned} == self.pins
            for _, value, lease in self.leases:
                assert lease.tensors["y"].item() == value  # type: ignore[attr-defined]
            for folder in ("staging", "locks"):
                assert list((self.root / folder).iterdir()) == []

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=30, stateful_step_count=25, derandomize=True, deadline=None)
    )
