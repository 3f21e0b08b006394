"""Every wait and event is there for a reason: take one away and the simulated device shows it.

Each test removes one hand-over and expects a wrong number or a named hazard; the run beside it, with all of them, is
right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from omni_dlo import OffloadConfig, Offloader, SimulatedDevice
from omni_dlo.errors import SimulatedHazardError
from omni_dlo.host.staged import StagingSlots
from omni_dlo.slots import CopyEngine

X = torch.linspace(-1, 1, 48).reshape(3, 16)


class Deaf(SimulatedDevice):
    """A device whose driver forgot one kind of call."""

    def __init__(self, forgets: str) -> None:
        super().__init__()
        self.forgets = forgets

    def wait(self, stream: Any, event: Any) -> None:
        if self.forgets == "compute waits for copy" and stream is self.compute_stream():
            return
        if self.forgets == "copy waits for compute" and stream is not self.compute_stream():
            return
        super().wait(stream, event)

    def end_read(self, buffer: torch.Tensor, reader: str) -> None:
        if self.forgets != "end of reading":
            super().end_read(buffer, reader)

    def wait_host(self, event: Any) -> None:
        if self.forgets != "host waits for copy":
            super().wait_host(event)

    def synchronize(self) -> None:
        if self.forgets != "drain at the end":
            super().synchronize()


def attempt(make: Callable[..., Any], device: SimulatedDevice, **more: Any) -> str:
    """Three passes of a stack: ``right``, ``wrong``, or the kind of the hazard."""
    model, reference = make(), make()
    offloader = Offloader(model, OffloadConfig(device=device, **more))
    try:
        offloader.attach()
        good = all(torch.equal(model(X), reference(X)) for _ in range(3))
        offloader.detach()
        good = good and all(torch.equal(a, b) for a, b in zip(model.parameters(), reference.parameters()))
    except SimulatedHazardError as error:
        return error.kind
    return "right" if good else "wrong"


# Three buffers behind two staging windows are always copied before they are needed: packing ahead waits for it.
@pytest.mark.parametrize(
    ("buffers", "host"), [(1, "private"), (2, "private"), (3, "private"), (1, "staged"), (2, "staged")]
)
@pytest.mark.parametrize(
    ("forgets", "seen"),
    [
        ("nothing", "right"),
        ("compute waits for copy", "wrong"),
        ("copy waits for compute", "overwrite"),
        ("end of reading", "overwrite"),
    ],
)
def test_between_copy_and_compute(
    make_stack: Callable[..., Any], buffers: int, host: str, forgets: str, seen: str
) -> None:
    assert attempt(make_stack, Deaf(forgets), buffers=buffers, host=host, staging_bytes=65536) == seen


def test_a_staging_window_is_packed_again_only_after_its_copy(
    make_stack: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attempt(make_stack, SimulatedDevice(), host="staged", staging_bytes=4096) == "right"
    monkeypatch.setattr(StagingSlots, "sent", lambda self, index, event: None)
    assert attempt(make_stack, SimulatedDevice(), host="staged", staging_bytes=4096) == "wrong"


def test_buffers_are_released_only_after_a_drain(make_stack: Callable[..., Any]) -> None:
    assert attempt(make_stack, Deaf("drain at the end")) == "freed-in-use"


def test_a_slot_remembers_its_last_reader(make_stack: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface/diffusers#12721: without the event behind its reader, a slot is filled too early."""
    fill = CopyEngine._fill

    def forgetful(self: CopyEngine, slot: Any, source: Any, label: str, last_read: Any) -> None:
        fill(self, slot, source, label, None)

    monkeypatch.setattr(CopyEngine, "_fill", forgetful)
    assert attempt(make_stack, SimulatedDevice()) == "overwrite"


def test_the_hazard_names_both_blocks(make_stack: Callable[..., Any]) -> None:
    model = make_stack()
    Offloader(model, OffloadConfig(device=Deaf("copy waits for compute"))).attach()
    with pytest.raises(SimulatedHazardError, match=r"copy of blocks\.2 into slot 0 while blocks\.0 may still read it"):
        model(X)


def test_recorded_order_of_copies_waits_and_compute(make_stack: Callable[..., Any]) -> None:
    """Every copy into a slot follows, in the record, a wait for the compute that last read it."""
    model, device = make_stack(), SimulatedDevice()
    offloader = Offloader(model, OffloadConfig(device=device))
    offloader.attach()
    model(X)
    device.log.clear()
    model(X)
    log = list(device.log)
    offloader.close()
    for block in range(5):
        begin, end = log.index(f"begin blocks.{block}"), log.index(f"end blocks.{block}")
        assert begin < end
        assert log[begin - 1].startswith("wait compute for copy")
        later = log[end:]
        assert later[1].startswith("record compute")
        assert later[2].startswith("wait copy for compute")
        assert later[3] == f"copy blocks.{(block + 2) % 5} on copy"


def test_fresh_memory_is_poison() -> None:
    device = SimulatedDevice()
    buffer = device.empty(64, "x")
    assert buffer.view(torch.float32).isnan().all()
    device.release(buffer)
    with pytest.raises(SimulatedHazardError, match="does not have"):
        device.release(buffer)
