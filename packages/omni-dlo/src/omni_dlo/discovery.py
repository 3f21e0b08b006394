"""Finds the stacks of blocks in a module: containers of alike children that run one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from omni_dlo.errors import PlanError
from omni_dlo.plan import OffloadPlan

__all__ = ["Stack", "discover", "module_bytes", "resolve"]

MIN_SHARE = 0.02
"""A stack with less than this part of its model's bytes is not worth streaming."""


@dataclass(frozen=True)
class Stack:
    """A container of blocks.

    Attributes:
        name: Dotted path of the container.
        blocks: Dotted name and module of each block, in order; a module that appears twice is there once.
        encoder: Declared as an encoder's, hence never resident.
        why: What made it a stack, for :meth:`Offloader.explain`.
    """

    name: str
    blocks: tuple[tuple[str, nn.Module], ...]
    encoder: bool
    why: str


def module_bytes(module: nn.Module) -> int:
    """Bytes of the distinct parameters and buffers of ``module``."""
    seen = {id(t): t.numel() * t.element_size() for t in [*module.parameters(), *module.buffers()]}
    return sum(seen.values())


def discover(root: nn.Module) -> list[Stack]:
    """The outermost stacks of ``root``, in the order they were built.

    A stack is an ``nn.ModuleList`` or ``nn.Sequential`` with at least two children that are all of one class, or all
    of classes the model itself calls a block (``_no_split_modules`` of transformers and diffusers,
    ``_repeated_blocks`` of diffusers).
    """
    total = module_bytes(root)
    declared = _declared_classes(root)
    return list(_search(root, "", declared, total))


def resolve(root: nn.Module, plan: OffloadPlan) -> list[Stack]:
    """The stacks that ``plan`` names.

    Raises:
        PlanError: A name that ``root`` does not have, or that holds no blocks.
    """
    stacks = []
    for name in (*plan.block_stacks, *plan.encoder_stacks):
        try:
            container = root.get_submodule(name)
        except AttributeError as error:
            raise PlanError(f"the plan names {name!r}, which {type(root).__name__} does not have") from error
        blocks = _blocks(name, container)
        if not blocks:
            raise PlanError(f"the plan names {name!r}, a {type(container).__name__} without blocks")
        stacks.append(Stack(name, blocks, name in plan.encoder_stacks, "declared by the plan"))
    return stacks


def _declared_classes(root: nn.Module) -> set[str]:
    names: set[str] = set()
    for module in root.modules():
        for attribute in ("_no_split_modules", "_repeated_blocks"):
            value = getattr(module, attribute, None)
            if isinstance(value, list | tuple | set):
                names.update(str(item) for item in value)
    return names


def _search(module: nn.Module, path: str, declared: set[str], total: int) -> Iterator[Stack]:
    for name, child in module._modules.items():
        if child is None:
            continue
        where = f"{path}.{name}" if path else name
        why = _reason(child, declared)
        if why and module_bytes(child) >= MIN_SHARE * total:
            yield Stack(where, _blocks(where, child), False, why)
        else:
            yield from _search(child, where, declared, total)


def _blocks(path: str, container: nn.Module) -> tuple[tuple[str, nn.Module], ...]:
    children = {
        id(child): (f"{path}.{key}", child) for key, child in reversed(container._modules.items()) if child is not None
    }
    ordered = sorted(children.values(), key=lambda item: list(container._modules).index(item[0].rpartition(".")[2]))
    return tuple(ordered)


def _reason(container: nn.Module, declared: set[str]) -> str | None:
    if not isinstance(container, nn.ModuleList | nn.Sequential) or len(container) < 2:
        return None
    children = [getattr(child, "_orig_mod", child) for child in container]
    kinds = {type(child).__name__ for child in children}
    if any(next(child.parameters(), None) is None for child in children):
        return None
    if kinds <= declared:
        return f"the model declares {', '.join(sorted(kinds))} as its blocks"
    if len(kinds) > 1:
        return None
    if isinstance(container, nn.Sequential) and isinstance(children[0], nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return None
    return f"{len(children)} alike {kinds.pop()} in one {type(container).__name__}"
