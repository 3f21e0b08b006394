"""See how well copies hide behind compute on a card you do not have, and write the trace for Perfetto."""

from __future__ import annotations

import json
import pathlib
import tempfile

import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader, SimulatedDevice


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def main() -> None:
    card = SimulatedDevice(memory_bytes=4 << 20, h2d_bytes_per_s=25e9, compute_default_s=15e-6)
    model = Model()
    with torch.no_grad(), Offloader(model, OffloadConfig(device=card, trace=True)) as offloader:
        for _ in range(3):
            model(torch.ones(1, 256))
        stats = offloader.stats()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace.json"
            offloader.timeline(path)
            print(f"{len(json.loads(path.read_text())['traceEvents'])} trace events")
    print(f"device bytes {stats.device_bytes}, stalled {stats.stall_s:.6f} s, overlap {stats.overlap:.2f}")


if __name__ == "__main__":
    main()
