"""A publication is complete or invisible: killed at every step, refused by the system at every step, or raced."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from omni_hwr import Progress, StoreConfig, WeightKey, WeightStore
from omni_hwr.errors import ConflictError, SpaceError, StorageError

Weights = dict[str, torch.Tensor]

CHILD = """
import os, signal, sys, torch
from omni_hwr import StoreConfig, WeightKey, WeightStore

root, kill_at = sys.argv[1], int(sys.argv[2])
key = WeightKey(model="org/model", component="transformer", representation="bf16-final", producer="test/1")
torch.manual_seed(7)
weights = {f"t{i}": torch.randn(40, 32) for i in range(4)}
seen = 0

def report(progress):
    global seen
    seen += 1
    print(progress.stage, flush=True)
    if seen == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

with WeightStore(root, config=StoreConfig(shard_bytes=8192, reserve_bytes=0, threads=1)) as store:
    store.get_or_build(key, lambda: weights, progress=report).close()
"""


def child_weights() -> Weights:
    torch.manual_seed(7)
    return {f"t{index}": torch.randn(40, 32) for index in range(4)}


def run_child(root: Path, kill_at: int = 0, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-c", CHILD, str(root), str(kill_at)], capture_output=True, text=True, timeout=100
    )


def assert_complete_or_invisible(root: Path, key: WeightKey, leftovers: Callable[[], list[str]]) -> bool:
    """Open after a crash, check that nothing is left over, publish again; whether the artifact was there."""
    wanted = child_weights()
    with WeightStore(root, config=StoreConfig(shard_bytes=8192, reserve_bytes=0)) as store:
        lease = store.lease(key, verify="full")
        assert leftovers() == []
        assert list((root / "quarantine").iterdir()) == []
        found = lease is not None
        if lease is not None:
            with lease:
                assert all(torch.equal(lease.tensors[name], tensor) for name, tensor in wanted.items())
        with store.get_or_build(key, lambda: wanted, verify="full") as again:
            assert again.source == ("hit" if found else "built")
            assert all(torch.equal(again.tensors[name], tensor) for name, tensor in wanted.items())
        assert leftovers() == []
    return found


@pytest.mark.slow
def test_killed_after_each_named_step(root: Path, key: WeightKey, leftovers: Callable[[], list[str]]) -> None:
    stages = run_child(root).stdout.split()
    shutil.rmtree(root)
    assert {"reserved", "writing", "synced", "manifest", "ready", "renamed", "published"} == set(stages)
    outcomes = {}
    for number, stage in enumerate(stages, start=1):
        if stage in outcomes:
            continue
        done = run_child(root, number)
        assert done.returncode == -signal.SIGKILL
        assert done.stdout.split() == stages[:number]
        outcomes[stage] = assert_complete_or_invisible(root, key, leftovers)
        shutil.rmtree(root)
    assert [stage for stage, found in outcomes.items() if found] == ["renamed", "published"]


def test_a_killed_builder_is_cleaned_up_by_the_build_of_another_key(
    root: Path, make_key: Callable[..., WeightKey], leftovers: Callable[[], list[str]]
) -> None:
    assert run_child(root, 3).returncode == -signal.SIGKILL
    assert [name.split("/")[0] for name in leftovers()] == ["locks", "staging"]
    with WeightStore(root) as store:
        store.publish(make_key("another"), {"x": torch.ones(1)})
        assert leftovers() == []
        assert len(store.entries()) == 1


def test_a_living_builders_staging_is_left_alone(
    root: Path, store: WeightStore, make_key: Callable[..., WeightKey], weights: Weights
) -> None:
    def open_another(report: Progress) -> None:
        if report.stage in ("reserved", "ready", "renamed"):
            with WeightStore(root) as other:
                other.publish(make_key(report.stage), {"x": torch.ones(1)})

    with store.get_or_build(make_key(), lambda: weights, progress=open_another) as lease:
        assert torch.equal(lease.tensors["block.0.weight"], weights["block.0.weight"])
    assert len(store.entries()) == 4


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.ENOMEM])
@pytest.mark.parametrize("call", ["fsync", "rename", "pwrite", "posix_fallocate", "mkdir", "open", "listdir"])
def test_a_refusal_at_each_call_is_a_typed_error_without_a_trace(
    call: str, fault: int, root: Path, store: WeightStore, make_key: Callable[..., WeightKey],
    leftovers: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    weights = child_weights()
    store.publish(make_key("first"), weights)
    original = getattr(os, call)
    refused, count = 0, 0

    def sometimes(*args: object, **kwargs: object) -> object:
        nonlocal count, refused
        count += 1
        if count == at:
            refused += 1
            raise OSError(fault, os.strerror(fault))
        return original(*args, **kwargs)

    for at in range(1, 60):
        key = make_key(f"try {at}")
        count, before = 0, refused
        with monkeypatch.context() as patch:
            patch.setattr(os, call, sometimes)
            try:
                store.publish(key, weights)
            except (SpaceError, StorageError) as error:
                found, failed = error.errno, True
            else:
                found, failed = fault, False
        assert found == fault
        assert leftovers() == []
        assert (key.digest in {entry.digest for entry in store.entries()}) == (not failed)
        if refused == before:
            break
    assert refused > 0
    assert not failed
    store.verify(make_key("first"))
    store.publish(make_key("try 1"), weights)
    store.verify(make_key("try 1"))


def test_losing_the_rename_is_joining(
    root: Path, tmp_path: Path, store: WeightStore, key: WeightKey, weights: Weights, leftovers: Callable[[], list[str]]
) -> None:
    with WeightStore(tmp_path / "other") as other:
        other.publish(key, weights)

    def come_first(report: Progress) -> None:
        if report.stage == "ready":
            (tmp_path / "other" / "artifacts" / key.digest).rename(root / "artifacts" / key.digest)

    with store.get_or_build(key, lambda: weights, progress=come_first) as lease:
        assert torch.equal(lease.tensors["block.0.bias"], weights["block.0.bias"])
    assert leftovers() == []
    assert len(store.entries()) == 1


def test_losing_the_rename_to_other_content_keeps_the_first(
    root: Path, tmp_path: Path, store: WeightStore, key: WeightKey, weights: Weights, leftovers: Callable[[], list[str]]
) -> None:
    with WeightStore(tmp_path / "other") as other:
        other.publish(key, {"x": torch.ones(3)})

    def come_first(report: Progress) -> None:
        if report.stage == "ready":
            (tmp_path / "other" / "artifacts" / key.digest).rename(root / "artifacts" / key.digest)

    with pytest.raises(ConflictError):
        store.get_or_build(key, lambda: weights, progress=come_first)
    with store.lease(key) as lease:
        assert list(lease.tensors) == ["x"]
    assert leftovers() == []


@pytest.mark.parametrize("stage", ["reserved", "writing", "synced", "manifest", "ready"])
def test_a_callback_that_raises_ends_the_publication_cleanly(
    stage: str, store: WeightStore, key: WeightKey, weights: Weights, leftovers: Callable[[], list[str]]
) -> None:
    def stop(report: Progress) -> None:
        if report.stage == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.publish(key, weights, progress=stop)
    assert leftovers() == []
    assert store.lease(key) is None
    store.publish(key, weights)


def test_disk_full_on_a_real_small_disk(tmp_path: Path, key: WeightKey) -> None:
    """A tmpfs of 4 MiB in a mount namespace of its own; free space is filled behind the reservation's back."""
    script = f"""
import os, sys, torch
from pathlib import Path
from omni_hwr import StoreConfig, WeightKey, WeightStore
from omni_hwr.errors import SpaceError
disk = Path({str(tmp_path)!r}) / "disk"
key = WeightKey.parse({key.content!r})
weights = {{"x": torch.ones(2 << 20, dtype=torch.uint8)}}
with WeightStore(disk / "store", config=StoreConfig(reserve_bytes=0)) as store:
    def fill(report):
        if report.stage == "reserved":
            (disk / "filler").write_bytes(bytes(3 << 20))
    for progress in (fill, lambda report: None):
        try:
            store.publish(key, weights, progress=progress)
        except SpaceError as error:
            print(error.errno, [len(os.listdir(disk / "store" / name)) for name in ("artifacts", "staging", "locks")])
    (disk / "filler").unlink()
    store.publish(key, weights)
    store.verify(key)
print("published")
"""
    (tmp_path / "disk").mkdir()
    mount = f'mount -t tmpfs -o size=4m tmpfs "{tmp_path}/disk" && exec "$@"'
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("waits for the right to make a mount namespace (unshare -m)")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", sys.executable, "-c", script],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{errno.ENOSPC} [0, 0, 0]"] * 2 + ["published"]


