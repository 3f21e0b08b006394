"""Attach, run, detach: the same numbers, and nothing left."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader, SimulatedDevice
from omni_dlo.errors import GradModeError, OffloadStateError, PlanError

X = torch.linspace(-1, 1, 48).reshape(3, 16)


@pytest.mark.parametrize("kind", ["cpu", "simulated"])
@pytest.mark.parametrize("buffers", [1, 2, 3])
@pytest.mark.parametrize("resident", [0, 2, 5])
@pytest.mark.parametrize("host", ["private", "staged"])
def test_offloaded_equals_resident(
    make_stack: Callable[..., nn.Module], kind: str, buffers: int, resident: int, host: str
) -> None:
    model, reference = make_stack(), make_stack()
    device = SimulatedDevice() if kind == "simulated" else "cpu"
    config = OffloadConfig(
        device=device,
        buffers=buffers,
        resident_blocks=resident,
        host=host,
        staging_bytes=4096,  # type: ignore[arg-type]
    )
    with Offloader(model, config):
        for _ in range(3):
            assert torch.equal(model(X), reference(X))
    assert torch.equal(model(X), reference(X))
    for (name, mine), theirs in zip(model.state_dict().items(), reference.state_dict().values()):
        assert torch.equal(mine, theirs), name
    if isinstance(device, SimulatedDevice):
        assert device.allocated_bytes == 0


def test_parameters_are_the_same_objects_after_detach(make_stack: Callable[..., nn.Module]) -> None:
    model = make_stack()
    before = [id(p) for p in model.parameters()]
    with Offloader(model, OffloadConfig(device=SimulatedDevice())):
        model(X)
        assert [id(p) for p in model.parameters()] == before
    assert [id(p) for p in model.parameters()] == before
    assert "forward" not in model.__dict__
    assert all("forward" not in module.__dict__ for module in model.modules())


def test_a_copy_of_an_attached_module_is_a_plain_module(make_stack: Callable[..., nn.Module]) -> None:
    model, reference = make_stack(), make_stack()
    with Offloader(model, OffloadConfig(device=SimulatedDevice())):
        twin = copy.deepcopy(model)
    assert torch.equal(twin(X), reference(X))
    assert twin.half().embed.weight.dtype == torch.float16


def test_device_memory_is_resident_plus_buffers(make_stack: Callable[..., nn.Module]) -> None:
    model, device = make_stack(), SimulatedDevice()
    with Offloader(model, OffloadConfig(device=device, resident_blocks=1)) as offloader:
        model(X)
        stats = offloader.stats()
        assert stats.device_bytes == device.allocated_bytes
        assert stats.buffer_bytes > 0
        assert stats.resident_bytes > 0


def test_bytes_moved_in_a_steady_step_are_those_of_the_streamed_blocks(make_stack: Callable[..., nn.Module]) -> None:
    x = torch.ones(2, 64)
    model, device = make_stack(blocks=6, width=64), SimulatedDevice()
    with Offloader(model, OffloadConfig(device=device)) as offloader:
        model(x)
        before = offloader.stats()
        model(x)
        after = offloader.stats()
    block_bytes = sum(p.numel() * 4 for p in model.blocks[0].parameters())  # type: ignore[index,union-attr]
    assert after.copies - before.copies == 6
    assert after.late_copies == before.late_copies
    assert after.moved_bytes - before.moved_bytes == 6 * block_bytes


def test_grad_mode_is_refused_by_name(make_stack: Callable[..., nn.Module]) -> None:
    model = make_stack()
    with Offloader(model, OffloadConfig(device="cpu")):
        with torch.enable_grad(), pytest.raises(GradModeError, match=r"blocks\.0"):
            model(X)
        model(X)


def test_states_are_kept_apart(make_stack: Callable[..., nn.Module]) -> None:
    model = make_stack()
    offloader = Offloader(model, OffloadConfig(device="cpu"))
    with pytest.raises(OffloadStateError, match="not attached"):
        offloader.stats()
    offloader.attach()
    with pytest.raises(OffloadStateError, match="attached already"):
        offloader.attach()
    with pytest.raises(OffloadStateError, match="another offloader"):
        Offloader(model, OffloadConfig(device="cpu")).attach()
    offloader.close()
    offloader.close()
    with pytest.raises(OffloadStateError, match="closed"):
        offloader.attach()


def test_a_module_without_blocks_is_refused() -> None:
    with pytest.raises(PlanError, match="OffloadPlan"):
        Offloader(nn.Linear(2, 2), OffloadConfig(device="cpu"))
