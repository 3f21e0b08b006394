"""A mapping is registered whole or not at all, in the order the runtime needs."""

from __future__ import annotations

import mmap
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from omni_dlo import OffloadConfig, Offloader, SimulatedDevice
from omni_dlo.errors import LeaseMismatchError, RegistrationError
from omni_dlo.registration import PageRange, page_ranges, register_mapping

PAGE = mmap.PAGESIZE
X = torch.linspace(-1, 1, 48).reshape(3, 16)


class FakeRuntime:
    """Keeps the rules of cudaHostRegister: page-aligned, no page twice, unregister by the address registered."""

    def __init__(self, log: list[str] | None = None) -> None:
        self.log = log if log is not None else []
        self.ranges: dict[int, int] = {}
        self.fail_at: int | None = None
        self.fail_unregister = False
        self.capable = True
        self.hang: threading.Event | None = None

    def can_register_read_only(self) -> bool:
        self.log.append("capability")
        return self.capable

    def register(self, address: int, nbytes: int) -> None:
        self.log.append("register")
        if self.hang is not None:
            self.hang.wait()
        if self.fail_at is not None and len(self.ranges) == self.fail_at:
            raise OSError(2, "out of memory")
        if address % PAGE or nbytes % PAGE:
            raise OSError(1, "not whole pages")
        if any(address < start + size and start < address + nbytes for start, size in self.ranges.items()):
            raise OSError(712, "already registered")
        self.ranges[address] = nbytes

    def unregister(self, address: int) -> None:
        self.log.append("unregister")
        if self.fail_unregister:
            raise OSError(713, "not registered")
        del self.ranges[address]


class FileLease:
    """A lease over one mapped file."""

    def __init__(self, path: pathlib.Path, tensors: dict[str, torch.Tensor], log: list[str]) -> None:
        blob = b"".join(bytes(t.contiguous().view(-1).view(torch.uint8).numpy()) for t in tensors.values())
        path.write_bytes(blob)
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        whole = torch.frombuffer(self._map, dtype=torch.uint8)
        self.tensors: dict[str, torch.Tensor] = {}
        at = 0
        for name, tensor in tensors.items():
            nbytes = tensor.numel() * tensor.element_size()
            self.tensors[name] = whole[at : at + nbytes].view(tensor.dtype).view(tensor.shape)
            at += nbytes
        self.regions = [(str(path), whole.data_ptr(), whole.numel())]
        self._log = log
        self.closed = 0

    def close(self) -> None:
        self._log.append("close")
        self.closed += 1


@pytest.fixture
def leased(make_stack: Callable[..., Any], tmp_path: pathlib.Path) -> tuple[Any, FileLease, FakeRuntime, Any]:
    """A module on the meta device, a lease of its weights, a runtime with one log for both, and a reference."""
    reference = make_stack()
    log: list[str] = []
    parameters = {name: tensor.detach() for name, tensor in reference.named_parameters()}
    lease = FileLease(tmp_path / "weights", parameters, log)
    model = make_stack()
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = torch.nn.Parameter(parameter.to("meta"))
    return model, lease, FakeRuntime(log), reference


def config(runtime: FakeRuntime, **more: Any) -> OffloadConfig:
    return OffloadConfig(
        device=SimulatedDevice(runtime=runtime), **{"registration_limit_bytes": 1 << 30, "host": "auto", **more}
    )


def test_whole_pages_merged_within_a_file() -> None:
    regions = [
        ("a", 10 * PAGE + 5, 100), ("a", 10 * PAGE + 200, PAGE), ("a", 20 * PAGE, PAGE), ("b", 12 * PAGE, 1),
        ("b", 5, 0),
    ]  # fmt: skip
    assert page_ranges(regions) == (
        PageRange("a", 10 * PAGE, 2 * PAGE),
        PageRange("a", 20 * PAGE, PAGE),
        PageRange("b", 12 * PAGE, PAGE),
    )


def test_the_budget_is_checked_before_the_runtime_is_asked() -> None:
    runtime = FakeRuntime()
    with pytest.raises(RegistrationError, match="registration_limit_bytes") as caught:
        register_mapping([("a", 0, PAGE + 1)], runtime, limit_bytes=PAGE, timeout_s=5)
    assert caught.value.reason == "budget"
    assert runtime.log == []


def test_capability_is_asked_first() -> None:
    runtime = FakeRuntime()
    runtime.capable = False
    with pytest.raises(RegistrationError) as caught:
        register_mapping([("a", 0, PAGE)], runtime, limit_bytes=PAGE, timeout_s=5)
    assert caught.value.reason == "capability"
    assert runtime.log == ["capability"]


@pytest.mark.parametrize("fail_at", [0, 1, 2])
def test_all_or_nothing_then_a_retry(fail_at: int) -> None:
    runtime = FakeRuntime()
    regions = [("a", 2 * PAGE * index, PAGE) for index in range(3)]
    runtime.fail_at = fail_at
    with pytest.raises(RegistrationError, match="out of memory") as caught:
        register_mapping(regions, runtime, limit_bytes=1 << 20, timeout_s=5)
    assert caught.value.reason == "failed"
    assert runtime.ranges == {}
    runtime.fail_at = None
    registration = register_mapping(regions, runtime, limit_bytes=1 << 20, timeout_s=5)
    assert len(runtime.ranges) == 3
    registration.close()
    registration.close()
    assert runtime.ranges == {}


