"""The configuration refuses what no transport could honour."""

from __future__ import annotations

from typing import Any

import pytest

from omni_shmring import InvalidArgumentError, Transport, TransportConfig


@pytest.mark.parametrize("ring_bytes", [0, 4096, 4 << 20, 64 << 20])
def test_ring_sizes(ring_bytes: int) -> None:
    assert TransportConfig(ring_bytes=ring_bytes).ring_bytes == ring_bytes


@pytest.mark.parametrize(
    "settings",
    [
        {"ring_bytes": 1}, {"ring_bytes": 4095}, {"ring_bytes": -4096}, {"ring_bytes": (64 << 20) + 1},
        {"ring_bytes": 4096.0}, {"ring_bytes": True}, {"ring_bytes": None}, {"max_pending_bytes": 0},
        {"max_pending_bytes": 1.5}, {"linger_s": -1}, {"linger_s": float("nan")}, {"linger_s": float("inf")},
        {"linger_s": "1"}, {"types": [int]}, {"types": (1,)}, {"root": "shm"}, {"root": 5}, {"root": "/a\0b"},
    ],
)  # fmt: skip
def test_refusals(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))) as caught:
        TransportConfig(**settings)
    assert isinstance(caught.value, InvalidArgumentError)


def test_something_else_in_place_of_a_config(scope: str) -> None:
    with pytest.raises(InvalidArgumentError, match="TransportConfig"):
        Transport("a", scope=scope, config={"ring_bytes": 0})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="int"):
        Transport("a", scope=scope, config=TransportConfig(types=(int,)))
