"""Every tensor a module holds, where it is referred to, and the plain storages below it."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Container, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from omni_dlo.errors import DistributedWeightError, ModuleChangedError
from omni_dlo.layout import ByteRange, Layout, pack

__all__ = ["Site", "Tracked", "Unit", "byte_range", "capture", "pack_bytes", "storage_bytes", "typed_view"]


@dataclass(frozen=True)
class Site:
    """One reference to a tensor: ``container[key]`` is it."""

    container: MutableMapping[Any, Any] | list[Any]
    key: Any


@dataclass(eq=False)
class Tracked:
    """One tensor object of a module, under its first name.

    Attributes:
        name: Dotted name from the root.
        tensor: The object itself; its identity survives attach and detach.
        parameter: Whether a module registers it as a parameter (else a buffer).
        leaves: The plain strided tensors it is made of: itself, or the inner tensors of a wrapper subclass.
        kind: Its class.
        wrapped: Whether it is a wrapper subclass, whose data cannot be exchanged in place.
        sites: Every place that refers to it.
        names: All names it has; tied tensors have several.
    """

    name: str
    tensor: torch.Tensor
    parameter: bool
    leaves: list[torch.Tensor]
    rebuild: Callable[[Sequence[torch.Tensor]], torch.Tensor]
    kind: type[torch.Tensor]
    wrapped: bool
    sites: list[Site] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(leaf.numel() * leaf.element_size() for leaf in self.leaves)

    def point_at(self, leaves: Sequence[torch.Tensor]) -> None:
        """Make this tensor lie over ``leaves``: the same object where torch allows it, else a new one at every site."""
        with torch.no_grad():
            if not self.wrapped and self.tensor.device.type != "meta":
                self.tensor.data = as_inference(leaves[0]) if self.tensor.is_inference() else leaves[0]
                self.leaves = [self.tensor]
                return
            self.replace(self.on(leaves), leaves)

    def replace(self, made: torch.Tensor, leaves: Sequence[torch.Tensor]) -> None:
        """Put ``made`` at every site that still refers to this tensor."""
        for site in self.sites:
            if site.container[site.key] is self.tensor:
                site.container[site.key] = made
        single = len(leaves) == 1 and not self.wrapped
        self.tensor = made
        self.leaves = [made] if single else list(leaves)

    def on(self, leaves: Sequence[torch.Tensor]) -> torch.Tensor:
        """A tensor like this one over ``leaves``, of its class, that wants no gradient."""
        data = self.rebuild(leaves)
        if not self.parameter:
            return data
        if self.kind is nn.Parameter or self.wrapped:
            made: torch.Tensor = nn.Parameter(data, requires_grad=False)
        else:
            made = torch.Tensor._make_subclass(self.kind, data, False)
        # Marks that loaders and quantisers leave on a parameter belong to it wherever it lies.
        made.__dict__.update(self.tensor.__dict__)
        return made


def capture(root: nn.Module, prefix: str = "") -> list[Tracked]:
    """All parameters and buffers of ``root``, each object once.

    Plain attributes, lists and dicts of a module that hold the very same object (``LSTM._flat_weights``) count as
    further sites of it.

    Raises:
        DistributedWeightError: A DTensor over more than one rank.
        ModuleChangedError: A tensor whose bytes cannot be moved (sparse, quantised, lazy).
    """
    found: dict[int, Tracked] = {}
    for path, module in root.named_modules(prefix=prefix):
        for table, parameter in ((module._parameters, True), (module._buffers, False)):
            for key, tensor in table.items():
                if tensor is None:
                    continue
                name = f"{path}.{key}" if path else key
                tracked = found.get(id(tensor))
                if tracked is None:
                    tracked = found[id(tensor)] = _track(name, tensor, parameter)
                tracked.sites.append(Site(table, key))
                tracked.names.append(name)
    for module in root.modules():
        for container, key, value in _plain_references(module):
            tracked = found.get(id(value))
            if tracked is not None:
                tracked.sites.append(Site(container, key))
    return list(found.values())


def _plain_references(module: nn.Module) -> Iterator[tuple[Any, Any, object]]:
    own = module.__dict__
    for key, value in own.items():
        if key in ("_parameters", "_buffers", "_modules"):
            continue
        if isinstance(value, torch.Tensor):
            yield own, key, value
        elif type(value) is list:
            for index, item in enumerate(value):
                if isinstance(item, torch.Tensor):
                    yield value, index, item
        elif type(value) is dict:
            for inner, item in value.items():
                if isinstance(item, torch.Tensor):
                    yield value, inner, item


def _track(name: str, tensor: torch.Tensor, parameter: bool) -> Tracked:
    mesh = getattr(tensor, "device_mesh", None)
    if mesh is not None and mesh.size() > 1:
        raise DistributedWeightError(
            name,
            f"is a DTensor over {mesh.size()} ranks (FSDP, HSDP or tensor parallel); their own runtime moves such "
            "weights: offload before sharding, or use transfer='allgather' on the unsharded module",
        )
    leaves, rebuild = _leaves(name, tensor)
    wrapped = len(leaves) != 1 or leaves[0] is not tensor
    return Tracked(name, tensor, parameter, leaves, rebuild, type(tensor), wrapped)


def _leaves(
    name: str, tensor: torch.Tensor
) -> tuple[list[torch.Tensor], Callable[[Sequence[torch.Tensor]], torch.Tensor]]:
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        whole = tensor
        keys, context = flatten()
        # Not all that a class flattens to is a tensor: a DTensor names its mesh, too.
        fixed = {key: getattr(whole, key) for key in keys if not isinstance(getattr(whole, key), torch.Tensor)}
        inner = {key: _leaves(name, getattr(whole, key)) for key in keys if key not in fixed}
        kind, size, stride = type(whole), whole.shape, whole.stride()

        def rebuild(leaves: Sequence[torch.Tensor]) -> torch.Tensor:
            parts, at = dict(fixed), 0
            for key, (own, build) in inner.items():
                parts[key] = build(leaves[at : at + len(own)])
                at += len(own)
            unflatten: Callable[..., torch.Tensor] = kind.__tensor_unflatten__  # type: ignore[attr-defined]
            return unflatten(parts, context, size, stride)

        return [leaf for leaves, _ in inner.values() for leaf in leaves], rebuild
    if (
        tensor.layout is not torch.strided
        or tensor.is_quantized
        or isinstance(tensor, nn.parameter.UninitializedParameter)
    ):
        raise ModuleChangedError(name, f"a {tensor.layout} tensor of {tensor.dtype} is not plain strided memory")
    return [tensor], lambda leaves: leaves[0]


def byte_range(tensor: torch.Tensor) -> ByteRange:
    """The bytes of its storage that ``tensor`` spans, gaps between its strides included."""
    size = tensor.element_size()
    start = int(tensor.storage_offset()) * size
    if tensor.numel() == 0:
        return ByteRange(_storage_key(tensor), start, start, size)
    last = sum((extent - 1) * int(step) for extent, step in zip(tensor.shape, tensor.stride()))
    return ByteRange(_storage_key(tensor), start, start + (last + 1) * size, size)


def _storage_key(tensor: torch.Tensor) -> tuple[str, int]:
    storage = tensor.untyped_storage()
    # A meta storage has no address; its object is its identity for as long as the tensor lives.
    return (str(tensor.device), storage.data_ptr() or storage._cdata)


def storage_bytes(tensor: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """Bytes ``[start, end)`` of the storage of ``tensor``, as uint8 that shares its memory."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage(), start, (end - start,), (1,))


