"""Folders that are no model, or not whole, are refused in words before anything is published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from omni_hwr import WeightStore
from omni_hwr.config import ignore_progress
from omni_hwr.errors import FolderError
from omni_hwr.folders import import_folder, read_header


def header(table: object, data: bytes = b"") -> bytes:
    text = json.dumps(table).encode() if not isinstance(table, bytes) else table
    return len(text).to_bytes(8, "little") + text + data


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}

BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "header"),
    "short": (b"\1\2", "header"),
    "huge header": ((1 << 62).to_bytes(8, "little") + b"{}", "header"),
    "no JSON": (header(b"\xff\xfe{"), "malformed"),
    "a list": (header([1]), "malformed"),
    "no offsets": (header({"x": {"dtype": "F32", "shape": [2]}}), "malformed"),
    "past the end": (header({"x": ENTRY}, bytes(7)), "reaches past"),
    "wrong size": (header({"x": {**ENTRY, "shape": [3]}}, bytes(8)), "reaches past"),
    "negative": (header({"x": {**ENTRY, "data_offsets": [-8, 0]}}, bytes(8)), "reaches past"),
    "unknown type": (header({"x": {**ENTRY, "dtype": "F7"}}, bytes(8)), "unknown data type"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_shard_is_refused(name: str, store: WeightStore, tmp_path: Path) -> None:
    data, words = BROKEN[name]
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(FolderError, match=words):
        import_folder(store, folder, "m", "", (), None, ignore_progress)
    assert store.entries() == []


def test_a_header_is_read_with_places(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2), "b": torch.zeros(3, 2, dtype=torch.bfloat16)}, tmp_path / "x.safetensors")
    found = read_header(tmp_path / "x.safetensors")
    assert found["b"].spec.shape == (3, 2)
    data = (tmp_path / "x.safetensors").read_bytes()
    assert data[found["a"].start :][:8] == b"\0\0\x80?" * 2


def folder_with(tmp_path: Path, files: dict[str, bytes]) -> Path:
    folder = tmp_path / "model"
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def index(names: list[object]) -> bytes:
    return json.dumps({"weight_map": {str(number): name for number, name in enumerate(names)}}).encode()


GOOD = header({"x": ENTRY}, bytes(8))
FOLDERS: dict[str, tuple[dict[str, bytes], str]] = {
    "nothing": ({"readme": b""}, "neither"),
    "no weights": ({"config.json": b"{}"}, "no component with safetensors"),
    "pickled": ({"config.json": b"{}", "pytorch_model.bin": b""}, "only pickled"),
    "shard missing": ({"config.json": b"{}", "model.safetensors.index.json": index(["a"])}, "missing"),
    "shard elsewhere": ({"config.json": b"{}", "model.safetensors.index.json": index(["../a"])}, "not beside"),
    "shard no text": ({"config.json": b"{}", "model.safetensors.index.json": index(["a", ""])}, "not beside|missing"),
    "index no JSON": ({"config.json": b"{}", "model.safetensors.index.json": b"["}, "no index"),
    "pipeline no JSON": ({"model_index.json": b"["}, "no list"),
    "several, no index": ({"config.json": b"{}", "a.safetensors": GOOD, "b.safetensors": GOOD}, "several"),
    "same name twice": (
        {"config.json": b"{}", "a": GOOD, "b": GOOD, "model.safetensors.index.json": index(["a", "b"])},
        "as well",
    ),
}


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_a_folder_that_is_not_whole_is_refused(name: str, store: WeightStore, tmp_path: Path) -> None:
    files, words = FOLDERS[name]
    with pytest.raises(FolderError, match=words):
        import_folder(store, folder_with(tmp_path, files), "m", "", (), None, ignore_progress)
    assert store.entries() == []


def test_a_single_file_of_any_name_will_do(store: WeightStore, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, {"config.json": b"{}", "weights.safetensors": GOOD})
    (item,) = import_folder(store, folder, "m", "", (), None, ignore_progress)
    assert item.component == "model"
    store.verify(item.digest)
