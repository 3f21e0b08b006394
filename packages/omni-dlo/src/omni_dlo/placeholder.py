"""What a parameter is while its weights are spread over ranks: its shape without its values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from omni_dlo.capture import Tracked, Unit
from omni_dlo.errors import ShardedReadError
from omni_dlo.host.base import HostSource

__all__ = ["ShardedHome", "ShardedPlaceholder"]


class ShardedPlaceholder(torch.Tensor):
    """True shape, stride and dtype; reading a value is refused with what to do instead."""

    label: str

    @staticmethod
    def __new__(cls, like: torch.Tensor, label: str, device: torch.device) -> ShardedPlaceholder:
        made: ShardedPlaceholder = torch.Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), dtype=like.dtype, device=device, requires_grad=False
        )
        made.label = label
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> Any:  # type: ignore[override]  # torch leaves it untyped
        return f"ShardedPlaceholder({self.label!r}, shape={tuple(self.shape)}, dtype={self.dtype})"

    def __deepcopy__(self, memo: dict[int, Any]) -> ShardedPlaceholder:
        raise ShardedReadError(self.label, "deepcopy")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ShardedReadError(self.label, "saving")

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", str(func))
        if name == "detach":
            return cls(args[0], args[0].label, args[0].device)
        if name in (
            "__get__",
            "__set__",
            "size",
            "stride",
            "dim",
            "numel",
            "element_size",
            "requires_grad_",
            "__len__",
        ):
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        first = next((item for item in args if isinstance(item, ShardedPlaceholder)), None)
        raise ShardedReadError(first.label if first is not None else "a sharded tensor", name)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # the base declares it with names that torch does not use
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        first = next((item for item in args if isinstance(item, ShardedPlaceholder)), None)
        raise ShardedReadError(first.label if first is not None else "a sharded tensor", str(func))


class ShardedHome:
    """Puts placeholders where a unit's tensors were, and the gathered tensors back.

    The tensor objects themselves are kept, emptied, so that they are the same ones after detach.
    """

    def __init__(self, unit: Unit, source: HostSource, device: torch.device) -> None:
        self._unit = unit
        self._source = source
        self._originals: list[tuple[Tracked, torch.Tensor]] = []
        for tracked in unit.tensors:
            original = tracked.tensor
            made = ShardedPlaceholder(original, tracked.name, device)
            self._originals.append((tracked, original))
            count = len(tracked.leaves)
            tracked.replace(made, [made] * count)
            if not tracked.wrapped:
                original.data = torch.empty(0, dtype=original.dtype, device=original.device)
        unit.forget_anchors()

    def restore(self) -> None:
        """Gather and put back; all ranks must do it in the same order.

        Raises:
            PeerFaultError: Another rank does not take part; the placeholders stay.
        """
        packed = self._source.packed()
        fresh = [packed[s.offset : s.offset + s.nbytes].clone() for s in self._unit.layout.segments]
        for (tracked, original), mine in zip(self._originals, self._unit.leaves_apart(fresh, range(len(fresh)))):
            if not tracked.sites:
                continue
            if not tracked.wrapped:
                original.data = mine[0]
            tracked.replace(original, mine)

    def whole(self) -> list[tuple[Any, Any, torch.Tensor, torch.Tensor]]:
        """Gather now: the swaps that show whole tensors at every site. All ranks must call it in the same order."""
        packed = self._source.packed()
        members = self._unit.members_in(packed)
        return [
            (site.container, site.key, tracked.tensor, member)
            for tracked, member in zip(self._unit.tensors, members)
            for site in tracked.sites
        ]
