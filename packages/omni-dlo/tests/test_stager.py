"""The stager keeps sharing, restores on failure, and gives memory up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from omni_dlo import SimulatedDevice
from omni_dlo.stager import ModuleStager


def sharing() -> tuple[nn.Module, nn.Module, torch.Tensor]:
    flat = torch.arange(64, dtype=torch.float32)
    one, two = nn.Module(), nn.Module()
    one.weight = nn.Parameter(flat[0:16].view(4, 4).t())
    two.weight = nn.Parameter(flat[4:20].view(4, 4))
    two.tied = two.weight
    return one, two, flat


def geometry(*modules: nn.Module) -> list[tuple[object, ...]]:
    return [(p.storage_offset(), p.stride(), p.dtype, p.shape) for m in modules for p in m.parameters()]


def test_two_modules_on_one_storage_keep_aliases_offsets_and_strides() -> None:
    one, two, flat = sharing()
    expected, before = flat.clone(), geometry(one, two)
    device = SimulatedDevice()
    stager = ModuleStager([one, two], device)
    for _ in range(2):
        for act in (stager.load, stager.load, stager.leave, stager.leave):
            act()
            assert geometry(one, two) == before
            assert one.weight.untyped_storage().data_ptr() == two.weight.untyped_storage().data_ptr()
            assert two.tied is two.weight
            assert torch.equal(one.weight, expected[:16].view(4, 4).t())
            assert device.allocated_bytes == (256 if stager.loaded else 0)
    stager.close()
    stager.close()
    assert geometry(one, two) == before
    assert torch.equal(two.weight, expected[4:20].view(4, 4))


def test_leaving_does_not_copy_back() -> None:
    one, two, flat = sharing()
    stager = ModuleStager([one, two], SimulatedDevice())
    stager.load()
    with torch.no_grad():
        one.weight.zero_()
    stager.leave()
    assert torch.equal(one.weight, flat[:16].view(4, 4).t())
    stager.close()


class Flaky(SimulatedDevice):
    """Out of memory as often as ``failures`` says; a flushed cache is counted by the base class."""

    failures = 0

    def empty(self, nbytes: int, name: str) -> torch.Tensor:
        if self.failures:
            self.failures -= 1
            raise torch.OutOfMemoryError("full")
        return super().empty(nbytes, name)


@pytest.mark.parametrize(("failures", "loads"), [(1, True), (2, False)])
def test_out_of_memory_flushes_and_tries_once_more(failures: int, loads: bool) -> None:
    one, two, flat = sharing()
    device = Flaky()
    stager = ModuleStager([one, two], device)
    device.failures = failures
    if loads:
        stager.load()
    else:
        with pytest.raises(torch.OutOfMemoryError):
            stager.load()
        assert not stager.loaded
        assert device.allocated_bytes == 0
        assert torch.equal(one.weight, flat[:16].view(4, 4).t())
    assert device.cache_flushes == 1
    stager.close()
