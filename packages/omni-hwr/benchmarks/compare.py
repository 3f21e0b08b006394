"""Publish, warm lease, first touch and host memory of workers, against peers and bare limits, in one run.

    python benchmarks/compare.py [--json] [--quick] [--dir FOLDER] [--mib N]

Measurements of one comparison are interleaved, medians are shown, and only ratios of one run mean anything. FOLDER
should be on the disk that matters; it is emptied again. Peers that do not run here are listed with the reason.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import json
import mmap
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from omni_hwr import StoreConfig, WeightKey, WeightStore

PAGE = mmap.PAGESIZE
Timed = Callable[[], float]


def clock(action: Callable[[], object]) -> float:
    """Seconds that ``action`` takes."""
    began = time.perf_counter()
    kept = action()
    spent = time.perf_counter() - began
    del kept
    return spent


def interleave(contenders: dict[str, Timed], rounds: int) -> dict[str, float]:
    """Median seconds of each contender, one of each per round."""
    seen: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        names = list(contenders)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            seen[name].append(contenders[name]())
    return {name: statistics.median(values) for name, values in seen.items()}


def make_key(name: str) -> WeightKey:
    return WeightKey(model=name, component="bench", representation="bf16", producer="bench/1")


def weights_of(total: int, count: int) -> dict[str, torch.Tensor]:
    """``count`` tensors of bf16 noise, ``total`` bytes together."""
    items = total // count // 2
    noise = torch.randint(-(2**15), 2**15 - 1, (items * count,), dtype=torch.int16).view(torch.bfloat16)
    return {f"block.{index}.weight": noise[index * items : (index + 1) * items] for index in range(count)}


def write_bare(folder: Path, weights: dict[str, torch.Tensor]) -> float:
    """The limit: the same bytes into one file, then fsync."""
    path = folder / "bare"
    data = [tensor.view(torch.uint8).numpy().data for tensor in weights.values()]
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for piece in data:
            file.write(piece)
        os.fsync(file.fileno())
    spent = time.perf_counter() - began
    path.unlink()
    return spent


def write_store(folder: Path, weights: dict[str, torch.Tensor]) -> float:
    with WeightStore(folder / "publish", config=StoreConfig(reserve_bytes=0)) as store:
        store.entries()
        began = time.perf_counter()
        store.publish(make_key("publish"), weights)
        spent = time.perf_counter() - began
        store.remove(make_key("publish"))
    return spent


def write_safetensors(folder: Path, weights: dict[str, torch.Tensor]) -> float:
    path = folder / "peer.safetensors"
    began = time.perf_counter()
    save_file(weights, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    spent = time.perf_counter() - began
    path.unlink()
    return spent


def touch(pointer: int, nbytes: int) -> None:
    """Read one byte of each page."""
    view = (ctypes.c_ubyte * nbytes).from_address(pointer)
    torch.frombuffer(view, dtype=torch.uint8)[::PAGE].sum()


def touch_bare(path: Path) -> float:
    began = time.perf_counter()
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    view = memoryview(mapping)
    import numpy as np

    address = np.frombuffer(view, dtype=np.uint8)
    touch(address.ctypes.data, len(view))
    spent = time.perf_counter() - began
    del address
    view.release()
    mapping.close()
    return spent


def touch_store(store: WeightStore, name: str) -> float:
    began = time.perf_counter()
    with store.lease(make_key(name)) as lease:  # type: ignore[union-attr]
        for region in lease.regions:
            touch(region.address, region.nbytes)
        return time.perf_counter() - began


def touch_tensors(load: Callable[[], dict[str, torch.Tensor]]) -> float:
    began = time.perf_counter()
    tensors = load()
    for tensor in tensors.values():
        touch(tensor.data_ptr(), tensor.nbytes)
    return time.perf_counter() - began


def lease_open(store: WeightStore, name: str) -> float:
    began = time.perf_counter()
    lease = store.lease(make_key(name))
    spent = time.perf_counter() - began
    assert lease is not None
    lease.close()
    return spent


def load_safe_open(path: Path) -> dict[str, torch.Tensor]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping


def load_fastsafetensors(path: Path) -> dict[str, torch.Tensor]:
    from fastsafetensors import fastsafe_open

    with fastsafe_open(filenames=[str(path)], nogds=True, device="cpu") as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping


WORKER = """
import ctypes, sys, torch
from omni_hwr import WeightKey, WeightStore
import safetensors.torch
how, root, path = sys.argv[1:]
def pss():
    with open("/proc/self/smaps_rollup") as file:
        return int(next(line for line in file if line.startswith("Pss:")).split()[1]) * 1024
print("ready", pss(), flush=True); sys.stdin.readline()
if how == "store":
    key = WeightKey(model="workers", component="bench", representation="bf16", producer="bench/1")
    lease = WeightStore(root).lease(key)
    tensors = lease.tensors
elif how == "load_file":
    tensors = safetensors.torch.load_file(path)
else:
    tensors = {k: v.clone() for k, v in safetensors.torch.load_file(path).items()}
