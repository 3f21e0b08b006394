"""The table of data types agrees with torch and with the safetensors library."""

from __future__ import annotations

import torch
from safetensors.torch import save

from omni_hwr.dtypes import ITEM_BYTES, TORCH_NAMES
from omni_hwr.tensors import FROM_TORCH, TO_TORCH


def test_sizes_are_torchs_own() -> None:
    assert set(ITEM_BYTES) == set(TORCH_NAMES)
    for name, dtype in TO_TORCH.items():
        assert dtype.itemsize == ITEM_BYTES[name]
    assert len(TO_TORCH) >= len(TORCH_NAMES) - 1


def test_names_are_those_of_the_safetensors_library() -> None:
    for name in ("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "F16", "BF16", "I32", "F32", "I64", "F64"):
        written = save({"x": torch.zeros(2).to(TO_TORCH[name])})
        assert f'"dtype":"{name}"'.encode() in written
        assert FROM_TORCH[TO_TORCH[name]] == name
