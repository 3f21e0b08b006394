"""Tiny modules of this package's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn


class Block(nn.Module):
    """A block with a norm, two matrices, and a buffer that it counts its calls in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.down(torch.relu(self.up(self.norm(x)))) * self.calls


class Stack(nn.Module):
    """An embedding, blocks, a head. ``order`` says which blocks run, by index; None is all in turn."""

    def __init__(self, blocks: int = 5, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, width)
        self.order: list[int] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for index in self.order if self.order is not None else range(len(self.blocks)):
            x = self.blocks[index](x)
        return self.head(x)


@pytest.fixture
def make_stack() -> Callable[..., Stack]:
    """A :class:`Stack` with weights of a fixed seed."""

    def make(blocks: int = 5, width: int = 16) -> Stack:
        torch.manual_seed(7)
        return Stack(blocks, width)

    return make


@pytest.fixture(autouse=True)
def one_thread_no_grad() -> Iterator[None]:
    """Inference, as users run it, and the same sums in the same order every time."""
    with torch.no_grad():
        yield
