"""Host overhead against diffusers and accelerate, and what the simulated device says of overlap, bytes and memory.

    python benchmarks/compare.py [--quick] [--json]

Host overhead is the time of one call of an attached block less that of the bare block, with weights so small that
copying them costs nothing: what is left is what each library does for every block of every step. All contenders run
in one process, one call after the other in turn, and the median is taken. On one CPU diffusers and accelerate run
their hooks but move no bytes; omni-dlo copies for real.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import statistics
import sys
import time
from typing import Any

import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader, SimulatedDevice

COUNTS = (4, 16, 64)
BLOCKS = 8


def load_peers() -> Any:
    path = pathlib.Path(__file__).with_name("peers.py")
    spec = importlib.util.spec_from_file_location("omni_dlo_benchmark_peers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Block(nn.Module):
    def __init__(self, parameters: int, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(parameters // 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Model(nn.Module):
    _supports_group_offloading = True

    def __init__(self, parameters: int, width: int = 4, blocks: int = BLOCKS) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(parameters, width) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def overhead(contenders: list[Any], parameters: int, rounds: int) -> dict[str, float]:
    """Median microseconds per block over the bare model's."""
    x = torch.ones(1, 4)
    models = {"bare": Model(parameters)}
    undo = []
    for contender in contenders:
        models[contender.name] = Model(parameters)
        undo.append(contender.attach(models[contender.name]))
    times: dict[str, list[float]] = {name: [] for name in models}
    for index in range(rounds + 3):
        for name, model in models.items():
            start = time.perf_counter()
            model(x)
            if index >= 3:
                times[name].append(time.perf_counter() - start)
    for take_off in undo:
        take_off()
    bare = statistics.median(times["bare"])
    return {name: (statistics.median(values) - bare) / BLOCKS * 1e6 for name, values in times.items() if name != "bare"}


def simulated(ratio: float) -> dict[str, float]:
    """A steady step of 24 blocks whose compute takes ``ratio`` of their copy."""
    width, blocks = 64, 24
    block_bytes = width * width * 4
    copy_s = 1e-3
    device = SimulatedDevice(h2d_bytes_per_s=block_bytes / copy_s, compute_default_s=ratio * copy_s)
    model = nn.Module()
    model.blocks = nn.ModuleList(nn.ModuleDict({"inner": nn.Linear(width, width, bias=False)}) for _ in range(blocks))
    for block in model.blocks:
        block.forward = block["inner"].forward
    x = torch.ones(1, width)

    def step() -> None:
        for block in model.blocks:
            block(x)

    with Offloader(model, OffloadConfig(device=device)) as offloader:
        step()
        step()
        begun, moved = device.compute_time_s, offloader.stats().moved_bytes
        step()
        step_s = device.compute_time_s - begun
        stats = offloader.stats()
        longest = max(blocks * ratio * copy_s, blocks * copy_s)
        return {
            "compute_to_copy": ratio,
            "step_s": step_s,
            "over_longest": (step_s - copy_s) / longest,
            "moved_bytes": stats.moved_bytes - moved,
            "streamed_bytes": blocks * block_bytes,
            "device_bytes": device.allocated_bytes,
            "resident_plus_buffers_bytes": stats.resident_bytes + stats.buffer_bytes,
        }


def bars(overheads: dict[int, dict[str, float]], steps: list[dict[str, float]]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for count, found in overheads.items():
        for mine in ("omni-dlo", "omni-dlo packed"):
            for peer, value in found.items():
                if not peer.startswith("omni-dlo"):
                    ratio = found[mine] / value
                    made.append(bar(f"{mine} over {peer}, {count} parameters", ratio, "<= 0.5", ratio <= 0.5))
    for step in steps:
        label = f"compute/copy {step['compute_to_copy']:g}"
        made.append(bar(f"step over longest, {label}", step["over_longest"], "<= 1.05", step["over_longest"] <= 1.05))
        exact = step["moved_bytes"] == step["streamed_bytes"]
        made.append(bar(f"bytes moved, {label}", step["moved_bytes"], f"== {step['streamed_bytes']:g}", exact))
        held = step["device_bytes"] == step["resident_plus_buffers_bytes"]
        target = f"== {step['resident_plus_buffers_bytes']:g}"
        made.append(bar(f"device bytes, {label}", step["device_bytes"], target, held))
    return made


def bar(name: str, value: float, target: str, holds: bool) -> dict[str, Any]:
    return {"name": name, "value": value, "target": target, "holds": holds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under a minute")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    contenders, missing = load_peers().contenders()
    rounds = 40 if options.quick else 300
    overheads = {count: overhead(contenders, count, rounds) for count in COUNTS}
    steps = [simulated(ratio) for ratio in (0.5, 1.0, 2.0)]
    versions = {"python": platform.python_version()}
    for package in ("omni-dlo", "torch", "diffusers", "accelerate"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    result = {
        "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "processor": platform.machine()},
        "versions": versions,
        "results": {
            "host_overhead_us_per_block": {str(count): found for count, found in overheads.items()},
            "how": {contender.name: contender.how for contender in contenders},
            "simulated": steps,
            "missing": missing,
        },
        "bars": bars(overheads, steps),
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{os.cpu_count()} cores, torch {versions['torch']}, Python {versions['python']}; median of {rounds} rounds")
    print(f"{'host overhead, µs per block':34s}" + "".join(f"{count:>5d} parameters" for count in COUNTS))
    for contender in contenders:
        print(f"{contender.name:34s}" + "".join(f"{overheads[count][contender.name]:16.1f}" for count in COUNTS))
    for reason in missing:
        print(f"not run: {reason}")
    print()
    for item in result["bars"]:
        print(f"{'holds' if item['holds'] else 'FAILS'}  {item['name']}: {item['value']:.4g} ({item['target']})")


if __name__ == "__main__":
    main()