def test_registered_then_unregistered_before_the_lease_closes(leased: tuple[Any, FileLease, FakeRuntime, Any]) -> None:
    model, lease, runtime, reference = leased
    with Offloader(model, config(runtime), lease=lease) as offloader:
        assert "registered mapping" in str(offloader.explain())
        assert offloader.stats().pinned_bytes == 0
        for _ in range(2):
            assert torch.equal(model(X), reference(X))
        assert model.blocks[0].up.weight.device.type == "cpu"
        assert torch.equal(model.blocks[0].up.weight, reference.blocks[0].up.weight)
    assert runtime.log == ["capability", "register", "unregister", "close"]
    assert model.blocks[0].up.weight.device.type == "meta"


@pytest.mark.parametrize("resident", [0, 2])
@pytest.mark.parametrize("host", ["auto", "private", "staged", "cpu"])
def test_a_lease_streams_whatever_the_strategy(
    leased: tuple[Any, FileLease, FakeRuntime, Any], host: str, resident: int
) -> None:
    model, lease, _, reference = leased
    made = (
        OffloadConfig(device="cpu", resident_blocks=resident)
        if host == "cpu"
        else OffloadConfig(device=SimulatedDevice(), host=host, resident_blocks=resident)  # type: ignore[arg-type]
    )
    offloader = Offloader(model, made, lease=lease)
    for _ in range(3):
        offloader.attach()
        for _ in range(2):
            assert torch.equal(model(X), reference(X))
        offloader.detach()
        assert model.blocks[0].up.weight.device.type == "meta"
        assert lease.closed == 0
    offloader.close()
    offloader.close()
    assert lease.closed == 1


@pytest.mark.parametrize(("reason", "more"), [("budget", {"registration_limit_bytes": 100}), ("capability", {})])
def test_auto_falls_back_and_says_why_and_registered_insists(
    leased: tuple[Any, FileLease, FakeRuntime, Any], reason: str, more: dict[str, Any]
) -> None:
    model, lease, runtime, reference = leased
    runtime.capable = reason != "capability"
    with pytest.raises(RegistrationError) as caught:
        Offloader(model, config(runtime, host="registered", **more), lease=lease).attach()
    assert caught.value.reason == reason
    with Offloader(model, config(runtime, **more), lease=lease) as offloader:
        assert reason in str(offloader.explain())
        assert torch.equal(model(X), reference(X))


def test_a_registration_that_never_completes_gives_way_to_staging(
    leased: tuple[Any, FileLease, FakeRuntime, Any],
) -> None:
    """vllm-project/vllm-omni#6726."""
    model, lease, runtime, reference = leased
    runtime.hang = threading.Event()
    offloader = Offloader(model, config(runtime, registration_timeout_s=0.05), lease=lease)
    with pytest.warns(RuntimeWarning, match="staging is used instead"):
        offloader.attach()
    assert torch.equal(model(X), reference(X))
    with pytest.warns(RuntimeWarning, match="lease stays open"):
        offloader.close()
    assert lease.closed == 0
    runtime.hang.set()
    for thread in threading.enumerate():
        if thread.name == "omni-dlo-register":
            thread.join()
    assert runtime.ranges == {}, "what came late was not undone"


def test_a_failed_rollback_keeps_the_mapping_and_says_so(leased: tuple[Any, FileLease, FakeRuntime, Any]) -> None:
    model, lease, runtime, reference = leased
    offloader = Offloader(model, config(runtime), lease=lease).attach()
    assert torch.equal(model(X), reference(X))
    runtime.fail_unregister = True
    with pytest.raises(RegistrationError, match="stays open"), pytest.warns(RuntimeWarning, match="lease stays open"):
        offloader.close()
    assert lease.closed == 0
    assert model.blocks[0].up.weight.device.type == "meta"


def test_a_lease_that_does_not_match_is_refused_by_name(leased: tuple[Any, FileLease, FakeRuntime, Any]) -> None:
    model, lease, _, _ = leased
    whole = dict(lease.tensors)
    made = OffloadConfig(device=SimulatedDevice())
    for change, said in (
        (lambda t: t.view(-1), "shape"),
        (lambda t: t.to(torch.float16), "dtype"),
        (lambda t: None, "missing"),
    ):
        lease.tensors = {k: v for k, v in whole.items() if k != "blocks.2.up.weight"}
        changed = change(whole["blocks.2.up.weight"])
        if changed is not None:
            lease.tensors["blocks.2.up.weight"] = changed
        with pytest.raises(LeaseMismatchError, match=said) as caught:
            Offloader(model, made, lease=lease).attach()
        assert caught.value.name == "blocks.2.up.weight"
