"""Numbers and words that mean nothing are refused where they are written."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from omni_dlo import OffloadConfig
from omni_dlo.capture import capture
from omni_dlo.devices import open_device
from omni_dlo.errors import DeviceUnavailableError, DistributedWeightError, ModuleChangedError, PlanError
from omni_dlo.units import format_bytes, format_seconds, parse_bytes, parse_rate


@pytest.mark.parametrize(
    "settings",
    [
        {"resident_blocks": -1}, {"resident_blocks": True}, {"resident_blocks": 1.5}, {"buffers": 0},
        {"transfer": "tcp"},
        {"host": "disk"}, {"registration_limit_bytes": -1}, {"registration_limit_bytes": math.inf},
        {"registration_limit_bytes": math.nan}, {"registration_limit_bytes": True}, {"peer_timeout_s": 0},
        {"registration_timeout_s": math.inf}, {"staging_bytes": 1}, {"chunk_bytes": 0},
    ],
)  # fmt: skip
def test_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=next(iter(settings))):
        OffloadConfig(**settings)


@pytest.mark.parametrize("device", ["meta", "nonsense", "cuda:99"])
def test_devices_that_are_not_there(device: str) -> None:
    with pytest.raises(DeviceUnavailableError):
        open_device(device)


@pytest.mark.parametrize(
    ("text", "value"), [("24GiB", 24 << 30), ("1.5 kB", 1500), ("7", 7), ("2TiB", 2 << 40), ("3mb", 3_000_000)]
)
def test_sizes(text: str, value: int) -> None:
    assert parse_bytes(text) == value
    assert parse_rate(f"{text}/s") == value


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1 parsec", "1GiB/s"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(PlanError, match="24GiB"):
        parse_bytes(text)


def test_no_rates() -> None:
    for text in ("25GB", "0GB/s", "/s"):
        with pytest.raises(PlanError):
            parse_rate(text)


def test_for_people() -> None:
    assert [format_bytes(n) for n in (5, 2048, 3 << 20, 5 << 40)] == ["5 B", "2 KiB", "3 MiB", "5 TiB"]
    assert [format_seconds(s) for s in (2, 2e-3, 2e-6)] == ["2 s", "2 ms", "2 µs"]


class OverTwoRanks(torch.Tensor):
    """Looks like a DTensor over two ranks."""

    class device_mesh:  # noqa: N801
        @staticmethod
        def size() -> int:
            return 2


def test_tensors_that_cannot_move_are_refused_by_name() -> None:
    root = nn.Module()
    root.inner = nn.Module()
    root.inner.register_buffer("sparse", torch.eye(3).to_sparse())
    with pytest.raises(ModuleChangedError, match=r"inner\.sparse"):
        capture(root)
    root.inner = nn.Module()
    root.inner.register_buffer("part", torch.ones(2).as_subclass(OverTwoRanks))
    with pytest.raises(DistributedWeightError, match="FSDP"):
        capture(root)
