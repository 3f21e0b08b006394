"""Torch tensors to stored blobs and views: what shares memory is stored once and shared again when it is mapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from omni_hwr.dtypes import ITEM_BYTES, TORCH_NAMES
from omni_hwr.errors import TensorError
from omni_hwr.layout import LINE_BYTES, TensorSpec
from omni_hwr.manifest import Kind, ViewRecord

TO_TORCH: dict[str, torch.dtype] = {
    name: getattr(torch, attribute) for name, attribute in TORCH_NAMES.items() if hasattr(torch, attribute)
}
FROM_TORCH: dict[torch.dtype, str] = {dtype: name for name, dtype in TO_TORCH.items()}


@dataclass(frozen=True)
class Blob:
    """A dense tensor to be stored. ``read`` gives it contiguous, on whatever device it is."""

    name: str
    spec: TensorSpec
    read: Callable[[], torch.Tensor]


@dataclass(frozen=True)
class _Member:
    """A tensor and the bytes of its storage that it reaches."""

    name: str
    tensor: torch.Tensor
    start: int
    end: int


def spec_of(name: str, tensor: torch.Tensor) -> TensorSpec:
    """Data type and shape of a tensor that the store can keep.

    Raises:
        TensorError: It is sparse, quantised, on the meta device, or of a data type without a safetensors name.
    """
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TensorError(name, f"is {tensor.layout}, quantised: {tensor.is_quantized}; only dense tensors are kept")
    if tensor.device.type == "meta":
        raise TensorError(name, "is on the meta device and has no values")
    if tensor.dtype not in FROM_TORCH:
        raise TensorError(name, f"data type {tensor.dtype} has no safetensors name")
    return TensorSpec(FROM_TORCH[tensor.dtype], tuple(tensor.shape))


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """A tensor's items in C order as bytes; no copy where it is contiguous on the host."""
    host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if host.numel() == 0:
        return memoryview(b"")
    if host.dtype.is_complex:
        host = torch.view_as_real(host)
    # Not reshape(-1): a dimension of one item may have any stride, and reshape keeps it.
    return host.as_strided((host.numel(),), (1,)).view(torch.uint8).numpy().data


def split(
    tensors: Mapping[str, torch.Tensor], kinds: Mapping[str, Kind]
) -> tuple[tuple[Blob, ...], tuple[ViewRecord, ...]]:
    """Blobs that hold every byte once, and each tensor as a view of one of them, in the order given.

    Tensors whose byte ranges in one storage touch no other's become blobs of their own. Where ranges overlap, the
    first contiguous tensor that covers them all is the blob and the others are views of it; without such a tensor
    the covered range is stored as ``<name>#storage``, with zeros where no tensor reaches.
    """
    storages: dict[tuple[torch.device, int], list[_Member]] = {}
    groups: list[list[_Member]] = []
    for name, tensor in tensors.items():
        spec = spec_of(name, tensor)
        start = int(tensor.storage_offset()) * tensor.element_size()
        record = ViewRecord(name, "tensor", spec.dtype, spec.shape, tuple(tensor.stride()), 0, 0)
        member = _Member(name, tensor, start, start + record.span_bytes)
        if tensor.numel() == 0:
            groups.append([member])
        else:
            storages.setdefault((tensor.device, tensor.untyped_storage().data_ptr()), []).append(member)
    for members in storages.values():
        members.sort(key=lambda item: item.start)
        reach = -1
        for member in members:
            if member.start >= reach:
                groups.append([])
            groups[-1].append(member)
            reach = max(reach, member.end)
    order = {name: index for index, name in enumerate(tensors)}
    for group in groups:
        group.sort(key=lambda item: order[item.name])
    groups.sort(key=lambda group: order[group[0].name])
    blobs: list[Blob] = []
    views: list[ViewRecord] = []
    for index, group in enumerate(groups):
        blob, origin = _blob_of(group)
        blobs.append(blob)
        for member in group:
            tensor = member.tensor
            views.append(
                ViewRecord(
                    member.name,
                    kinds.get(member.name, "tensor"),
                    FROM_TORCH[tensor.dtype],
                    tuple(tensor.shape),
                    tuple(tensor.stride()),
                    index,
                    member.start - origin,
                )
            )
    views.sort(key=lambda view: order[view.name])
    return tuple(blobs), tuple(views)


def _blob_of(group: list[_Member]) -> tuple[Blob, int]:
    """The blob of overlapping tensors, and the storage byte at which it begins."""
    low, high = min(item.start for item in group), max(item.end for item in group)
    one_type = len({item.tensor.dtype for item in group}) == 1
    for item in group:
        tensor = item.tensor
        if one_type and tensor.is_contiguous() and (item.start, item.end) == (low, high):
            return Blob(item.name, spec_of(item.name, tensor), tensor.detach), low
    if one_type:
        dtype = FROM_TORCH[group[0].tensor.dtype]
        spec = TensorSpec(dtype, ((high - low) // ITEM_BYTES[dtype],))
    else:
        low -= low % LINE_BYTES
        spec = TensorSpec("U8", (high - low + -(high - low) % LINE_BYTES,))
    return Blob(f"{group[0].name}#storage", spec, lambda: _gather(group, spec, low)), low


def _gather(group: list[_Member], spec: TensorSpec, low: int) -> torch.Tensor:
    """The covered range as one flat tensor, zero where no tensor of the group reaches."""
    flat = torch.zeros(spec.nbytes, dtype=torch.uint8)
    for item in group:
        tensor = item.tensor.detach().cpu() if _copyable(item.tensor) else None
        if tensor is None:
            # Its items overlap one another (a sliding window), so the range is copied as it lies.
            size = item.end - item.start
            raw = torch.empty(0, dtype=torch.uint8, device=item.tensor.device)
            raw.set_(item.tensor.untyped_storage(), item.start, (size,), (1,))
            flat[item.start - low : item.end - low] = raw.cpu()
            continue
        for dim, step in enumerate(tensor.stride()):
            if item.tensor.stride(dim) == 0 or step == 0:
                tensor = tensor.narrow(dim, 0, 1)
        steps = tuple(item.tensor.stride())
        place = flat.view(-1)[item.start - low : item.end - low].view(item.tensor.dtype)
        place.as_strided(tensor.shape, steps).copy_(tensor)
    return flat if spec.dtype == "U8" else flat.view(TO_TORCH[spec.dtype])


def _copyable(tensor: torch.Tensor) -> bool:
    """Whether each item has bytes of its own once dimensions of stride 0 are narrowed to one."""
    reach = 0
    for step, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if s != 0 and n > 1):
        if step <= reach:
            return False
        reach += step * (size - 1)
    return True
