"""Many processes at once: one build, and removal never touches what is leased or being leased."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from omni_hwr import WeightKey, WeightStore

SHARED = """
import os, random, sys, time, torch
from omni_hwr import PrunePolicy, StoreConfig, WeightKey, WeightStore
from omni_hwr.errors import MissingError

def make_key(name):
    return WeightKey(model=name, component="transformer", representation="bf16-final", producer="test/1")

def weights_of(name):
    return {"x": torch.full((3000,), float(int(name))), "y": torch.full((7,), int(name), dtype=torch.int8)}

root, number = sys.argv[1], int(sys.argv[2])
store = WeightStore(root, config=StoreConfig(shard_bytes=4096, reserve_bytes=0, threads=1))
print("ready", flush=True)
sys.stdin.readline()
"""

BUILD = (
    SHARED
    + """
def produce():
    print("produced", flush=True)
    return weights_of("1")

with store.get_or_build(make_key("1"), produce) as lease:
    print(lease.source, lease.tensors["x"][0].item(), flush=True)
"""
)

FUZZ = (
    SHARED
    + """
rng = random.Random(number)
done = 0
for _ in range(60):
    name = str(rng.randrange(4))
    key = make_key(name)
    action = rng.choice(["lease", "lease", "build", "build", "prune", "remove", "verify", "publish", "entries", "pin"])
    if action == "lease":
        lease = store.lease(key)
        if lease is not None:
            with lease:
                assert os.path.isdir(os.path.join(root, "artifacts", key.digest))
                assert lease.tensors["x"].eq(float(name)).all()
                if rng.random() < 0.5:
                    store.prune(PrunePolicy(max_count=0))
                assert os.path.isdir(os.path.join(root, "artifacts", key.digest)), "a leased artifact was removed"
                assert lease.tensors["x"].eq(float(name)).all()
                done += 1
    elif action == "build":
        with store.get_or_build(key, lambda: weights_of(name)) as lease:
            assert os.path.isdir(os.path.join(root, "artifacts", key.digest)), "a built artifact was removed"
            assert lease.tensors["y"].eq(int(name)).all()
            done += 1
    elif action == "prune":
        store.prune(PrunePolicy(max_count=rng.randrange(3)))
    elif action == "remove":
        store.remove(key)
    elif action == "publish":
        store.publish(key, weights_of(name))
    elif action == "entries":
        store.entries()
    else:
        try:
            store.verify(key) if action == "verify" else (store.pin(key), store.unpin(key))
        except MissingError:
            pass
print("done", done, flush=True)
"""
)


def together(script: str, root: Path, count: int) -> list[list[str]]:
    """Run ``count`` processes that all begin at the same moment; their lines of output."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(root), str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(count)
    ]  # fmt: skip
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in running:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        results = [process.communicate(timeout=110) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(running, results):
        assert process.returncode == 0, errors
    return [output.splitlines() for output, _ in results]


@pytest.mark.slow
def test_eight_processes_build_once(root: Path, leftovers: Callable[[], list[str]]) -> None:
    lines = together(BUILD, root, 8)
    assert sum(line.count("produced") for line in lines) == 1
    sources = sorted(line[-1].split()[0] for line in lines)
    assert sources.count("built") == 1
    assert set(sources) <= {"built", "joined", "hit"}
    assert {line[-1].split()[1] for line in lines} == {"1.0"}
    assert leftovers() == []


@pytest.mark.slow
def test_publish_lease_prune_remove_verify_against_one_another(root: Path, leftovers: Callable[[], list[str]]) -> None:
    lines = together(FUZZ, root, 6)
    assert sum(int(line[-1].split()[1]) for line in lines) > 60
    assert leftovers() == []
    assert list((root / "quarantine").iterdir()) == []
    with WeightStore(root) as store:
        for entry in store.entries():
            store.verify(entry.digest)


def test_a_lease_in_another_process_outlives_everything(root: Path, make_key: Callable[..., WeightKey]) -> None:
    script = SHARED + (
        'lease = store.lease(make_key("5"))\nx = lease.tensors["x"]\nlease.close()\nstore.close()\n'
        'print("holding", flush=True)\nsys.stdin.readline()\nprint(x.eq(5).all().item(), flush=True)\n'
    )
    key = make_key("5")
    with WeightStore(root) as store:
        store.publish(key, {"x": torch.full((3000,), 5.0)})
        with subprocess.Popen(
            [sys.executable, "-c", script, str(root), "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "holding\n"
            assert store.remove(key)
            store.publish(key, {"x": torch.zeros(3000)})
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "True\n"
