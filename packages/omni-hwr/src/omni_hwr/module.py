"""A whole torch module to named tensors and back: parameters, buffers of both kinds, and what they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import torch

from omni_hwr.errors import BindingError
from omni_hwr.lease import Lease
from omni_hwr.manifest import Kind


class ModuleTensors(Mapping[str, torch.Tensor]):
    """A module's tensors by their full names, tied ones under each of theirs; ``kinds`` says what each is."""

    def __init__(self, tensors: dict[str, torch.Tensor], kinds: dict[str, Kind]) -> None:
        self._tensors = tensors
        self._kinds = kinds

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """``parameter``, ``buffer`` or ``transient`` (a buffer that state_dict() leaves out) for each name."""
        return MappingProxyType(self._kinds)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _places(module: torch.nn.Module) -> Iterator[tuple[str, Kind, torch.nn.Module, str]]:
    """Every name that leads to a tensor, with the module that holds it and its name there."""
    for prefix, owner in module.named_modules(remove_duplicate=False):
        dot = f"{prefix}." if prefix else ""
        for name, parameter in owner._parameters.items():
            if parameter is not None:
                yield dot + name, "parameter", owner, name
        for name, buffer in owner._buffers.items():
            if buffer is not None:
                kind: Kind = "transient" if name in owner._non_persistent_buffers_set else "buffer"
                yield dot + name, kind, owner, name


def _held(owner: torch.nn.Module, name: str) -> torch.Tensor:
    found: torch.Tensor | None = owner._parameters.get(name)
    if found is None:
        found = owner._buffers.get(name)
    assert found is not None
    return found


def from_module(module: torch.nn.Module) -> ModuleTensors:
    """Every parameter and buffer of ``module``, to be given to :meth:`WeightStore.publish` or returned by a producer.

    The tensors are the module's own, not copies.
    """
    tensors: dict[str, torch.Tensor] = {}
    kinds: dict[str, Kind] = {}
    for full, kind, owner, name in _places(module):
        tensors[full] = _held(owner, name).detach()
        kinds[full] = kind
    return ModuleTensors(tensors, kinds)


def restore_into(module: torch.nn.Module, lease: Lease) -> None:
    """Put the lease's tensors in the place of all parameters and buffers of ``module``, without copying.

    The module may be on the meta device or hold other values; it is to have the names, shapes, data types and kinds
    that were published. Parameters stay the objects they are where their device allows, keep their attributes, and
    stop requiring gradients, for nothing can write to them. Tied ones stay tied. The tensors outlive the lease.

    Raises:
        BindingError: Something does not fit; the module is as it was.
    """
    places = list(_places(module))
    problems = _problems(places, lease)
    if problems:
        raise BindingError(problems)
    # The old one is kept as well: freed, its identity could become that of another.
    replaced: dict[int, tuple[torch.nn.Parameter, torch.nn.Parameter]] = {}
    for full, kind, owner, name in places:
        tensor = lease.tensors[full]
        if kind != "parameter":
            owner._buffers[name] = tensor
            continue
        old = owner._parameters[name]
        assert old is not None
        if id(old) not in replaced:
            replaced[id(old)] = (old, _bind(old, tensor))
        owner._parameters[name] = replaced[id(old)][1]


def _bind(old: torch.nn.Parameter, tensor: torch.Tensor) -> torch.nn.Parameter:
    if old.device == tensor.device:
        old.requires_grad_(False)
        old.grad = None
        old.data = tensor
        return old
    new = torch.nn.Parameter(tensor, requires_grad=False)
    new.__dict__.update(old.__dict__)
    return new


def _problems(places: list[tuple[str, Kind, torch.nn.Module, str]], lease: Lease) -> list[str]:
    tensors, kinds = lease.tensors, lease.kinds
    problems: list[str] = []
    first_name: dict[int, str] = {}
    for full, kind, owner, name in places:
        tensor, held = tensors.get(full), _held(owner, name)
        if tensor is None:
            problems.append(f"{full} is not in the artifact")
            continue
        if kinds[full] not in (kind, "tensor"):
            problems.append(f"{full} is a {kind}, published as {kinds[full]}")
        if tensor.shape != held.shape or tensor.dtype != held.dtype:
            problems.append(
                f"{full} is {held.dtype} {tuple(held.shape)}, published as {tensor.dtype} {tuple(tensor.shape)}"
            )
        other = first_name.setdefault(id(held), full)
        same = tensors.get(other)
        if kind == "parameter" and same is not None and same.data_ptr() != tensor.data_ptr():
            problems.append(f"{full} is tied to {other}, published apart")
    names = {place[0] for place in places}
    problems += [f"{name} is published, the module has no such tensor" for name in tensors if name not in names]
    return problems
