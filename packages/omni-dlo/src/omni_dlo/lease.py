"""Anything that offers tensors of a mapping: what the offloader needs of it, and nothing of where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from omni_dlo.capture import Tracked
from omni_dlo.errors import LeaseMismatchError

__all__ = ["Lease", "Region", "bind_to_lease"]

Region = tuple[str, int, int]
"""File, address of its mapping in this process, and bytes."""


class Lease(Protocol):
    """Read-only tensors that lie in mapped files until :meth:`close`."""

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """By dotted name from the module's root."""

    @property
    def regions(self) -> Sequence[Region]:
        """The mappings the tensors lie in."""

    def close(self) -> None:
        """Give the mapping up."""


def bind_to_lease(tensors: Sequence[Tracked], lease: Lease, prefix: str) -> list[tuple[Tracked, torch.Tensor]]:
    """For each tensor that ``lease`` has, the leased one; nothing is changed.

    ``prefix`` is taken off the names first (a pipeline's component). A tensor under several names is found by any.

    Raises:
        LeaseMismatchError: Another shape or dtype, or a tensor on the meta device that the lease lacks.
    """
    pairs = []
    offered = lease.tensors
    for tracked in tensors:
        names = [name.removeprefix(prefix) for name in tracked.names]
        name = next((name for name in names if name in offered), None)
        if name is None:
            if tracked.tensor.device.type == "meta":
                raise LeaseMismatchError(names[0], "is missing, and the module has it only on the meta device")
            continue
        leased = offered[name]
        if leased.shape != tracked.tensor.shape:
            raise LeaseMismatchError(name, f"shape {tuple(leased.shape)}, the module has {tuple(tracked.tensor.shape)}")
        if leased.dtype != tracked.tensor.dtype:
            raise LeaseMismatchError(name, f"dtype {leased.dtype}, the module has {tracked.tensor.dtype}")
        pairs.append((tracked, leased))
    return pairs
