"""Stacks are found by what they are, named by plans, and placed by what they share."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader, OffloadPlan
from omni_dlo.discovery import discover, module_bytes, resolve
from omni_dlo.errors import PlanError
from omni_dlo.plan import spread


class Named(nn.Module):
    _no_split_modules = ("Wide", "Deep")

    def __init__(self) -> None:
        super().__init__()
        self.mixed = nn.ModuleList([Wide(), Deep(), Wide()])
        self.odd = nn.ModuleList([nn.Linear(8, 8), nn.LayerNorm(8)])
        self.small = nn.ModuleList(nn.Linear(1, 1) for _ in range(4))
        self.convs = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))


class Deep(Wide):
    pass


def test_the_outermost_declared_stack_wins_and_small_ones_are_left() -> None:
    found = discover(Named())
    assert [stack.name for stack in found] == ["mixed"]
    assert [name for name, _ in found[0].blocks] == ["mixed.0", "mixed.1", "mixed.2"]
    assert "Deep, Wide" in found[0].why


def test_a_block_that_appears_twice_is_one_block() -> None:
    root = nn.Module()
    shared = nn.Linear(8, 8)
    root.blocks = nn.ModuleList([shared, nn.Linear(8, 8), shared])
    assert [name for name, _ in discover(root)[0].blocks] == ["blocks.0", "blocks.1"]


def test_compiled_blocks_count_as_what_they_are() -> None:
    root = nn.Module()
    root.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
    wrapper = nn.Module()
    wrapper._orig_mod = root.blocks[1]
    root.blocks[1] = wrapper
    assert len(discover(root)[0].blocks) == 3


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (OffloadPlan(block_stacks=("nowhere",)), "nowhere"),
        (OffloadPlan(block_stacks=("odd.0",)), "without blocks"),
    ],
)
def test_plans_that_name_nothing_are_refused(plan: OffloadPlan, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        resolve(Named(), plan)


def test_contradicting_plans_are_refused() -> None:
    with pytest.raises(PlanError, match="twice"):
        OffloadPlan(block_stacks=("a",), encoder_stacks=("a",))
    with pytest.raises(PlanError, match="not among"):
        OffloadPlan(block_stacks=("a",), resident_stacks=("b",))
    with pytest.raises(PlanError, match="dotted"):
        OffloadPlan(block_stacks=("",))


def test_too_many_resident_blocks_are_refused_with_the_count() -> None:
    with pytest.raises(PlanError, match="only 3 blocks"):
        Offloader(Named(), OffloadConfig(device="cpu", resident_blocks=4)).explain()


@pytest.mark.parametrize(
    ("count", "chosen", "expected"), [(8, 0, ()), (8, 2, (2, 6)), (4, 4, (0, 1, 2, 3)), (5, 1, (2,))]
)
def test_resident_blocks_are_spread(count: int, chosen: int, expected: tuple[int, ...]) -> None:
    assert spread(count, chosen) == expected


def test_bytes_count_each_tensor_once() -> None:
    module = nn.Linear(8, 8)
    module.alias = module.weight
    assert module_bytes(module) == (64 + 8) * torch.float32.itemsize
