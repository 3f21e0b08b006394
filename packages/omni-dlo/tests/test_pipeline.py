"""A whole pipeline in three lines."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader, OffloadPlan, SimulatedDevice
from omni_dlo.errors import ComponentPolicyError, PlanError

X = torch.linspace(-1, 1, 48).reshape(3, 16)


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def decode(self, x: torch.Tensor) -> torch.Tensor:
        if x.isnan().any():
            raise ValueError("not a latent")
        return self.inner(x)


class Pipe:
    """What a diffusers pipeline is to the offloader: components, and a call that runs them."""

    def __init__(self, make: Callable[..., Any]) -> None:
        torch.manual_seed(5)
        self.components: dict[str, object] = {
            "text_encoder": make(blocks=3), "transformer": make(blocks=5), "vae": Vae(), "scheduler": SimpleNamespace(),
        }  # fmt: skip

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        parts: Any = SimpleNamespace(**self.components)
        x = parts.text_encoder(x)
        for _ in range(3):
            x = parts.transformer(x)
        return parts.vae.decode(x).clone()


@pytest.mark.parametrize("kind", ["cpu", "simulated"])
@pytest.mark.parametrize("components", [None, {"text_encoder": False}, {"default": False}, {"vae": False}])
def test_same_pictures(make_stack: Callable[..., Any], kind: str, components: Any) -> None:
    pipe, reference = Pipe(make_stack), Pipe(make_stack)
    device = SimulatedDevice() if kind == "simulated" else "cpu"
    config = OffloadConfig(device=device, resident_blocks=2, components=components)
    with Offloader.for_pipeline(pipe, config) as offloader:
        for _ in range(2):
            assert torch.equal(pipe(X), reference(X))
        text = str(offloader.explain())
        assert "vae: " in text
    assert torch.equal(pipe(X), reference(X))
    if isinstance(device, SimulatedDevice):
        assert device.allocated_bytes == 0


def test_all_stacks_share_the_buffers(make_stack: Callable[..., Any]) -> None:
    pipe = Pipe(make_stack)
    device = SimulatedDevice()
    with Offloader.for_pipeline(pipe, OffloadConfig(device=device)) as offloader:
        pipe(X)
        stats = offloader.stats()
        explanation = offloader.explain()
        assert explanation.buffers == 2
        assert stats.buffer_bytes == 2 * explanation.buffer_bytes
        assert device.allocated_bytes == stats.device_bytes


def test_a_component_leaves_the_device_also_when_it_raises(make_stack: Callable[..., Any]) -> None:
    pipe = Pipe(make_stack)
    device = SimulatedDevice()
    vae: Any = pipe.components["vae"]
    with Offloader.for_pipeline(pipe, OffloadConfig(device=device)):
        rest = device.allocated_bytes
        with pytest.raises(ValueError, match="not a latent"):
            vae.decode(X * float("nan"))
        assert device.allocated_bytes == rest
        vae.decode(X)
        assert device.allocated_bytes == rest


class Sticky(SimulatedDevice):
    """Fails to release while told to."""

    sticky = False

    def release(self, buffer: torch.Tensor) -> None:
        if self.sticky:
            raise RuntimeError("release failed")
        super().release(buffer)


def test_of_two_errors_the_first_is_reported_and_the_cache_goes(make_stack: Callable[..., Any]) -> None:
    pipe = Pipe(make_stack)
    device = Sticky()
    vae: Any = pipe.components["vae"]
    with Offloader.for_pipeline(pipe, OffloadConfig(device=device)):
        device.sticky = True
        with pytest.raises(ValueError, match="not a latent"), pytest.warns(RuntimeWarning, match="release failed"):
            vae.decode(X * float("nan"))
        assert device.cache_flushes == 1
        with pytest.raises(RuntimeError, match="release failed"):
            vae.decode(X)
        assert device.cache_flushes == 2
        device.sticky = False


def test_refused_before_anything_moves(make_stack: Callable[..., Any]) -> None:
    pipe = Pipe(make_stack)
    device = SimulatedDevice()
    with pytest.raises(ComponentPolicyError, match="transformer"):
        Offloader.for_pipeline(pipe, OffloadConfig(device=device, components={"transformer": False}))
    with pytest.raises(PlanError, match="missing"):
        Offloader.for_pipeline(pipe, OffloadConfig(device=device, plan=OffloadPlan(on_demand=("missing",))))
    assert device.peak_bytes == 0


def test_a_plan_for_a_pipeline(make_stack: Callable[..., Any]) -> None:
    pipe, reference = Pipe(make_stack), Pipe(make_stack)
    plan = OffloadPlan(
        block_stacks=("transformer.blocks",),
        encoder_stacks=("text_encoder.blocks",),
        resident_stacks=("transformer.blocks",),
    )
    with Offloader.for_pipeline(
        pipe, OffloadConfig(device=SimulatedDevice(), plan=plan, resident_blocks=5)
    ) as offloader:
        assert torch.equal(pipe(X), reference(X))
        stacks = {stack.name: stack for stack in offloader.explain().stacks}
        assert len(stacks["transformer.blocks"].resident) == 5
        assert stacks["text_encoder.blocks"].resident == ()