total = sum(int(t.view(torch.uint8)[::4096].sum()) for t in tensors.values())
print("loaded", flush=True); sys.stdin.readline()
print("pss", pss(), flush=True); sys.stdin.readline()
"""


def workers_pss(how: str, count: int, root: Path, path: Path) -> int:
    """Bytes of proportional memory that ``count`` workers together add once all have read every page."""
    command = [sys.executable, "-c", WORKER, how, str(root), str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(count)
    ]

    def ask() -> list[list[str]]:
        return [process.stdout.readline().split() for process in running]  # type: ignore[union-attr]

    def go() -> None:
        for process in running:
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]

    try:
        before = sum(int(line[1]) for line in ask())
        go()
        ask()
        go()
        after = sum(int(line[1]) for line in ask())
        go()
    finally:
        for process in running:
            process.communicate()
    return after - before


def measure(folder: Path, total: int, rounds: int, workers: int) -> tuple[dict[str, object], list[dict[str, object]]]:
    """All comparisons; results and bars."""
    results: dict[str, object] = {"payload_bytes": total, "skipped": {}}
    weights = weights_of(total, 64)
    publish = interleave(
        {
            "bare write + fsync": lambda: write_bare(folder, weights),
            "omni-hwr publish": lambda: write_store(folder, weights),
            "safetensors save_file + fsync": lambda: write_safetensors(folder, weights),
        },
        rounds,
    )
    results["publish_s"] = publish
    path, archive = folder / "peer.safetensors", folder / "peer.pt"
    save_file(weights, path)
    torch.save(weights, archive)
    with WeightStore(folder / "store", config=StoreConfig(reserve_bytes=0)) as store:
        store.publish(make_key("workers"), weights)
        small, large = weights_of(2000 * 64, 2000), weights_of(total, 2000)
        save_file(large, folder / "many.safetensors")
        store.publish(make_key("small"), small)
        store.publish(make_key("large"), large)
        del large
        contenders: dict[str, Timed] = {
            "omni-hwr lease, 2,000 small tensors": lambda: lease_open(store, "small"),
            "omni-hwr lease, 2,000 large tensors": lambda: lease_open(store, "large"),
            "safetensors load_file": lambda: clock(lambda: load_file(folder / "many.safetensors")),
            "safetensors safe_open": lambda: clock(lambda: load_safe_open(folder / "many.safetensors")),
        }
        results["warm_open_s"] = opened = interleave(contenders, max(rounds, 9))
        first: dict[str, Timed] = {
            "bare mmap + touch": lambda: touch_bare(path),
            "omni-hwr lease + touch": lambda: touch_store(store, "workers"),
            "safetensors load_file + touch": lambda: touch_tensors(lambda: load_file(path)),
            "safetensors safe_open + touch": lambda: touch_tensors(lambda: load_safe_open(path)),
            "torch.load(mmap=True) + touch": lambda: touch_tensors(lambda: torch.load(archive, mmap=True)),
        }
        try:
            load_fastsafetensors(path)
            first["fastsafetensors + touch"] = lambda: touch_tensors(lambda: load_fastsafetensors(path))
        except Exception as fault:  # noqa: BLE001 - a peer that does not run here is listed with its reason
            results["skipped"] = {"fastsafetensors": f"{type(fault).__name__}: {fault}"[:200]}
        results["first_touch_s"] = touched = interleave(first, max(rounds, 5))
    memory = {
        how: workers_pss(how, workers, folder / "store", path) / total for how in ("store", "load_file", "private copy")
    }
    results["workers"] = workers
    results["workers_pss_per_payload"] = memory
    bars = [
        bar("publish / bare write + fsync", publish["omni-hwr publish"] / publish["bare write + fsync"], 1.15),
        bar("warm lease of 2,000 tensors, ms", 1e3 * opened["omni-hwr lease, 2,000 large tensors"], 25.0),
        bar(
            "warm lease, large / small artifact",
            opened["omni-hwr lease, 2,000 large tensors"] / opened["omni-hwr lease, 2,000 small tensors"],
            1.5,
        ),
        bar("first touch / bare mmap touch", touched["omni-hwr lease + touch"] / touched["bare mmap + touch"], 1.2),
        bar(f"PSS of {workers} workers / one artifact", memory["store"], 1.1),
    ]
    return results, bars


def bar(name: str, value: float, target: float) -> dict[str, object]:
    return {"name": name, "value": round(value, 4), "target": target, "holds": value <= target}


def show(report: dict[str, object]) -> None:
    """The report as tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=100)
    console.print(report["machine"], report["versions"])
    results = report["results"]
    assert isinstance(results, dict)
    for title in ("publish_s", "warm_open_s", "first_touch_s", "workers_pss_per_payload"):
        table = Table(title=title, box=None)
        for head in ("contender", "median", "ratio to the first"):
            table.add_column(head, justify="left" if head == "contender" else "right")
        base = next(iter(results[title].values()))
        for name, value in results[title].items():
            table.add_row(name, f"{value:.4f}", f"{value / base:.2f}")
        console.print(table)
    for name, reason in results["skipped"].items():
        console.print(f"not run: {name}: {reason}")
    for item in report["bars"]:  # type: ignore[attr-defined]
        console.print(f"{'holds' if item['holds'] else 'FAILS'}  {item['name']}: {item['value']} (≤ {item['target']})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="64 MiB and few rounds, under a minute")
    parser.add_argument("--dir", type=Path, help="folder to work in, on the disk to be measured")
    parser.add_argument("--mib", type=int, default=1024, help="payload in MiB")
    arguments = parser.parse_args()
    total = (64 if arguments.quick else arguments.mib) << 20
    folder = Path(tempfile.mkdtemp(dir=arguments.dir))
    try:
        results, bars = measure(folder, total, 3 if arguments.quick else 5, 2 if arguments.quick else 4)
    finally:
        shutil.rmtree(folder)
    report: dict[str, object] = {
        "machine": {"cpus": os.cpu_count(), "arch": platform.machine(), "kernel": platform.release()},
        "versions": {name: importlib.metadata.version(name) for name in ("omni-hwr", "torch", "safetensors", "blake3")},
        "results": results,
        "bars": bars,
    }
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        show(report)


if __name__ == "__main__":
    main()
