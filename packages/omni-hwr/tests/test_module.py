"""Whole modules to the store and back: ties, buffers of both kinds, the meta device, and all-or-nothing binding."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from omni_hwr import WeightKey, WeightStore, from_module, restore_into
from omni_hwr.errors import BindingError


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("mask", torch.ones(8, 8), persistent=False)
        self.register_buffer("absent", None)
        self.register_parameter("no_bias", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)) @ self.mask


class Embed(nn.Module):
    """Not nn.Embedding: its initialisation on the meta device makes some torch versions import a compiler."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(tokens, self.weight)


class Model(nn.Module):
    """Tied embeddings, a block that is used twice, a buffer that is a view of another."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = Embed()
        self.block = Block()
        self.again = self.block
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight
        table = torch.randn(4, 8)
        self.register_buffer("table", table)
        self.register_buffer("row", table[2], persistent=False)
        self.embed.weight.loader = "kept"  # type: ignore[attr-defined]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.again(self.block(self.embed(tokens))) + self.row)


@pytest.fixture
def model() -> Model:
    torch.manual_seed(3)
    made = Model().eval()
    made.block.norm.running_mean.uniform_()  # type: ignore[union-attr]
    return made


def test_every_tensor_has_its_kind(model: Model) -> None:
    kinds = from_module(model).kinds
    assert kinds["head.weight"] == kinds["embed.weight"] == "parameter"
    assert kinds["block.norm.num_batches_tracked"] == "buffer"
    assert kinds["block.mask"] == kinds["again.mask"] == "transient"
    assert "block.absent" not in kinds
    assert {name for name, kind in kinds.items() if kind != "transient"} == set(model.state_dict())


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_restored_module_computes_the_same_on_the_mapped_bytes(
    device: str, store: WeightStore, key: WeightKey, model: Model
) -> None:
    store.publish(key, from_module(model))
    with torch.device(device):
        other = Model().eval()
    identity = id(other.embed.weight)
    with store.lease(key) as lease:
        restore_into(other, lease)
        ranges = [range(region.address, region.address + region.nbytes) for region in lease.regions]
        for tensor in (*other.parameters(), *other.buffers()):
            assert any(tensor.data_ptr() in reach for reach in ranges)
    assert other.head.weight is other.embed.weight
    assert other.again is other.block
    assert other.embed.weight.loader == "kept"  # type: ignore[attr-defined]
    assert (id(other.embed.weight) == identity) == (device == "cpu")
    assert other.row.data_ptr() == other.table[2].data_ptr()  # type: ignore[union-attr, index]
    assert not any(parameter.requires_grad for parameter in other.parameters())
    tokens = torch.arange(12) % 16
    with torch.inference_mode():
        assert torch.equal(other(tokens), model(tokens))
    assert set(other.state_dict()) == set(model.state_dict())


def test_a_module_that_does_not_fit_stays_as_it_was(store: WeightStore, key: WeightKey, model: Model) -> None:
    store.publish(key, from_module(model))
    other = Model()
    other.extra = nn.Parameter(torch.ones(2))
    other.table = torch.zeros(4, 9)
    other.row = torch.zeros(8, dtype=torch.float64)
    del other.block.linear.bias
    other.block.linear.register_buffer("bias", torch.zeros(8))
    before = {name: tensor.clone() for name, tensor in other.named_parameters()}
    with store.lease(key) as lease, pytest.raises(BindingError) as caught:
        restore_into(other, lease)
    text = " ".join(caught.value.problems)
    for words in ("extra is not in the artifact", "table is", "row is torch.float64", "bias is a buffer, published as"):
        assert words in text
    assert all(torch.equal(before[name], tensor) for name, tensor in other.named_parameters())


def test_more_published_than_the_module_has_is_refused(store: WeightStore, key: WeightKey) -> None:
    store.publish(key, {"weight": torch.ones(2, 2), "bias": torch.ones(2), "stray": torch.ones(1)})
    with store.lease(key) as lease, pytest.raises(BindingError, match="stray is published"):
        restore_into(nn.Linear(2, 2), lease)


def test_ties_that_were_not_published_are_refused(store: WeightStore, key: WeightKey, model: Model) -> None:
    apart = {name: tensor.clone() for name, tensor in from_module(model).items()}
    store.publish(key, apart)
    with store.lease(key) as lease, pytest.raises(BindingError, match="tied to embed"):
        restore_into(Model(), lease)


def test_plain_tensors_fit_any_kind(store: WeightStore, key: WeightKey) -> None:
    store.publish(key, {"weight": torch.full((2, 2), 3.0), "bias": torch.ones(2)})
    linear = nn.Linear(2, 2)
    with store.lease(key) as lease:
        restore_into(linear, lease)
    assert linear(torch.ones(2)).tolist() == [7.0, 7.0]


def test_writing_through_a_restored_parameter_cannot_reach_the_artifact(
    root: object, store: WeightStore, key: WeightKey
) -> None:
    store.publish(key, {"weight": torch.ones(64, 64), "bias": torch.ones(64)})
    code = f"""
import torch
from omni_hwr import WeightKey, WeightStore, restore_into
linear = torch.nn.Linear(64, 64)
with WeightStore({str(root)!r}).lease(WeightKey.parse({key.content!r})) as lease:
    restore_into(linear, lease)
print("bound", flush=True)
linear.weight.data.fill_(2)
print("written", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["bound"]
    assert done.returncode == -11
    store.verify(key)
