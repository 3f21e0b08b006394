"""The planner against the offloader itself on the simulated device: same sizes, same rates, same numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader, SimulatedDevice
from omni_dlo.errors import PlanError
from omni_dlo.folder import ModelShape, StackShape
from omni_dlo.planner import Hardware, best, predict


class Stack(nn.Module):
    """Blocks of the given widths behind an embedding."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.blocks = nn.ModuleList(Block(width) for width in widths)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return x


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(16, width, bias=False)
        self.down = nn.Linear(width, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x))


def shape_of(model: Stack) -> ModelShape:
    sizes = tuple(sum(p.numel() * p.element_size() for p in block.parameters()) for block in model.blocks)
    outside = sum(p.numel() * p.element_size() for p in model.embed.parameters())
    return ModelShape("m", (StackShape("blocks", sizes),), outside, 0, ())


@pytest.mark.parametrize("resident", [0, 1, 3, 5])
@pytest.mark.parametrize("buffers", [1, 2, 3])
@pytest.mark.parametrize(("h2d", "compute"), [(1e6, 4e6), (4e6, 1e6), (1e6, 1e6)])
@pytest.mark.parametrize("widths", [[64] * 6, [32, 128, 64, 64, 16, 96]])
def test_a_prediction_is_what_the_simulator_does(
    resident: int, buffers: int, h2d: float, compute: float, widths: list[int]
) -> None:
    model = Stack(widths)
    shape = shape_of(model)
    seconds = {f"blocks.{i}": nbytes / compute for i, nbytes in enumerate(shape.stacks[0].block_bytes)}
    device = SimulatedDevice(h2d_bytes_per_s=h2d, compute_s=seconds)
    config = OffloadConfig(device=device, resident_blocks=resident, buffers=buffers)
    with torch.no_grad(), Offloader(model, config) as offloader:
        # Resident blocks are none of the offloader's business, so the clock hears of them here.
        for name in offloader.explain().stacks[0].resident:
            model.get_submodule(name).register_forward_hook(lambda *_, name=name: device.compute(name))
        for _ in range(2):
            model(torch.ones(1, 16))
        before, moved = device.compute_time_s, offloader.stats().moved_bytes
        model(torch.ones(1, 16))
        step_s = device.compute_time_s - before
        stats = offloader.stats()
    found = predict(shape, Hardware(1 << 40, h2d, compute), resident, buffers)
    assert found.step_s == pytest.approx(step_s, rel=1e-6)
    assert found.moved_bytes == stats.moved_bytes - moved
    assert found.device_bytes == pytest.approx(stats.device_bytes, abs=64 * (len(widths) + buffers))
    assert found.step_s == pytest.approx(found.compute_s + found.stall_s, rel=1e-9)


def test_a_balanced_model_hides_its_copies() -> None:
    shape = ModelShape("m", (StackShape("b", (1000,) * 40),), 0, 0, ())
    for h2d, compute in ((1e6, 1e6), (1e6, 3e6), (3e6, 1e6)):
        found = predict(shape, Hardware(1 << 30, h2d, compute), 0)
        fill_s = 1000 / h2d
        assert found.step_s <= 1.05 * max(found.compute_s, found.moved_bytes / h2d) + fill_s


def test_the_best_choice_is_the_fastest_that_fits_with_the_fewest_blocks() -> None:
    shape = ModelShape("m", (StackShape("b", (1000,) * 10),), 500, 0, ())
    fast, every = best(shape, Hardware(1 << 30, 1e6, 1e3))
    assert fast.resident_blocks == 0, "compute hides every copy, so nothing need stay"
    assert len(every) == 11
    slow, _ = best(shape, Hardware(500 + 2 * 1024 + 4000, 1e3, 1e6))
    assert slow.resident_blocks == 4
    assert slow.fits(Hardware(500 + 2 * 1024 + 4000, 1e3, 1e6))
    whole, _ = best(shape, Hardware(1 << 30, 1e3, 1e6))
    assert (whole.resident_blocks, whole.stall_s, whole.moved_bytes) == (10, 0.0, 0)


def test_what_cannot_fit_is_refused_with_what_it_needs() -> None:
    shape = ModelShape("m", (StackShape("b", (1000,) * 10),), 500, 0, ())
    with pytest.raises(PlanError, match="2,548"):
        best(shape, Hardware(2000, 1e6, 1e6))
    with pytest.raises(PlanError, match="10 blocks"):
        predict(shape, Hardware(1, 1.0, 1.0), 11)
    with pytest.raises(PlanError, match="at least one"):
        predict(shape, Hardware(1, 1.0, 1.0), 0, buffers=0)