SERVER = """
import os, signal, sys, torch
import omni_hwr
from omni_hwr import StoreConfig, WeightKey, WeightStore

key = WeightKey(model="org/model", component="transformer", representation="bf16-final", producer="test/1")
torch.manual_seed(7)
weights = {f"t{i}": torch.randn(40, 32) for i in range(4)}
CALLS = "open mkdir rename fsync pwrite posix_fallocate unlink rmdir close utime listdir".split()

def killed(call, state):
    def wrapper(*args, **kwargs):
        state[0] -= 1
        mine = state[0] == 0
        if mine and state[1] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return call(*args, **kwargs)
        finally:
            if mine:
                os.kill(os.getpid(), signal.SIGKILL)
    return wrapper

for line in sys.stdin:
    root, number, when = line.split()
    pid = os.fork()
    if pid == 0:
        state = [int(number), when]
        for name in CALLS:
            setattr(os, name, killed(getattr(os, name), state))
        with WeightStore(root, config=StoreConfig(shard_bytes=8192, reserve_bytes=0, threads=1)) as store:
            store.get_or_build(key, lambda: weights).close()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    print(status, flush=True)
"""


@pytest.mark.slow
def test_killed_before_and_after_every_call_of_a_publication(
    root: Path, key: WeightKey, leftovers: Callable[[], list[str]]
) -> None:
    """One process imports once and forks a publisher for each call that it makes to the system by itself."""
    found: dict[tuple[int, str], bool] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        number, finished = 1, False
        while not finished:
            for when in ("before", "after"):
                server.stdin.write(f"{root} {number} {when}\n")
                server.stdin.flush()
                status = int(server.stdout.readline())
                finished = status == 0
                assert finished or os.WTERMSIG(status) == signal.SIGKILL
                found[number, when] = assert_complete_or_invisible(root, key, leftovers)
                shutil.rmtree(root)
            number += 1
        server.stdin.close()
    assert number > 60
    outcomes = list(found.values())
    assert outcomes == sorted(outcomes)  # invisible up to one point, complete from there on
    assert not outcomes[0]
    assert outcomes[-1]


