"""Payload files as read-only torch tensors: one mapping per file, dropped when the last tensor of it is gone.

Torch has no tensor that refuses writes, and warns when it is given memory that Python calls read-only. So the mapping
is made with ``PROT_READ`` and handed over by address: a write through a tensor ends the process with SIGSEGV and cannot
reach the file. The window object keeps the mapping; each tensor's storage keeps the window.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from omni_hwr import fsio
from omni_hwr.config import MapOptions
from omni_hwr.manifest import Manifest
from omni_hwr.numa import memory_preferred
from omni_hwr.tensors import TO_TORCH

_MADV_POPULATE_READ = 22
"""madvise(2), Linux 5.14; not in Python's ``mmap``."""


class Region(NamedTuple):
    """A page range of the process that maps one payload file: its name, its address, its size in bytes."""

    file: str
    address: int
    nbytes: int


@dataclass(frozen=True)
class Mapped:
    """Tensors by name, the page ranges they lie in, and the options that the system refused."""

    tensors: dict[str, torch.Tensor]
    regions: tuple[Region, ...]
    refusals: tuple[str, ...]


def map_files(manifest: Manifest, fds: Sequence[int], options: MapOptions) -> Mapped:
    """Map every payload file and make the manifest's tensors over the mappings.

    Raises:
        StorageError: ``mmap`` is refused, for example with ENOMEM. Refused ``options`` are listed instead.
    """
    windows: list[ctypes.Array[ctypes.c_ubyte]] = []
    regions: list[Region] = []
    refusals: list[str] = []
    with memory_preferred(options.numa_node if options.prefault else None, refusals):
        if options.numa_node is not None and not options.prefault:
            refusals.append("numa_node: only pages that prefault brings in can be placed")
        for item, fd in zip(manifest.files, fds):
            with fsio.step("mmap", item.name):
                mapping = mmap.mmap(fd, item.nbytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
            window = _window(mapping, item.nbytes)
            windows.append(window)
            regions.append(Region(item.name, ctypes.addressof(window), item.nbytes))
            if options.prefault:
                _prefault(mapping, item.name, refusals)
            if options.lock_memory:
                _lock(regions[-1], refusals)
    return Mapped(_tensors(manifest, windows), tuple(regions), tuple(refusals))


def _window(mapping: mmap.mmap, nbytes: int) -> ctypes.Array[ctypes.c_ubyte]:
    exported = np.frombuffer(mapping, dtype=np.uint8)
    window = (ctypes.c_ubyte * nbytes).from_address(exported.ctypes.data)
    # The window is a bare address to ctypes; this reference is what keeps the mapping under it.
    window._mapping = exported  # type: ignore[attr-defined]
    return window


def _tensors(manifest: Manifest, windows: Sequence[ctypes.Array[ctypes.c_ubyte]]) -> dict[str, torch.Tensor]:
    """One storage per stored tensor, so that tensors share a storage exactly where the published ones did."""
    found: dict[str, torch.Tensor] = {}
    bases: dict[int, torch.Tensor] = {}
    for view in manifest.views:
        blob = manifest.blobs[view.blob]
        dtype = TO_TORCH[view.dtype]
        if not blob.nbytes or 0 in view.shape:
            found[view.name] = torch.empty_strided(view.shape, view.stride, dtype=dtype)
            continue
        base = bases.get(view.blob)
        if base is None:
            item_bytes = dtype.itemsize
            base = torch.frombuffer(
                windows[blob.file], dtype=dtype, count=blob.nbytes // item_bytes, offset=blob.offset
            )
            bases[view.blob] = base
        elif base.dtype != dtype:
            base = base.view(torch.uint8).view(dtype)
        found[view.name] = base.as_strided(view.shape, view.stride, view.offset // dtype.itemsize)
    return found


def _prefault(mapping: mmap.mmap, name: str, refusals: list[str]) -> None:
    try:
        mapping.madvise(_MADV_POPULATE_READ)
    except OSError as fault:
        refusals.append(f"prefault: {name}: {os.strerror(fault.errno or 0)}; the pages were read one by one")
        np.frombuffer(mapping, dtype=np.uint8)[:: mmap.PAGESIZE].max()


def _lock(region: Region, refusals: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlock(ctypes.c_void_p(region.address), ctypes.c_size_t(region.nbytes)) != 0:
        refusals.append(f"lock_memory: {region.file}: {os.strerror(ctypes.get_errno())}; raise RLIMIT_MEMLOCK")
