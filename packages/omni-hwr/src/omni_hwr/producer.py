"""What a store can publish: a mapping of tensors, a function that loads one, or a producer that streams.

The streaming form declares data types and shapes first and then writes rows in any order, so that weights larger than
memory pass through: no more than the piece in hand is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Protocol, runtime_checkable

import torch

from omni_hwr.dtypes import ITEM_BYTES
from omni_hwr.errors import CoverageError, TensorError
from omni_hwr.layout import TensorSpec
from omni_hwr.manifest import Kind, ViewRecord
from omni_hwr.payload import PayloadWriter
from omni_hwr.tensors import Blob, raw_bytes, spec_of, split


class TensorSink:
    """Where a :class:`StreamProducer` writes its tensors."""

    def __init__(self, writer: PayloadWriter, specs: Mapping[str, TensorSpec]) -> None:
        self._writer = writer
        self._specs = specs

    def write(self, name: str, rows: torch.Tensor | memoryview, first_row: int = 0) -> None:
        """Write rows ``first_row`` and following of the tensor ``name``; all of it where they are all its rows.

        ``rows`` is a tensor of the declared data type whose shape after the first dimension is the declared one, or
        the same items' bytes. It may be reused as soon as this returns.

        Raises:
            CoverageError: The rows do not fit the declaration, or were written before.
        """
        spec = self._specs.get(name)
        if spec is None:
            raise CoverageError(name, "was written but not declared")
        row_shape = spec.shape[1:]
        row_bytes = ITEM_BYTES[spec.dtype] * prod(row_shape)
        if isinstance(rows, torch.Tensor):
            found = spec_of(name, rows)
            if found.dtype != spec.dtype or (found.shape[1:] if spec.shape else found.shape) != row_shape:
                raise CoverageError(
                    name, f"{found.dtype} {found.shape} was written, declared {spec.dtype} {spec.shape}"
                )
            data = raw_bytes(rows)
        else:
            data = rows.cast("B") if rows.nbytes else memoryview(b"")
            if row_bytes and len(data) % row_bytes:
                raise CoverageError(name, f"{len(data)} bytes are no whole number of rows of {row_bytes}")
        self._writer.write(name, data, first_row * row_bytes)


@runtime_checkable
class StreamProducer(Protocol):
    """Declares its tensors, then writes them piece by piece."""

    def declare(self) -> Mapping[str, TensorSpec]:
        """Data type and shape of every tensor."""
        ...

    def write(self, sink: TensorSink) -> None:
        """Write every row of every declared tensor exactly once, in any order."""
        ...


Producer = Callable[[], Mapping[str, torch.Tensor]] | StreamProducer
"""What :meth:`WeightStore.get_or_build` builds from."""


class Payload(Protocol):
    """The one form that the publication sees."""

    specs: Mapping[str, TensorSpec]

    def views(self, positions: Mapping[str, int]) -> tuple[ViewRecord, ...]:
        """The tensors as views of the blobs, whose numbers are ``positions``."""
        ...

    def write(self, sink: TensorSink) -> None:
        """Write every blob."""
        ...


class MappingPayload:
    """Tensors in memory; what shares memory is written once."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        for name, tensor in tensors.items():
            if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
                raise TensorError(str(name), f"is {type(tensor).__name__} under {name!r}; text to tensors is wanted")
        kinds: Mapping[str, Kind] = tensors.kinds if isinstance(tensors, HasKinds) else {}
        self.blobs: tuple[Blob, ...]
        self.blobs, self._views = split(tensors, kinds)
        self.specs: Mapping[str, TensorSpec] = {blob.name: blob.spec for blob in self.blobs}

    def views(self, positions: Mapping[str, int]) -> tuple[ViewRecord, ...]:
        names = [blob.name for blob in self.blobs]
        return tuple(
            ViewRecord(v.name, v.kind, v.dtype, v.shape, v.stride, positions[names[v.blob]], v.offset)
            for v in self._views
        )

    def write(self, sink: TensorSink) -> None:
        for blob in self.blobs:
            sink.write(blob.name, blob.read())


@runtime_checkable
class HasKinds(Protocol):
    """A mapping of tensors that knows what each is to its module, as ``from_module`` returns."""

    @property
    def kinds(self) -> Mapping[str, Kind]: ...


class StreamPayload:
    """A streaming producer's tensors; each is a blob of its own."""

    def __init__(self, producer: StreamProducer) -> None:
        self._producer = producer
        self.specs: Mapping[str, TensorSpec] = dict(producer.declare())

    def views(self, positions: Mapping[str, int]) -> tuple[ViewRecord, ...]:
        return tuple(
            ViewRecord(name, "tensor", spec.dtype, spec.shape, _strides(spec.shape), positions[name], 0)
            for name, spec in self.specs.items()
        )

    def write(self, sink: TensorSink) -> None:
        self._producer.write(sink)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in items, by torch's rule that an empty dimension counts as one."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
