"""torch tensors. The only module that imports torch; itself imported when the first tensor comes along."""

from __future__ import annotations

import math
from typing import Any

import torch

from omni_shmring.codec import dtypes
from omni_shmring.codec.arrays import PLAIN, SHAPES, STRIDED, Shape, Unsupported, pack_shape, strided
from omni_shmring.codec.frame import Parts, Regions

_BY_CODE: dict[int, torch.dtype] = {
    code: getattr(torch, name) for code, name in dtypes.TORCH_CODES.items() if hasattr(torch, name)
}
_BY_DTYPE = {dtype: code for code, dtype in _BY_CODE.items()}
_strided = torch.strided
_VECTOR = SHAPES[1]
TENSOR = torch.Tensor
"""The one class that travels; subclasses do not."""


def encode_tensor(regions: Regions, tensor: torch.Tensor, identity: int) -> tuple[bytes, Any]:
    """(record, what must stay alive until the frame is written) of a dense CPU tensor.

    Raises:
        Unsupported: a tensor whose value does not lie in plain CPU memory, or that would lose its meaning.
    """
    code = _BY_DTYPE.get(tensor.dtype)
    if code is None or tensor.layout is not _strided or not tensor.is_cpu or tensor.requires_grad:
        raise Unsupported(tensor, _refusal(tensor, code))
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.is_contiguous():
        area, place = regions.add(tensor.data_ptr(), tensor.nbytes)
        return pack_shape(code, area, place, identity, tensor.shape), tensor
    shape = tensor.shape
    order, expanded = strided(tensor.stride(), shape)
    base = tensor
    for dim, repeats in enumerate(expanded):
        if repeats:
            base = base.narrow(dim, 0, 1)
    memory = base.permute(order)
    if not memory.is_contiguous():
        order = list(range(len(shape)))
        memory = base.contiguous()
    area, place = regions.add(memory.data_ptr(), memory.nbytes)
    return pack_shape(code, area, place, identity, shape, STRIDED, bytes(order) + bytes(expanded)), memory


def decode_tensor(record: memoryview, parts: Parts) -> torch.Tensor:
    """The tensor of a record. Raises ValueError and its kin for what is no such record."""
    if record[1] == 1 and record[2] == PLAIN and record[3] == 0:
        # The usual vector among the small leaves, written out flat.
        code, _, _, _, place, _, count = _VECTOR.unpack_from(record)
        dtype = _BY_CODE.get(code)
        if dtype is not None and count > 0 and place + count * dtype.itemsize <= parts.small_bytes:
            return torch.frombuffer(parts.small, dtype=dtype, count=count, offset=parts.small_at + place)
    shape = Shape(record)
    dtype = _BY_CODE.get(shape.code)
    if dtype is None:
        raise ValueError(f"element type {shape.code} is unknown to torch {torch.__version__}")
    memory_shape = shape.memory_shape()
    count = math.prod(memory_shape)
    buffer, offset = shape.find(parts, count * dtype.itemsize)
    if count:
        tensor = torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset)
        if len(memory_shape) != 1:
            tensor = tensor.view(memory_shape)
    else:
        tensor = torch.empty(memory_shape, dtype=dtype)
    if shape.order is not None and shape.expanded is not None:
        back = sorted(range(len(shape.order)), key=shape.order.__getitem__)
        tensor = tensor.permute(back)
        if any(shape.expanded):
            tensor = tensor.expand(shape.shape)
    return tensor


def refuse_subclass(leaf: object) -> str | None:
    """Why a subclass of Tensor is refused; None for anything else."""
    if isinstance(leaf, torch.nn.Parameter):
        return "Parameter, which would arrive as a plain tensor; send p.detach()"
    if isinstance(leaf, torch.Tensor):
        return f"{type(leaf).__name__}, a subclass of Tensor, which would arrive as a plain one; convert it first"
    return None


def _refusal(tensor: torch.Tensor, code: int | None) -> str:
    if tensor.device.type not in ("cpu", "meta"):
        return f"{tensor.device.type} tensor, call .cpu() first"
    if tensor.device.type == "meta":
        return "meta tensor, which has no data"
    if tensor.layout is not _strided:
        return f"sparse tensor ({tensor.layout}), call .to_dense() or send its parts"
    if tensor.is_quantized:
        return "quantized tensor, send .int_repr() with its scale and zero point"
    if code is None:
        return f"tensor of {tensor.dtype}, which has no wire format; .view(torch.uint8) has"
    return "tensor that requires grad, whose graph cannot travel; call .detach() first"