TRACED = "openat,mkdirat,renameat,unlinkat,fsync,pwrite64,fallocate,flock,fchmod,munmap"


@pytest.mark.slow
def test_killed_inside_system_calls_chosen_across_a_publication(
    root: Path, tmp_path: Path, key: WeightKey, leftovers: Callable[[], list[str]]
) -> None:
    """The kernel's side of the same promise: strace kills the publisher in the middle of a call."""
    if shutil.which("strace") is None:
        pytest.skip("waits for strace, which kills the child inside a system call")
    output = tmp_path / "trace"
    prefix = ("strace", "-f", "-qq", "-o", str(output), "-e", f"trace={TRACED}")
    if run_child(root, 0, prefix).returncode != 0:
        pytest.skip("waits for the right to trace a child (ptrace)")
    lines = [re.sub(r"^\d+\s+", "", line) for line in output.read_text().splitlines()]
    shutil.rmtree(root)
    points: list[tuple[str, int]] = []
    counts: dict[str, int] = {}
    inside = False
    for line in lines:
        inside = inside or str(root) in line
        name = line.split("(")[0]
        if name.isidentifier():
            counts[name] = counts.get(name, 0) + 1
            if inside and name != "munmap":
                points.append((name, counts[name]))
    assert len(points) > 30
    killed = 0
    for name, number in points[5 :: len(points) // 5]:
        done = run_child(root, 0, (*prefix, "-e", f"inject={name}:signal=KILL:when={number}"))
        if root.exists():
            killed += done.returncode != 0
            with WeightStore(root):
                assert_complete_or_invisible(root, key, leftovers)
            shutil.rmtree(root)
    assert killed > 1
