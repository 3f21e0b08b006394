"""One rank of the all-gather tests: runs the named scenarios one after the other."""

from __future__ import annotations

import copy
import importlib.util
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from omni_dlo import OffloadConfig, Offloader, SimulatedDevice
from omni_dlo.errors import (
    DistributedWeightError,
    DivergenceError,
    ModuleChangedError,
    PeerFaultError,
    ShardedReadError,
    SimulatedHazardError,
)

X = torch.linspace(-1, 1, 51).reshape(3, 17)


def stack() -> Any:
    spec = importlib.util.spec_from_file_location("dlo_conftest", pathlib.Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dlo_conftest"] = module
    spec.loader.exec_module(module)
    torch.manual_seed(7)
    return module.Stack(5, 17)


def equal(model: nn.Module, reference: nn.Module) -> None:
    assert torch.equal(model(X), reference(X))


def run(kind: str, model: Any, reference: Any, rank: int, ranks: int, config: OffloadConfig) -> None:
    before = [id(p) for p in model.parameters()]
    with Offloader(model, config) as offloader:
        for _ in range(3):
            equal(model, reference)
        if kind == "reads":
            reads(model, reference, offloader)
        elif kind == "diverge":
            model.order = [0, 1, 2, 3, 4] if rank == 0 else [0, 1, 3, 2, 4]
            error = refused(DivergenceError, lambda: (model(X), model(X)))
            assert "blocks." in str(error), error
            assert error.block in error.peers  # type: ignore[attr-defined]
            model.order = None
        elif kind == "raise":
            fail_on_one(model, rank, ranks)
        elif kind == "raise everywhere":
            fail_everywhere(model)
        if kind in ("diverge", "raise", "raise everywhere"):
            for block in [*model.blocks, *reference.blocks]:
                block.calls.fill_(1)
            for _ in range(2):
                equal(model, reference)
        total = sum(p.numel() * 4 for block in model.blocks for p in block.parameters())
        pinned = offloader.stats().pinned_bytes
        assert pinned < total / ranks + 5 * 8192, (pinned, total)
    assert [id(p) for p in model.parameters()] == before
    for (name, mine), theirs in zip(model.state_dict().items(), reference.state_dict().values()):
        assert torch.equal(mine, theirs), name
    equal(model, reference)


def reads(model: Any, reference: Any, offloader: Offloader) -> None:
    weight = model.blocks[0].up.weight
    assert weight.shape == (34, 17)
    assert weight.dtype == torch.float32
    for read in (lambda: weight.sum(), lambda: copy.deepcopy(model), lambda: weight.tolist()):
        error = refused(ShardedReadError, read)
        assert "blocks." in str(error)
        assert "gathered" in str(error)
    with offloader.gathered():
        for (name, mine), theirs in zip(model.state_dict().items(), reference.state_dict().values()):
            assert torch.equal(mine, theirs), name
    equal(model, reference)


def fail_on_one(model: Any, rank: int, ranks: int) -> None:
    if rank == ranks - 1:
        model.blocks[2].down.forward = _fail
        refused(ZeroDivisionError, lambda: model(X))
        del model.blocks[2].down.__dict__["forward"]
        return
    error = refused(PeerFaultError, lambda: (model(X), model(X)))
    assert error.rank == ranks - 1  # type: ignore[attr-defined]
    # Where blocks.2 is resident, the last streamed block before it is named.
    assert error.block in ("blocks.1", "blocks.2")  # type: ignore[attr-defined]


def fail_everywhere(model: Any) -> None:
    model.blocks[2].down.forward = _fail
    refused(ZeroDivisionError, lambda: model(X))
    del model.blocks[2].down.__dict__["forward"]


def refused(kind: type[Exception], call: Callable[[], object]) -> Exception:
    """The error of ``kind`` that ``call`` raises; without one the process fails."""
    try:
        call()
    except kind as error:
        return error
    raise SystemExit(f"no {kind.__name__} was raised")


def _fail(x: torch.Tensor) -> torch.Tensor:
    raise ZeroDivisionError


def gone(model: Any, rank: int, config: OffloadConfig) -> None:
    """One rank never comes to the second block: the others get an error, not a hang."""
    offloader = Offloader(model, config).attach()
    if rank == 0:
        error = refused(PeerFaultError, lambda: model(X))
        assert error.block.startswith("blocks."), error  # type: ignore[attr-defined]
        # Its weights went with the others.
        refused(PeerFaultError, offloader.close)


def dtensor(model: Any, reference: Any, device: str) -> None:
    """DTensors of one rank stream like any tensor, and are DTensors on the way and after."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(distribute_tensor(parameter.data, mesh, [Replicate()]))
    x = distribute_tensor(X, mesh, [Replicate()])
    for block in model.blocks:
        block.calls = distribute_tensor(block.calls, mesh, [Replicate()])
    before = [id(p) for p in model.parameters()]
    for resident, buffers in ((0, 1), (2, 2)):
        config = OffloadConfig(
            device=SimulatedDevice() if device == "simulated" else "cpu", resident_blocks=resident, buffers=buffers
        )
        with Offloader(model, config):
            for _ in range(2):
                assert torch.equal(model(x).to_local(), reference(X))
        assert all(isinstance(p, DTensor) for p in model.parameters())
        assert [id(p) for p in model.parameters()] == before
    assert torch.equal(model(x).to_local(), reference(X))


class Deaf(SimulatedDevice):
    """Forgets the waits of one queue for another."""

    def __init__(self, waits: str, on: str) -> None:
        super().__init__()
        self.forgets = (waits, on)

    def wait(self, stream: Any, event: Any) -> None:
        if (stream.name, event.stream.name) != self.forgets:
            super().wait(stream, event)


def hand_overs() -> None:
    """Take each hand-over between copy, gather and compute away, and see the simulated device show it."""
    for waits, on, seen in (
        ("nobody", "nobody", "right"),
        # The gather comes after the last reader of its target only through the copy.
        ("gather", "copy", "overwrite"),
        ("copy", "gather", "overwrite"),
        ("copy", "compute", "overwrite"),
        ("compute", "gather", "wrong"),
    ):
        model, reference = stack(), stack()
        config = OffloadConfig(device=Deaf(waits, on), transfer="allgather", chunk_bytes=4096)
        got = "right"
        try:
            Offloader(model, config).attach()
            for _ in range(3):
                if not torch.equal(model(X), reference(X)):
                    got = "wrong"
        except SimulatedHazardError as error:
            got = error.kind
        except ModuleChangedError:
            # Bytes that arrive while the block runs look as if the block wrote them.
            got = "wrong"
        assert got == seen, (waits, on, got, seen)


def fsdp(model: Any) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    error = refused(DistributedWeightError, lambda: Offloader(model, OffloadConfig(device="cpu")).attach())
    assert "FSDP" in str(error)


def scenario(kind: str, device: str, rank: int, ranks: int) -> None:
    settings = [(0, 2, 4096), (2, 2, 32 << 20), (0, 1, 5000), (1, 3, 7777)]
    for resident, buffers, chunk in (
        settings[:1] if kind in ("diverge", "gone", "dtensor", "fsdp", "hand overs") else settings
    ):
        config = OffloadConfig(
            device=SimulatedDevice() if device == "simulated" else "cpu", transfer="allgather",
            resident_blocks=resident, buffers=buffers, chunk_bytes=chunk,
            peer_timeout_s=3.0 if kind == "gone" else 60.0,
        )  # fmt: skip
        if kind == "gone":
            gone(stack(), rank, config)
        elif kind == "dtensor":
            for each in ("cpu", "simulated"):
                dtensor(stack(), stack(), each)
        elif kind == "hand overs":
            hand_overs()
        elif kind == "fsdp":
            fsdp(stack())
        else:
            run(kind, stack(), stack(), rank, ranks, config)


def main() -> None:
    kinds, device, rank, ranks, store = (
        sys.argv[1].split(","),
        sys.argv[2],
        int(sys.argv[3]),
        int(sys.argv[4]),
        sys.argv[5],
    )
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    try:
        for kind in kinds:
            scenario(kind, device, rank, ranks)
        if kinds != ["gone"]:
            dist.barrier()
        print(json.dumps({"rank": rank, "ok": True}), flush=True)
    finally:
        if kinds != ["gone"]:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
