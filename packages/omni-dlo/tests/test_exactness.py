"""Resident output == offloaded output, whatever the model does."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader, OffloadPlan, SimulatedDevice
from omni_dlo.errors import ModuleChangedError

X = torch.linspace(-1, 1, 48).reshape(3, 16)
BOTH = pytest.mark.parametrize("kind", ["cpu", "simulated"])


def config(kind: str, **more: Any) -> OffloadConfig:
    return OffloadConfig(device=SimulatedDevice() if kind == "simulated" else "cpu", **more)


def run(model: nn.Module, x: torch.Tensor = X) -> torch.Tensor:
    return model(x).clone()


@BOTH
@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("at", range(5))
def test_an_exception_in_any_block_then_a_retry(
    make_stack: Callable[..., Any], kind: str, buffers: int, at: int
) -> None:
    """vllm-project/vllm-omni#7188: state left by the failed pass must not leak into the next."""
    model, reference = make_stack(), make_stack()
    original = model.blocks[at].down.forward
    with Offloader(model, config(kind, buffers=buffers)):
        assert torch.equal(run(model), run(reference))

        def fail(x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no memory")

        model.blocks[at].down.forward = fail
        with pytest.raises(RuntimeError, match="no memory"):
            model(X)
        del model.blocks[at].down.__dict__["forward"]
        assert model.blocks[at].down.forward == original
        for block in [*model.blocks, *reference.blocks]:
            block.calls.fill_(1)
        for _ in range(2):
            assert torch.equal(run(model), run(reference))
    assert torch.equal(run(model), run(reference))


@BOTH
@pytest.mark.parametrize("buffers", [1, 2, 3])
@pytest.mark.parametrize("order", [[4, 3, 2, 1, 0], [0, 1, 2, 3], [0, 0, 1, 2, 2, 3, 4], [2, 0, 4, 1, 3], [3]])
def test_any_order_of_blocks(make_stack: Callable[..., Any], kind: str, buffers: int, order: list[int]) -> None:
    """huggingface/diffusers#11307: execution order is not construction order."""
    model, reference = make_stack(), make_stack()
    with Offloader(model, config(kind, buffers=buffers)):
        for plan in (None, order, order, None, order):
            model.order = reference.order = plan
            assert torch.equal(run(model), run(reference))


@BOTH
def test_tied_across_blocks(make_stack: Callable[..., Any], kind: str) -> None:
    """huggingface/accelerate#993: still one tensor after detach."""

    def tied() -> Any:
        model = make_stack()
        model.blocks[3].up.weight = model.blocks[1].up.weight
        model.blocks[4] = model.blocks[0]
        return model

    model, reference = tied(), tied()
    with Offloader(model, config(kind)) as offloader:
        for _ in range(2):
            assert torch.equal(run(model), run(reference))
        assert "blocks.1.up.weight" in offloader.explain().shared
    assert model.blocks[3].up.weight is model.blocks[1].up.weight
    assert model.blocks[4] is model.blocks[0]
    assert torch.equal(run(model), run(reference))


class Views(nn.Module):
    """Weights that are views of one storage: overlapping, strided, transposed, expanded, empty, float8."""

    def __init__(self) -> None:
        super().__init__()
        flat = torch.linspace(-1, 1, 1024)
        self.a = nn.Parameter(flat[:256].view(16, 16))
        self.b = nn.Parameter(flat[128:384].view(16, 16).t())
        self.c = nn.Parameter(flat[512:1024].view(16, 32)[:, ::2])
        self.row = nn.Parameter(torch.linspace(0, 1, 16).expand(16, 16))
        self.none = nn.Parameter(torch.empty(0, 16))
        self.short = nn.Parameter(torch.linspace(-1, 1, 16).to(torch.bfloat16))
        eight = torch.linspace(-2, 2, 256).view(16, 16).to(torch.float8_e4m3fn).t()
        self.eight = nn.Parameter(eight, requires_grad=False)
        self.flag = nn.Parameter(torch.arange(16) % 2 == 0, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x @ self.a + x @ self.b + x @ self.c + x @ self.row + self.short.float()
        x = x @ self.eight.float() + self.none.sum()
        return torch.where(self.flag, x, -x).tanh()


class ViewStack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Views() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@BOTH
@pytest.mark.parametrize("host", ["private", "staged"])
def test_views_strides_and_dtypes(kind: str, host: Any) -> None:
    model, reference = ViewStack(), ViewStack()
    seen: list[tuple[Any, ...]] = []
    hold = model.blocks[2].forward

    def look(x: torch.Tensor) -> torch.Tensor:
        block = model.blocks[2]
        seen.extend(
            (n, p.dtype, p.shape, p.stride(), p.data_ptr() % 32) for n, p in block.named_parameters() if p.numel()
        )
        assert block.a.data_ptr() + 4 * 128 == block.b.data_ptr()
        return hold(x)

    model.blocks[2].forward = look  # type: ignore[method-assign]
    with Offloader(model, config(kind, host=host, staging_bytes=4096)):
        for _ in range(2):
            assert torch.equal(run(model), run(reference))
    names = dict(reference.blocks[2].named_parameters())
    assert len(seen) == 14
    for name, dtype, shape, stride, misalignment in seen:
        assert (dtype, shape, stride) == (names[name].dtype, names[name].shape, names[name].stride()), name
        assert misalignment == 0, name
    after = model.blocks[2]
    assert after.eight.stride() == (1, 16)
    assert after.a.data_ptr() + 4 * 128 == after.b.data_ptr()


class Learner(nn.Module):
    """A block with a large buffer and a parameter that it changes on every call, and one buffer it replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(16))
        self.register_buffer("history", torch.zeros(300_000))
        self.register_buffer("last", torch.zeros(16))
        self.register_buffer("replaced", torch.zeros(300_000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.history += 1
        self.last.copy_(x[0])
        self.replaced = self.replaced + 2
        self.weight.mul_(1.5)
        return x @ self.weight + self.history[7] + self.last + self.replaced[3]


@BOTH
@pytest.mark.parametrize("buffers", [1, 2])
def test_what_a_block_changes_survives(kind: str, buffers: int) -> None:
    """huggingface/diffusers#13238: buffers updated in a block, over steps and after detach."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Learner() for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x) / 10
            return x

    model, reference = Model(), Model()
    with Offloader(model, config(kind, buffers=buffers)):
        for _ in range(4):
            assert torch.equal(run(model), run(reference))
    for (name, mine), theirs in zip(model.state_dict().items(), reference.state_dict().values()):
        assert torch.equal(mine, theirs), name
    assert torch.equal(run(model), run(reference))


@BOTH
def test_state_dict_parameters_and_deepcopy_are_whole_while_attached(
    make_stack: Callable[..., Any], kind: str, tmp_path: pathlib.Path
) -> None:
    model, reference = make_stack(), make_stack()
    with Offloader(model, config(kind, resident_blocks=1)):
        run(model), run(reference)
        for (name, mine), theirs in zip(model.state_dict().items(), reference.state_dict().values()):
            assert torch.equal(mine, theirs), name
        assert all(p.shape == q.shape for p, q in zip(model.parameters(), reference.parameters()))
        torch.save(model.state_dict(), tmp_path / "weights.pt")
        twin = copy.deepcopy(model)
        assert torch.equal(run(model), run(reference))
    assert torch.equal(twin(X), make_after(reference, twin)(X))
    loaded = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert list(loaded) == list(reference.state_dict())


def make_after(reference: nn.Module, twin: nn.Module) -> nn.Module:
    """A plain copy of ``reference`` with the counters that ``twin`` has now."""
    plain = copy.deepcopy(reference)
    plain.load_state_dict(twin.state_dict())
    for mine, theirs in zip(plain.blocks, twin.blocks):  # type: ignore[arg-type]
        mine.calls.copy_(theirs.calls - 1)
    return plain


@BOTH
@pytest.mark.parametrize("resident", [0, 2])
def test_weights_loaded_while_attached_are_used(make_stack: Callable[..., Any], kind: str, resident: int) -> None:
    model, reference = make_stack(), make_stack()
    with Offloader(model, config(kind, resident_blocks=resident)):
        run(model), run(reference)
        changed = {name: tensor * 0.5 for name, tensor in reference.state_dict().items()}
        model.load_state_dict(changed)
        reference.load_state_dict(changed)
        assert torch.equal(run(model), run(reference))
    assert torch.equal(run(model), run(reference))


class Lora(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def add_lora(model: Any) -> None:
    torch.manual_seed(3)
    for block in model.blocks:
        block.up = Lora(block.up)
    model.head = Lora(model.head)
    model.blocks[1].down.bias = nn.Parameter(torch.ones(16))


@BOTH
@pytest.mark.parametrize("resident", [0, 2])
def test_a_lora_added_while_attached_is_used_from_the_next_step(
    make_stack: Callable[..., Any], kind: str, resident: int
) -> None:
    """huggingface/diffusers#11791."""
    model, reference = make_stack(), make_stack()
    with Offloader(model, config(kind, resident_blocks=resident)) as offloader:
        assert torch.equal(run(model), run(reference))
        add_lora(model)
        add_lora(reference)
        for _ in range(2):
            assert torch.equal(run(model), run(reference))
        if kind == "simulated":
            assert offloader.stats().extra_bytes > 0
        for block in [*model.blocks, *reference.blocks]:
            block.up = block.up.base
        assert torch.equal(run(model), run(reference))
    assert torch.equal(run(model), run(reference))
    assert list(model.state_dict()) == list(reference.state_dict())


@BOTH
def test_moves_while_attached_do_nothing_or_are_refused(make_stack: Callable[..., Any], kind: str) -> None:
    model, reference = make_stack(), make_stack()
    with Offloader(model, config(kind)):
        assert model.to("cpu") is model
        assert model.to(torch.float32) is model
        with pytest.raises(ModuleChangedError, match="detach"):
            model.half()
        assert torch.equal(run(model), run(reference))
    assert model.double().head.weight.dtype == torch.float64


def test_two_models_at_once(make_stack: Callable[..., Any]) -> None:
    device = SimulatedDevice()
    first, second, reference = make_stack(), make_stack(blocks=3), make_stack()
    other = make_stack(blocks=3)
    with Offloader(first, OffloadConfig(device=device)), Offloader(second, OffloadConfig(device=device)):
        for _ in range(2):
            assert torch.equal(run(first), run(reference))
            assert torch.equal(run(second), run(other))
    assert device.allocated_bytes == 0


def test_attach_and_detach_many_times(make_stack: Callable[..., Any]) -> None:
    """pytorch/pytorch#134051: every byte returns to where it was."""
    device = SimulatedDevice()
    model, reference = make_stack(), make_stack()
    offloader = Offloader(model, OffloadConfig(device=device, resident_blocks=1))
    storages = sorted(p.untyped_storage().nbytes() for p in model.parameters())
    names = [(type(module), sorted(module.__dict__)) for module in model.modules()]
    for _ in range(50):
        offloader.attach()
        assert torch.equal(run(model), run(reference))
        offloader.detach()
        assert device.allocated_bytes == 0
        assert sorted(p.untyped_storage().nbytes() for p in model.parameters()) == storages
    assert [(type(module), sorted(module.__dict__)) for module in model.modules()] == names
    assert torch.equal(run(model), run(reference))


def test_an_attach_that_fails_leaves_the_module_as_it_was(make_stack: Callable[..., Any]) -> None:
    model, reference = make_stack(), make_stack()
    whole = SimulatedDevice()
    with Offloader(model, OffloadConfig(device=whole, resident_blocks=2)):
        pass
    for memory in range(0, whole.peak_bytes, 1024):
        device = SimulatedDevice(memory_bytes=memory)
        with pytest.raises(torch.OutOfMemoryError):
            Offloader(model, OffloadConfig(device=device, resident_blocks=2)).attach()
        assert device.allocated_bytes == 0
        assert all("forward" not in module.__dict__ for module in model.modules())
    assert torch.equal(run(model), run(reference))


@BOTH
@pytest.mark.parametrize("inplace", [True, False])
def test_a_compiled_block_compiles_once(
    make_stack: Callable[..., Any], kind: str, inplace: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytorch/pytorch#135410."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    model, reference = make_stack(), make_stack()
    for module in (model, reference):
        for block in module.blocks:
            del block.calls
            block.calls = 1.0
            block.forward = lambda x, b=block: x + b.down(torch.relu(b.up(b.norm(x))))
    if inplace:
        model.blocks[2].compile(backend=counter)
    else:
        model.blocks[2] = torch.compile(model.blocks[2], backend=counter)
    with Offloader(model, config(kind)):
        for _ in range(4):
            assert torch.allclose(run(model), run(reference))
    assert counter.frame_count == 1
    torch._dynamo.reset()


@BOTH
def test_recurrent_blocks_keep_their_flat_weights(kind: str) -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(16, 16, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0]

    torch.manual_seed(1)
    model = nn.Sequential(*[Cell() for _ in range(3)])
    root = nn.Module()
    root.blocks = model  # type: ignore[assignment]
    reference = copy.deepcopy(model)
    x = torch.linspace(-1, 1, 64).reshape(1, 4, 16)
    with Offloader(root, config(kind, plan=OffloadPlan(block_stacks=("blocks",)))):
        for _ in range(2):
            assert torch.equal(run(model, x), run(reference, x))
    assert torch.equal(run(model, x), run(reference, x))


class Scaled(torch.Tensor):
    """A quantised weight as libraries make them: a class around whole numbers and a scale."""

    values: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, values: torch.Tensor, scale: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=scale.dtype, device=values.device)
        made.values, made.scale = values, scale
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["values", "scale"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, torch.Tensor], context: None, size: Any, stride: Any) -> Any:
        return Scaled(parts["values"], parts["scale"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            weight = args[1]
            return nn.functional.linear(args[0], weight.values.to(weight.scale.dtype) * weight.scale)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return Scaled(args[0].values, args[0].scale)
        raise NotImplementedError(str(func))


@BOTH
@pytest.mark.parametrize("resident", [0, 1])
def test_wrapper_subclasses_stream_by_their_inner_tensors(
    kind: str, resident: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch loads its compiler when it first sees such a class, and that makes a folder.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def make() -> Any:
        root = nn.Module()
        root.blocks = nn.ModuleList(nn.Linear(16, 16, bias=False) for _ in range(3))
        for index, block in enumerate(root.blocks):
            values = torch.arange(256, dtype=torch.int16).reshape(16, 16).t() - 128 + index
            block._parameters["weight"] = nn.Parameter(Scaled(values, torch.full((16, 1), 0.01)), requires_grad=False)
        return root

    def through(root: Any) -> torch.Tensor:
        x = X
        for block in root.blocks:
            x = block(x)
        return x

    model, reference = make(), make()
    weight = model.blocks[0].weight
    with Offloader(model, config(kind, resident_blocks=resident)):
        for _ in range(2):
            assert torch.equal(through(model), through(reference))
        assert isinstance(model.blocks[0].weight, Scaled)
        assert model.blocks[0].weight.values.stride() == (1, 16)
    assert torch.equal(through(model), through(reference))
    assert model.blocks[0].weight is weight


@BOTH
def test_inference_mode_throughout(make_stack: Callable[..., Any], kind: str) -> None:
    with torch.inference_mode():
        model, reference = make_stack(), make_stack()
        with Offloader(model, config(kind, resident_blocks=1)):
            for _ in range(2):
                assert torch.equal(run(model), run(reference))
        assert torch.equal(run(model), run(reference))
