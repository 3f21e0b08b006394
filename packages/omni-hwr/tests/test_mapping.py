"""The mapping: truly read-only, without warnings, and with options that say when they are refused."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from omni_hwr import MapOptions, WeightKey, WeightStore
from omni_hwr.errors import StorageError
from omni_hwr.numa import memory_preferred

Weights = dict[str, torch.Tensor]


def test_a_write_ends_the_process_and_not_the_artifact(root: Path, store: WeightStore, key: WeightKey) -> None:
    store.publish(key, {"x": torch.ones(5000)})
    code = f"""
from omni_hwr import WeightKey, WeightStore
lease = WeightStore({str(root)!r}).lease(WeightKey.parse({key.content!r}))
print(lease.tensors["x"].sum().item(), flush=True)
lease.tensors["x"][0] = 2
print("written", flush=True)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["5000.0"]
    assert done.returncode == -signal.SIGSEGV
    store.verify(key)


def test_pages_are_shared_and_read_only_to_the_kernel(store: WeightStore, key: WeightKey, weights: Weights) -> None:
    store.publish(key, weights)
    with store.lease(key) as lease:
        lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if key.digest in line]
        assert len(lines) == len(lease.regions)
        assert {line.split()[1] for line in lines} == {"r--s"}
        for region in lease.regions:
            assert region.address % mmap.PAGESIZE == 0
            assert any(line.startswith(f"{region.address:x}-") for line in lines)


@pytest.mark.parametrize("options", [MapOptions(prefault=True), MapOptions(lock_memory=True)])
def test_options_that_are_granted_are_not_reported(
    options: MapOptions, store: WeightStore, key: WeightKey, weights: Weights
) -> None:
    store.publish(key, weights)
    with store.lease(key, mapping=options) as lease:
        assert lease.refusals == ()
        assert torch.equal(lease.tensors["block.0.bias"], weights["block.0.bias"])


def test_a_refused_memory_lock_is_reported(store: WeightStore, key: WeightKey, root: Path) -> None:
    store.publish(key, {"x": torch.ones(1 << 16)})
    code = f"""
import ctypes, resource
resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))
if {os.geteuid() == 0}:
    # Root may lock all it wants until it lets go of CAP_IPC_LOCK (14): drop it from the effective set.
    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
    header, data = Header(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None)
    libc.capget(ctypes.byref(header), data)
    data[0] &= ~(1 << 14)
    assert libc.capset(ctypes.byref(header), data) == 0
from omni_hwr import MapOptions, WeightKey, WeightStore
with WeightStore({str(root)!r}).lease(
    WeightKey.parse({key.content!r}), mapping=MapOptions(lock_memory=True)
) as lease:
    print(lease.refusals[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("lock_memory: model-00001"), done.stderr
    assert "RLIMIT_MEMLOCK" in done.stdout


def test_no_address_space_is_a_typed_error(store: WeightStore, key: WeightKey, root: Path) -> None:
    store.publish(key, {"x": torch.ones(64 << 20, dtype=torch.uint8)})
    code = f"""
import resource
from omni_hwr import WeightKey, WeightStore
from omni_hwr.errors import StorageError
store, key = WeightStore({str(root)!r}), WeightKey.parse({key.content!r})
store.entries()
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20),) * 2)
try:
    store.lease(key)
except StorageError as error:
    print(error.step, error.errno)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2) if False else None
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["mmap", "12"], done.stderr
    assert store.remove(key)


def test_an_old_kernels_prefault_falls_back(
    store: WeightStore, key: WeightKey, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish(key, weights)
    monkeypatch.setattr("omni_hwr.mapping._MADV_POPULATE_READ", 9999)
    with store.lease(key, mapping=MapOptions(prefault=True)) as lease:
        assert "one by one" in lease.refusals[0]


def test_numa_nodes_are_preferred_or_refused_in_words(store: WeightStore, key: WeightKey, weights: Weights) -> None:
    store.publish(key, weights)
    for node, words in ((9999, "no node number"), (900, "numa_node")):
        with store.lease(key, mapping=MapOptions(prefault=True, numa_node=node)) as lease:
            assert any(words in refusal for refusal in lease.refusals)
    with store.lease(key, mapping=MapOptions(numa_node=0)) as lease:
        assert "only pages that prefault" in lease.refusals[0]


def test_the_threads_memory_policy_is_put_back() -> None:
    refusals: list[str] = []
    with memory_preferred(0, refusals):
        pass
    assert refusals == [] or refusals[0].startswith("numa_node")


def test_a_failing_map_leaves_no_descriptor(
    store: WeightStore, key: WeightKey, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish(key, weights)
    before = len(os.listdir("/proc/self/fd"))

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", fail)
        with pytest.raises(StorageError, match="mmap"):
            store.lease(key)
    assert len(os.listdir("/proc/self/fd")) == before
    assert resource.getpagesize() == mmap.PAGESIZE
