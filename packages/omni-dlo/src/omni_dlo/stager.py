"""Moves whole modules to the device before use and back after it, from one pinned master per storage."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import torch
from torch import nn

from omni_dlo.capture import Tracked, capture, storage_bytes
from omni_dlo.devices.base import Device, Event
from omni_dlo.errors import OffloadStateError

__all__ = ["ModuleStager"]


class ModuleStager:
    """Loads and leaves modules as often as asked.

    Between, their tensors are views of pinned masters, one for each storage, with the offset and stride they had; on
    the device likewise. Leaving does not copy back: what is written on the device is lost, which suits weights.

    Args:
        modules: Moved together; storages they share are moved once.
        device: Where to.
    """

    def __init__(self, modules: Sequence[nn.Module], device: Device) -> None:
        self._device = device
        self._tensors: list[Tracked] = []
        for module in modules:
            known = {id(tracked.tensor): tracked for tracked in self._tensors}
            for tracked in capture(module):
                if id(tracked.tensor) in known:
                    known[id(tracked.tensor)].sites.extend(tracked.sites)
                else:
                    self._tensors.append(tracked)
        self._leaves = [leaf for tracked in self._tensors for leaf in tracked.leaves]
        self._shapes = [(leaf.dtype, int(leaf.storage_offset()), leaf.shape, leaf.stride()) for leaf in self._leaves]
        self._event: Event = None
        self._loaded: list[torch.Tensor] = []
        self._closed = False
        self._storage_of: list[int] = []
        self._masters: list[torch.Tensor] = []
        self._homes: list[torch.device] = []
        if device.unified:
            return
        with torch.inference_mode(False), torch.no_grad():
            self._make_masters()
            self._point(self._masters)

    @property
    def loaded(self) -> bool:
        """Whether the modules are on the device."""
        return bool(self._loaded)

    @property
    def nbytes(self) -> int:
        """Bytes of all storages, each once."""
        return sum(master.numel() for master in self._masters)

    def load(self) -> None:
        """Copy to the device; does nothing when there already.

        Out of memory empties the allocator's cache and tries once more.

        Raises:
            torch.OutOfMemoryError: Not even then; the modules are on their masters.
        """
        if self._closed:
            raise OffloadStateError("this stager is closed")
        if self._loaded or self._device.unified:
            return
        with torch.inference_mode(False), torch.no_grad():
            try:
                self._load()
            except torch.OutOfMemoryError:
                self._device.empty_cache()
                self._load()

    def leave(self) -> None:
        """Point at the masters again and give the device memory up; does nothing when not loaded."""
        if not self._loaded:
            return
        loaded, self._loaded = self._loaded, []
        with torch.inference_mode(False), torch.no_grad():
            self._point(self._masters)
            self._event = self._device.record(self._device.compute_stream())
            self._device.wait_host(self._event)
            while loaded:
                self._device.release(loaded.pop())

    def close(self) -> None:
        """Leave, and put every tensor into plain memory of its own again. May be called again."""
        if self._closed:
            return
        self.leave()
        self._closed = True
        with torch.inference_mode(False), torch.no_grad():
            if self._masters:
                self._point([master.to(home, copy=True) for master, home in zip(self._masters, self._homes)])
        self._masters = []

    def __enter__(self) -> Self:
        self.load()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _make_masters(self) -> None:
        index: dict[tuple[str, int], int] = {}
        for leaf in self._leaves:
            storage = leaf.untyped_storage()
            key = (str(leaf.device), storage.data_ptr())
            if key not in index:
                index[key] = len(self._masters)
                master = self._device.pinned(storage.nbytes())
                self._masters.append(master.copy_(storage_bytes(leaf, 0, storage.nbytes())))
                self._homes.append(leaf.device)
            self._storage_of.append(index[key])

    def _load(self) -> None:
        stream = self._device.compute_stream()
        buffers: list[torch.Tensor] = []
        try:
            for number, master in enumerate(self._masters):
                buffers.append(self._device.empty(master.numel(), f"staged storage {number}"))
                self._device.copy(buffers[-1], master, stream, f"storage {number}")
            self._event = self._device.record(stream)
            self._device.wait_host(self._event)
            self._point(buffers)
        except BaseException:
            self._point(self._masters)
            while buffers:
                self._device.release(buffers.pop())
            raise
        self._loaded = buffers

    def _point(self, bases: Sequence[torch.Tensor]) -> None:
        views = []
        for number, (dtype, offset, shape, stride) in zip(self._storage_of, self._shapes):
            base = bases[number]
            skipped = int(base.storage_offset()) // dtype.itemsize
            view = torch.empty(0, dtype=dtype, device=base.device)
            views.append(view.set_(base.untyped_storage(), skipped + offset, shape, stride))
        at = 0
        for tracked in self._tensors:
            count = len(tracked.leaves)
            tracked.point_at(views[at : at + count])
            at += count
