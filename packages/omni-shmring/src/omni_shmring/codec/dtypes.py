"""Element types on the wire: one byte for the common ones and torch's own, a description for the rest."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

NUMPY_CODES: dict[int, str] = {
    1: "|b1", 2: "|u1", 3: "|i1", 4: "<u2", 5: "<i2", 6: "<u4", 7: "<i4", 8: "<u8", 9: "<i8",
    10: "<f2", 11: "<f4", 12: "<f8", 13: "<c8", 14: "<c16",
}  # fmt: skip
TORCH_CODES: dict[int, str] = {
    1: "bool", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "uint32", 7: "int32", 8: "uint64", 9: "int64",
    10: "float16", 11: "float32", 12: "float64", 13: "complex64", 14: "complex128",
    32: "bfloat16", 33: "complex32", 34: "float8_e4m3fn", 35: "float8_e5m2", 36: "float8_e4m3fnuz",
    37: "float8_e5m2fnuz", 38: "float8_e8m0fnu",
}  # fmt: skip
DESCRIBED = 255

BY_CODE: dict[int, np.dtype[Any]] = {code: np.dtype(text) for code, text in NUMPY_CODES.items()}
BY_DTYPE: dict[np.dtype[Any], int] = {dtype: code for code, dtype in BY_CODE.items()}


def describe(dtype: np.dtype[Any]) -> bytes | None:
    """A dtype in msgpack; None for one that holds objects or that numpy's own description does not bring back."""
    if dtype.hasobject:
        return None
    described: Any = dtype.descr if dtype.fields is not None else dtype.str
    raw = msgspec.msgpack.encode(described)
    try:
        return raw if from_description(raw) == dtype else None
    except (TypeError, ValueError):
        return None


def from_description(raw: bytes | memoryview) -> np.dtype[Any]:
    """The dtype of a description.

    Raises:
        ValueError: it describes no dtype, or one that holds objects.
    """
    described = msgspec.msgpack.decode(raw)
    try:
        dtype: np.dtype[Any] = np.dtype(described if isinstance(described, str) else _fields(described))
    except (TypeError, ValueError, SyntaxError) as error:
        raise ValueError(f"no element type: {described!r}") from error
    if dtype.hasobject:
        raise ValueError(f"element type {dtype} holds objects")
    return dtype


def _fields(described: Any) -> Any:
    """numpy wants tuples where msgpack brought lists: fields, and the shape of a field."""
    return [
        (
            tuple(name) if isinstance(name, list) else name,
            _fields(kind) if isinstance(kind, list) else kind,
            *(tuple(shape) for shape in rest),
        )
        for name, kind, *rest in described
    ]
