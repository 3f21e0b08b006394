"""Swaps a block's host tensors for views of a buffer and back, and looks at what was written meanwhile."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Binding", "bind", "counts_versions", "same_bytes", "unbind"]

Binding = tuple[Any, Any, torch.Tensor, torch.Tensor]
"""Container, key, the tensor it holds between uses, the tensor it holds while the block runs."""


def bind(bindings: list[Binding]) -> bool:
    """Swap every host tensor for its view; False, with nothing swapped, where a site holds something else."""
    done = 0
    try:
        for container, key, host, view in bindings:
            if container[key] is not host:
                break
            container[key] = view
            done += 1
        else:
            return True
    except (KeyError, IndexError):
        pass
    unbind(bindings[:done])
    return False


def unbind(bindings: list[Binding]) -> bool:
    """Swap the views back; True where the block put something else at a site, which stays."""
    replaced = False
    for container, key, host, view in bindings:
        try:
            if container[key] is view:
                container[key] = host
            else:
                replaced = True
        except (KeyError, IndexError):
            replaced = True
    return replaced


def counts_versions(tensor: torch.Tensor) -> bool:
    """Whether torch counts changes of ``tensor``; it does not for tensors made under inference mode."""
    try:
        return tensor._version >= 0
    except RuntimeError:
        return False


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits, NaN included, wherever they lie."""
    one = left.detach().contiguous().view(-1).view(torch.uint8)
    other = right.detach().contiguous().view(-1).view(torch.uint8).to(one.device)
    return torch.equal(one, other)
