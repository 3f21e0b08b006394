"""Replays a function's recorded graph when it is called again with exactly the same shapes on the same stream.

An encoder sees few shapes many times; launching its kernels one by one then costs more than running them. The cache
never evicts: a graph's memory stays addressed by the graphs around it in their shared pool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from omni_serve.errors import ServeError


class GraphCaptureError(ServeError):
    """Recording failed. The device may be left in the middle of it, so this cache runs nothing any more."""


@dataclass(frozen=True, slots=True)
class GraphCacheConfig:
    """When to record.

    Attributes:
        capture_on_call: The call with the same shapes that records; at least 2, so that lazy set-up ran before.
        max_graphs: Most graphs held; 0 records never.
        max_history: Most shapes remembered that were not recorded yet; the oldest is forgotten first.
        min_free_bytes: Device memory that must be free for another recording.
    """

    capture_on_call: int = 2
    max_graphs: int = 16
    max_history: int = 256
    min_free_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name, low in (("capture_on_call", 2), ("max_graphs", 0), ("max_history", 1), ("min_free_bytes", 0)):
            if getattr(self, name) < low:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {low}")


@dataclass(slots=True)
class GraphCounters:
    """What became of every call: hits were replayed, all others ran the function itself.

    Attributes:
        hits: Replayed.
        captures: Recorded (and answered by the recording's first replay).
        ineligible: A device without graphs, grad mode, autocast, or arguments that no key can tell apart.
        warm_up: Not yet the call that records.
        capacity: All graphs are in use.
        memory: Too little device memory was free.
    """

    hits: int = 0
    captures: int = 0
    ineligible: int = 0
    warm_up: int = 0
    capacity: int = 0
    memory: int = 0


class Captured(Protocol):
    """One recorded graph, bound to its own input and output memory."""

    inputs: tuple[torch.Tensor, ...]
    output: Any

    def replay(self) -> None:
        """Run the graph on the current stream: reads ``inputs``, overwrites ``output``."""
        ...


class CaptureBackend(Protocol):
    """A device's way to record."""

    def handles(self, device: torch.device) -> bool:
        """Whether tensors of this device can be recorded."""
        ...

    def stream(self, device: torch.device) -> Hashable:
        """The current stream's identity."""
        ...

    def free_bytes(self, device: torch.device) -> int:
        """Device memory that is free."""
        ...

    def new_pool(self, device: torch.device) -> Any:
        """Memory that graphs recorded on one stream share."""
        ...

    def capture(
        self, run: Callable[[tuple[torch.Tensor, ...]], Any], inputs: tuple[torch.Tensor, ...], pool: Any
    ) -> Captured:
        """Record ``run`` over copies of ``inputs``."""
        ...


class GraphCache:
    """Calls a function, recorded where that is possible; use it in the function's place.

    Tensors may stand among the positional and keyword arguments; everything else must be hashable and is part of the
    key. Results (a tensor, or tuples, lists and dicts of them) are clones: the next replay overwrites only its own.
    Calls come from one thread at a time, as an encoder's do.
    """

    def __init__(self, function: Callable[..., Any], config: GraphCacheConfig, backend: CaptureBackend) -> None:
        self._function, self._config, self._backend = function, config, backend
        self._graphs: dict[Hashable, Captured] = {}
        self._seen: OrderedDict[Hashable, int] = OrderedDict()
        self._pools: dict[Hashable, Any] = {}
        self._failure: str | None = None
        self.counters = GraphCounters()

    def __len__(self) -> int:
        """How many graphs are held."""
        return len(self._graphs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result. Raises GraphCaptureError when recording fails, and ever after."""
        if self._failure is not None:
            raise GraphCaptureError(f"an earlier recording failed: {self._failure}; make a new instance")
        # By name, not in the order written: the same call spelled otherwise must find its inputs in the same places.
        kwargs = dict(sorted(kwargs.items()))
        tensors = tuple(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        key = self._key(tensors, args, kwargs)
        if key is None:
            self.counters.ineligible += 1
            return self._function(*args, **kwargs)
        graph = self._graphs.get(key)
        if graph is not None:
            self.counters.hits += 1
            return _replayed(graph, tensors)
        if not self._admitted(key, tensors[0].device):
            return self._function(*args, **kwargs)
        return _replayed(self._record(key, tensors, args, kwargs), tensors)

    def _key(self, tensors: tuple[torch.Tensor, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
        if not tensors or self._config.max_graphs == 0:
            return None
        device = tensors[0].device
        alike = all(t.device == device and t.layout is torch.strided for t in tensors)
        if not alike or not self._backend.handles(device):
            return None
        if torch.is_grad_enabled() or torch.is_autocast_enabled(device.type):
            return None
        parts = (tuple(map(_part, args)), tuple((name, _part(value)) for name, value in kwargs.items()))
        key = (device, self._backend.stream(device), parts)
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _admitted(self, key: Hashable, device: torch.device) -> bool:
        """Whether this call records; counts why not."""
        calls = self._seen.pop(key, 0) + 1
        self._seen[key] = calls
        if len(self._seen) > self._config.max_history:
            self._seen.popitem(last=False)
        if calls < self._config.capture_on_call:
            self.counters.warm_up += 1
            return False
        if len(self._graphs) >= self._config.max_graphs:
            self.counters.capacity += 1
            return False
        if self._backend.free_bytes(device) < self._config.min_free_bytes:
            self.counters.memory += 1
            return False
        return True

    def _record(
        self, key: Hashable, tensors: tuple[torch.Tensor, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Captured:
        device = tensors[0].device
        place = (device, self._backend.stream(device))

        def run(inputs: tuple[torch.Tensor, ...]) -> Any:
            left = iter(inputs)
            given = [next(left) if isinstance(value, torch.Tensor) else value for value in args]
            named = {n: next(left) if isinstance(v, torch.Tensor) else v for n, v in kwargs.items()}
            return self._function(*given, **named)

        try:
            if place not in self._pools:
                self._pools[place] = self._backend.new_pool(device)
            graph = self._backend.capture(run, tensors, self._pools[place])
            _cloned(graph.output)
        except Exception as error:
            # A boundary: whatever the driver raised, the device's state is unknown now, and that is told at every call.
            self._failure = f"{type(error).__name__}: {error}"
            raise GraphCaptureError(f"recording failed: {self._failure}") from error
        self._graphs[key] = graph
        del self._seen[key]
        self.counters.captures += 1
        return graph


def _part(value: Any) -> Hashable:
    """An argument's share of the key. Strides count: kernels are chosen by them."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, tuple(value.shape), tuple(value.stride()))
    # 0.0 equals -0.0, and NaN nothing, not even itself.
    part: Hashable = (type(value), value.hex() if isinstance(value, float) else value)
    return part


def _replayed(graph: Captured, tensors: tuple[torch.Tensor, ...]) -> Any:
    for held, given in zip(graph.inputs, tensors):
        held.copy_(given)
    graph.replay()
    return _cloned(graph.output)


def _cloned(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output.clone()
    if isinstance(output, dict):
        return {name: _cloned(value) for name, value in output.items()}
    if isinstance(output, list | tuple):
        return type(output)(_cloned(value) for value in output)
    if output is None:
        return None
    raise TypeError(f"a recorded function must return tensors, in tuples, lists or dicts; it returned {type(output)}")
