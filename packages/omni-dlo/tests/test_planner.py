"""The prediction is what the offloader does on the simulated device."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader, SimulatedDevice
from omni_dlo.errors import PlanError
from omni_dlo.planner import Machine, PlannedBlock, best_resident_blocks, predict

WIDTH = 64
BLOCK_BYTES = WIDTH * WIDTH * 4


class Model(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False)) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("buffers", [1, 2, 3])
@pytest.mark.parametrize("ratio", [0.2, 1.0, 5.0])
def test_prediction_equals_simulation(count: int, buffers: int, ratio: float) -> None:
    copy_s = 1e-3
    rate = BLOCK_BYTES / copy_s
    device = SimulatedDevice(h2d_bytes_per_s=rate, compute_default_s=copy_s * ratio)
    blocks = [PlannedBlock(f"blocks.{index}", BLOCK_BYTES, copy_s * ratio) for index in range(count)]
    predicted = predict(blocks, 0, Machine(1 << 30, rate), resident_blocks=0, buffers=buffers)
    model = Model(count)
    with Offloader(model, OffloadConfig(device=device, buffers=buffers)) as offloader:
        for _ in range(2):
            model(torch.ones(1, WIDTH))
        begun, moved = device.compute_time_s, offloader.stats().moved_bytes
        model(torch.ones(1, WIDTH))
        assert device.compute_time_s - begun == pytest.approx(predicted.step_s)
        assert offloader.stats().moved_bytes - moved == predicted.moved_bytes
        assert device.allocated_bytes == predicted.device_bytes


@pytest.mark.parametrize("ratio", [0.2, 0.9, 1.0, 1.1, 5.0])
@pytest.mark.parametrize("resident", [0, 5, 10])
def test_a_balanced_model_takes_the_longer_of_copy_and_compute(ratio: float, resident: int) -> None:
    blocks = [PlannedBlock(str(index), 1000, ratio) for index in range(20)]
    step = predict(blocks, 0, Machine(10**9, 1000.0), resident_blocks=resident, buffers=2)
    assert step.step_s <= 1.05 * max(step.compute_s, step.transfer_s) + 1.0


def test_more_resident_blocks_are_never_slower_and_take_more_memory() -> None:
    blocks = [PlannedBlock(str(index), 1000, 0.3) for index in range(12)]
    steps = [predict(blocks, 5, Machine(10**9, 1000.0), resident_blocks=n, buffers=2) for n in range(13)]
    assert [s.device_bytes for s in steps] == [5 + (n + min(2, 12 - n)) * 1000 for n in range(13)]
    assert all(b.step_s <= a.step_s + 1e-9 for a, b in itertools.pairwise(steps))
    assert steps[-1].stall_s == 0


def test_the_best_fits_and_is_the_smallest_of_the_fastest() -> None:
    blocks = [PlannedBlock(str(index), 1000, 2.0) for index in range(6)]
    best = best_resident_blocks(blocks, 0, Machine(10**6, 1000.0), buffers=2)
    assert best is not None
    assert best.resident_blocks == 0
    assert best_resident_blocks(blocks, 0, Machine(1999, 1000.0), buffers=2) is None
    slow = [PlannedBlock(str(index), 1000, 0.1) for index in range(6)]
    tight = best_resident_blocks(slow, 0, Machine(5000, 1000.0), buffers=2)
    assert tight is not None
    assert tight.resident_blocks == 3


def test_nonsense_is_refused() -> None:
    with pytest.raises(PlanError):
        Machine(0, 1.0)
    with pytest.raises(PlanError):
        predict([], 0, Machine(1, 1.0), resident_blocks=0, buffers=2)
