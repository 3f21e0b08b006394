"""Slots filled from a worker thread are as complete as those filled in line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from omni_dlo import OffloadConfig, Offloader
from omni_dlo.devices import CpuDevice
from omni_dlo.host.staged import StagedSource

X = torch.linspace(-1, 1, 48).reshape(3, 16)


class ThreadedCpu(CpuDevice):
    """The CPU with memory of its own, whose staging windows are packed on a thread, as for an accelerator."""

    unified = False
    packs_in_thread = True


def test_a_worker_packs_and_ends_with_the_offloader(make_stack: Callable[..., Any]) -> None:
    model, reference = make_stack(), make_stack()
    config = OffloadConfig(device=ThreadedCpu(), host="staged", staging_bytes=4096)
    with Offloader(model, config):
        for _ in range(3):
            assert torch.equal(model(X), reference(X))
        assert any(thread.name.startswith("omni-dlo-pack") for thread in threading.enumerate())
    assert not any(thread.name.startswith("omni-dlo-pack") for thread in threading.enumerate())


def test_what_the_worker_raises_reaches_the_caller_and_a_retry_works(
    make_stack: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, reference = make_stack(), make_stack()
    fill = StagedSource.fill
    config = OffloadConfig(device=ThreadedCpu(), host="staged", staging_bytes=4096)
    with Offloader(model, config):
        assert torch.equal(model(X), reference(X))

        def broken(self: StagedSource, buffer: torch.Tensor, stream: Any, label: str) -> Any:
            raise OSError("the mapping is gone")

        monkeypatch.setattr(StagedSource, "fill", broken)
        with pytest.raises(OSError, match="gone"):
            [model(X) for _ in range(2)]
        monkeypatch.setattr(StagedSource, "fill", fill)
        for block in [*model.blocks, *reference.blocks]:
            block.calls.fill_(1)
        for _ in range(2):
            assert torch.equal(model(X), reference(X))