def typed_view(buffer: torch.Tensor, place: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor of ``like``'s dtype, shape and stride whose first element is byte ``place`` of ``buffer`` (uint8).

    It is a view in autograd's sense too, so that a change in place is counted by ``buffer._version``.
    """
    span = byte_range(like)
    flat = buffer[place : place + span.end - span.start].view(like.dtype)
    if like.numel() == 0:
        return flat.as_strided(like.shape, like.stride())
    return flat.as_strided(like.shape, like.stride(), flat.storage_offset())


class Unit:
    """Tensors that move together, and how they lie in a buffer.

    Attributes:
        name: For messages.
        tensors: Its members.
        layout: Of all leaves of all members.
    """

    def __init__(self, name: str, tensors: Sequence[Tracked]) -> None:
        self.name = name
        self.tensors = list(tensors)
        leaves = [leaf for tracked in self.tensors for leaf in tracked.leaves]
        ranges = [byte_range(leaf) for leaf in leaves]
        self.layout: Layout = pack(ranges)
        by_key = {item.source: leaf for item, leaf in zip(ranges, leaves)}
        # One tensor per segment keeps its storage reachable; the segment names a range of it.
        self._anchors = [by_key[segment.source] for segment in self.layout.segments]
        self._likes = [_like(leaf) for leaf in leaves]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer it needs."""
        return self.layout.nbytes

    def segments(self) -> list[torch.Tensor]:
        """The present bytes of each segment, uint8, sharing memory with the members."""
        return [
            storage_bytes(anchor, segment.start, segment.end)
            for anchor, segment in zip(self._anchors, self.layout.segments)
        ]

    def leaves_in(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """Every leaf as a view of ``buffer``."""
        return [typed_view(buffer, place, like) for place, like in zip(self.layout.places, self._likes)]

    def segments_of_members(self) -> list[list[int]]:
        """For each member, the numbers of the segments that its leaves lie in."""
        numbers, at = [], 0
        for tracked in self.tensors:
            count = len(tracked.leaves)
            numbers.append([self._segment_of(leaf) for leaf in range(at, at + count)])
            at += count
        return numbers

    def leaves_apart(self, segments: Sequence[torch.Tensor], only: Container[int]) -> list[list[torch.Tensor]]:
        """Each member's leaves as views of their own segments' bytes: what a unit becomes when it is not packed.

        Members of segments that are not in ``only`` have none.
        """
        members, at = [], 0
        for tracked, numbers in zip(self.tensors, self.segments_of_members()):
            leaves = []
            for leaf, number in enumerate(numbers, start=at):
                if number in only:
                    place = self.layout.places[leaf] - self.layout.segments[number].offset
                    leaves.append(typed_view(segments[number], place, self._likes[leaf]))
            members.append(leaves)
            at += len(tracked.leaves)
        return members

    def _segment_of(self, leaf: int) -> int:
        at = bisect.bisect_right([segment.offset for segment in self.layout.segments], self.layout.places[leaf]) - 1
        while self.layout.segments[at].nbytes == 0 and self._likes[leaf].numel():
            at -= 1
        return at

    def members_in(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """Every member as a tensor over ``buffer``: dtype, shape, stride, sharing and class as on the host."""
        return self.members_over(self.leaves_in(buffer))

    def members_over(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Every member over the given leaves."""
        members, at = [], 0
        for tracked in self.tensors:
            members.append(tracked.on(leaves[at : at + len(tracked.leaves)]))
            at += len(tracked.leaves)
        return members

    def forget_anchors(self) -> None:
        """Let go of the host storages that :meth:`segments` reads."""
        self._anchors = []


def pack_bytes(unit: Unit) -> torch.Tensor:
    """The present bytes of ``unit`` in its layout, uint8, on the CPU."""
    packed = torch.zeros(unit.nbytes, dtype=torch.uint8)
    for segment, data in zip(unit.layout.segments, unit.segments()):
        packed[segment.offset : segment.offset + segment.nbytes].copy_(data)
    return packed


def as_inference(tensor: torch.Tensor) -> torch.Tensor:
    """An inference tensor over the memory of ``tensor``: torch lets no other be the data of one."""
    with torch.inference_mode():
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def _like(leaf: torch.Tensor) -> torch.Tensor:
    """Shape, stride and dtype of ``leaf`` without its memory."""
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
