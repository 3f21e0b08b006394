"""The same questions on a CUDA machine: correctness against the resident model, real step times, real memory.

    python benchmarks/gpu.py [--quick] [--json]

Runs unattended. Without CUDA it says so and exits with 3. A contender that is not installed is listed with the reason.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import platform
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader

Attach = Callable[[nn.Module, ExitStack], None]


class Block(nn.Module):
    """A transformer-shaped feed-forward block: 2 matrices, a norm; ``parts`` of them for many small parameters."""

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.ModuleList(nn.Linear(width, 4 * width // parts) for _ in range(parts))
        self.down = nn.ModuleList(nn.Linear(4 * width // parts, width) for _ in range(parts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        for up, down in zip(self.up, self.down):
            x = x + down(nn.functional.gelu(up(y)))
        return x


class Model(nn.Module):
    _supports_group_offloading = True

    def __init__(self, blocks: int, width: int, parts: int) -> None:
        super().__init__()
        self.inlet = nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width, parts) for _ in range(blocks))
        self.outlet = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inlet(x)
        for block in self.blocks:
            x = block(x)
        return self.outlet(x)


def make(blocks: int, width: int, parts: int) -> Model:
    torch.manual_seed(0)
    model = Model(blocks, width, parts).to(torch.bfloat16)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def resident(model: nn.Module, stack: ExitStack) -> None:
    model.cuda()


def ours(**settings: Any) -> Attach:
    def attach(model: nn.Module, stack: ExitStack) -> None:
        stack.enter_context(Offloader(model, OffloadConfig(device="cuda", **settings)))

    return attach


def quarter_stays(model: nn.Module, stack: ExitStack) -> None:
    count = len(model.blocks) // 4  # type: ignore[arg-type]
    ours(host="private", resident_blocks=count)(model, stack)


def diffusers_stream(model: nn.Module, stack: ExitStack) -> None:
    from diffusers.hooks import apply_group_offloading

    apply_group_offloading(
        model, onload_device=torch.device("cuda"), offload_device=torch.device("cpu"),
        offload_type="block_level", num_blocks_per_group=1, use_stream=True, record_stream=True,
    )  # fmt: skip


def accelerate_hooks(model: nn.Module, stack: ExitStack) -> None:
    from accelerate import cpu_offload

    cpu_offload(model, execution_device=torch.device("cuda"))


CONTENDERS: tuple[tuple[str, str | None, Attach], ...] = (
    ("resident", None, resident),
    ("omni-dlo, pinned", None, ours(host="private")),
    ("omni-dlo, staged", None, ours(host="staged")),
    ("omni-dlo, pinned, a quarter stays", None, quarter_stays),
    ("diffusers group offloading, stream", "diffusers", diffusers_stream),
    ("accelerate hooks", "accelerate", accelerate_hooks),
)


def measure(
    attach: Attach, shape: tuple[int, int, int], tokens: int, steps: int
) -> tuple[dict[str, float], torch.Tensor]:
    """Median step time, peak memory of a step, and the last output."""
    gc.collect()
    torch.cuda.empty_cache()
    base = torch.cuda.memory_allocated()
    model = make(*shape)
    x = (
        torch.linspace(-1, 1, tokens * shape[1], dtype=torch.float32)
        .reshape(tokens, shape[1])
        .to("cuda", torch.bfloat16)
    )
    times = []
    with ExitStack() as stack:
        attach(model, stack)
        for _ in range(3):
            output = model(x)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(steps):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            output = model(x)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        peak = torch.cuda.max_memory_allocated() - base
        result = output.cpu()
    del model, x, output
    return {"step_ms": statistics.median(times), "peak_bytes": peak}, result


def copy_rate() -> float:
    """Pinned host-to-device bytes per second."""
    host = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(host, device="cuda")
    best = float("inf")
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(host, non_blocking=True)
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3)
    return host.numel() / best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a smaller model and fewer steps")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print(
            "gpu.py needs a CUDA device, and torch sees none here; benchmarks/compare.py runs anywhere", file=sys.stderr
        )
        return 3
    torch.set_grad_enabled(False)
    blocks, width, steps = (12, 1024, 5) if options.quick else (32, 4096, 15)
    rate = copy_rate()
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    for parts in (1, 4, 16):
        shape = (blocks, width, parts)
        expected: torch.Tensor | None = None
        for name, package, attach in CONTENDERS:
            if package is not None:
                try:
                    importlib.metadata.version(package)
                except importlib.metadata.PackageNotFoundError:
                    missing.append(f"{name}: {package} is not installed")
                    continue
            for tokens in (64, 8192):
                found, output = measure(attach, shape, tokens, steps)
                if name == "resident" and tokens == 64:
                    expected = output
                row = {"name": name, "parameters_per_block": 2 + 4 * parts, "tokens": tokens, **found}
                if tokens == 64 and expected is not None:
                    row["equal_to_resident"] = bool(torch.equal(output, expected))
                rows.append(row)
    wrong = [row for row in rows if row["name"].startswith("omni-dlo") and row.get("equal_to_resident") is False]
    result = {
        "machine": {"device": torch.cuda.get_device_name(), "h2d_bytes_per_s": rate, "platform": platform.platform()},
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "results": {"rows": rows, "missing": sorted(set(missing))},
        "bars": [
            {
                "name": "output equals the resident model, to the bit",
                "value": len(wrong),
                "target": "== 0",
                "holds": not wrong,
            }
        ],
    }
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {rate / 1e9:.1f} GB/s from pinned memory")
        for row in rows:
            equal = {True: "equal", False: "DIFFERS", None: ""}[row.get("equal_to_resident")]
            print(
                f"{row['name']:40s} {row['parameters_per_block']:3d} parameters {row['tokens']:6d} tokens "
                f"{row['step_ms']:9.2f} ms {row['peak_bytes'] / 2**20:9.0f} MiB {equal}"
            )
        for reason in result["results"]["missing"]:
            print(f"not run: {reason}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
