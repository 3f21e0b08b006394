"""What is put onto a module while it is attached, and taken off again without a trace."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from omni_dlo.errors import ModuleChangedError

__all__ = ["Patch", "refuse_moves", "report_device", "wrap_method"]


class Patch:
    """An instance attribute that hides the class's own; :meth:`undo` puts back what was there."""

    def __init__(self, owner: nn.Module, name: str, value: object) -> None:
        self._owner = owner
        self._name = name
        self._had = name in owner.__dict__
        self._old = owner.__dict__.get(name)
        owner.__dict__[name] = value

    def undo(self) -> None:
        """Restore the instance. May be called again."""
        if self._had:
            self._owner.__dict__[self._name] = self._old
        else:
            self._owner.__dict__.pop(self._name, None)


class _Wrapped:
    """A callable that stands for a method of ``owner`` and leaves no trace of itself in a deep copy of it."""

    def __init__(self, owner: nn.Module, name: str, call: Callable[..., Any], before: Callable[..., Any]) -> None:
        self._owner = owner
        self._name = name
        self._call = call
        functools.update_wrapper(self, before, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = memo.get(id(self._owner), self._owner)
        method = getattr(type(twin), self._name)
        return types.MethodType(method, twin)


def wrap_method(owner: nn.Module, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Patch:
    """Replace the method ``name`` of this one instance by ``wrap(method)``.

    Where the module was compiled in place (``module.compile()``), what is replaced is the compiled call, so that the
    compiler never sees the wrapper.
    """
    if name == "forward" and owner.__dict__.get("_compiled_call_impl") is not None:
        name = "_compiled_call_impl"
    before = getattr(owner, name)
    call = wrap(before)
    if "torch._dynamo" in sys.modules:
        # Importing the compiler for the sake of hiding from it would cost every user seconds.
        call = torch.compiler.disable(call, recursive=False)  # type: ignore[no-untyped-call]
    return Patch(owner, name, _Wrapped(owner, name, call, before))


def report_device(module: nn.Module, device: torch.device) -> Callable[[], None]:
    """Make ``module.device`` say ``device`` where its class has such a property; returns the undo.

    diffusers and transformers derive it from the first parameter, which may wait on the host.
    """
    kind = type(module)
    if not isinstance(getattr(kind, "device", None), property):
        return lambda: None

    def reduce(self: nn.Module, protocol: int) -> Any:
        # A copy or a pickle of an attached module is a plain module.
        made = list(kind.__reduce_ex__(self, protocol))
        made[1] = tuple(kind if item is attached else item for item in made[1])
        return tuple(made)

    attached = type(
        kind.__name__,
        (kind,),
        {
            "device": property(lambda self: device),
            "__reduce_ex__": reduce,
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
        },
    )
    module.__class__ = attached

    def undo() -> None:
        if type(module) is attached:
            module.__class__ = kind

    return undo


def refuse_moves(module: nn.Module, name: str, device: torch.device) -> Patch:
    """Make ``.to()``, ``.half()`` and the like harmless while attached.

    A move to the compute device or the CPU is where the module already is, so it does nothing; a change of dtype
    would need every copy rebuilt and is refused.
    """
    dtypes = {tensor.dtype for tensor in [*module.parameters(), *module.buffers()]}

    def apply(function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        for dtype in dtypes:
            probe = torch.empty(0, dtype=dtype)
            became = function(probe)
            if became.dtype != dtype or became.device.type not in ("cpu", device.type):
                raise ModuleChangedError(
                    name,
                    f"cannot go from {dtype} to {became.dtype} on {became.device} while attached; detach() first",
                )
        return module

    return Patch(module, "_apply", _Wrapped(module, "_apply", apply, module._apply))
