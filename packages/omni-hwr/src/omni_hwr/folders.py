"""Diffusers and transformers folders into the store: safetensors shards are read directly, nothing is unpickled."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from omni_hwr import fsio
from omni_hwr.config import ProgressCallback
from omni_hwr.dtypes import ITEM_BYTES
from omni_hwr.errors import FolderError
from omni_hwr.key import WeightKey
from omni_hwr.layout import MAX_HEADER_BYTES, TensorSpec
from omni_hwr.lease import Source
from omni_hwr.producer import TensorSink
from omni_hwr.store import WeightStore

PRODUCER = "omni-hwr-import/1"
REPRESENTATION = "checkpoint"
_STEMS = ("model", "diffusion_pytorch_model", "pytorch_model")
_PIECE_BYTES = 32 << 20


@dataclass(frozen=True)
class Imported:
    """One component that is in the store now."""

    component: str
    digest: str
    source: Source
    nbytes: int


@dataclass(frozen=True)
class _Range:
    """Where a tensor's bytes lie in a shard."""

    shard: Path
    spec: TensorSpec
    start: int


def read_header(path: Path) -> dict[str, _Range]:
    """Tensors of a safetensors file by name, with their places, checked against the file's size.

    Format: https://github.com/huggingface/safetensors#format.

    Raises:
        FolderError: The file is no safetensors file, or its header points outside of it.
    """
    with fsio.step("open", str(path)), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
            raise FolderError(str(path), "is no safetensors file: its header would be longer than it may be")
        text = file.read(length)
    found: dict[str, _Range] = {}
    try:
        for name, entry in json.loads(text).items():
            if name == "__metadata__":
                continue
            spec = TensorSpec(entry["dtype"], tuple(int(n) for n in entry["shape"]))
            start, end = (int(n) for n in entry["data_offsets"])
            if spec.dtype not in ITEM_BYTES:
                raise FolderError(str(path), f"tensor {name!r} is of unknown data type {spec.dtype}")
            if min(spec.shape, default=0) < 0 or start < 0 or end - start != spec.nbytes or 8 + length + end > size:
                raise FolderError(str(path), f"tensor {name!r} reaches past the file; is it complete?")
            found[name] = _Range(path, spec, 8 + length + start)
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        if isinstance(fault, FolderError):
            raise
        raise FolderError(str(path), f"is no safetensors file: its header is malformed ({fault})") from fault
    return found


class ShardProducer:
    """Streams the tensors of safetensors shards: a :class:`StreamProducer` that holds one piece at a time."""

    def __init__(self, shards: Sequence[Path]) -> None:
        self._ranges: dict[str, _Range] = {}
        for shard in shards:
            for name, item in read_header(shard).items():
                if name in self._ranges:
                    raise FolderError(str(shard), f"tensor {name!r} is in {self._ranges[name].shard.name} as well")
                self._ranges[name] = item

    def declare(self) -> Mapping[str, TensorSpec]:
        return {name: item.spec for name, item in self._ranges.items()}

    def write(self, sink: TensorSink) -> None:
        with ExitStack() as stack:
            opened: dict[Path, memoryview] = {}
            for name, item in self._ranges.items():
                if item.shard not in opened:
                    opened[item.shard] = stack.enter_context(_mapped(item.shard))
                data = opened[item.shard]
                rows = item.spec.shape[0] if item.spec.shape else 1
                row_bytes = item.spec.nbytes // rows if rows else 0
                step = max(1, _PIECE_BYTES // row_bytes) if row_bytes else max(rows, 1)
                for first in range(0, rows, step):
                    count = min(step, rows - first)
                    at = item.start + first * row_bytes
                    sink.write(name, data[at : at + count * row_bytes], first)


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    with fsio.step("mmap", str(path)), path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    view = memoryview(mapping)
    try:
        yield view
    finally:
        view.release()
        mapping.close()


def weight_files(folder: Path, variant: str | None) -> list[Path]:
    """The safetensors shards of one component's folder, from its index where it has one; empty where it has none.

    Raises:
        FolderError: The index is malformed or names a missing shard, or the weights are there in pickled form only.
    """
    suffix = f".{variant}" if variant else ""
    for stem in _STEMS:
        for name in (f"{stem}.safetensors.index{suffix}.json", f"{stem}{suffix}.safetensors.index.json"):
            if (folder / name).is_file():
                return _indexed(folder / name)
        single = folder / f"{stem}{suffix}.safetensors"
        if single.is_file():
            return [single]
    others = sorted(path for path in folder.glob("*.safetensors") if variant is None or f".{variant}." in path.name)
    if len(others) == 1:
        return others
    if others:
        names = ", ".join(path.name for path in others[:3])
        raise FolderError(str(folder), f"has several safetensors files and no index ({names}); name a --variant")
    pickled = [path for pattern in ("*.bin", "*.pt", "*.ckpt", "*.pth") for path in folder.glob(pattern)]
    if pickled:
        raise FolderError(str(folder), f"has only pickled weights ({pickled[0].name}); convert them first")
    return []


def _indexed(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise FolderError(str(index), "is no index of safetensors shards") from fault
    for name in names:
        if not isinstance(name, str) or name != os.path.basename(name):
            raise FolderError(str(index), f"names the shard {name!r}, which is not beside it")
        if not (index.parent / name).is_file():
            raise FolderError(str(index), f"names {name}, which is missing; is the download complete?")
    return [index.parent / name for name in names]


def components_of(folder: Path) -> dict[str, Path]:
    """Components of a diffusers pipeline, or the one component ``model`` of a transformers folder.

    Raises:
        FolderError: It is neither.
    """
    index = folder / "model_index.json"
    if index.is_file():
        try:
            listed = json.loads(index.read_text())
            names = [name for name, value in listed.items() if isinstance(value, list) and any(value)]
        except (ValueError, AttributeError) as fault:
            raise FolderError(str(index), "is no list of a pipeline's components") from fault
        return {name: folder / name for name in names if (folder / name).is_dir()}
    if (folder / "config.json").is_file():
        return {"model": folder}
    raise FolderError(str(folder), "has neither model_index.json (diffusers) nor config.json (transformers)")


def import_folder(
    store: WeightStore,
    folder: Path,
    model: str,
    revision: str,
    only: Sequence[str],
    variant: str | None,
    progress: ProgressCallback,
) -> list[Imported]:
    """Publish the components of ``folder`` that have weights, as they are in the checkpoint.

    Raises:
        FolderError: No component has safetensors weights, or ``only`` names one that is not there.
        WeightStoreError: The store's own faults.
    """
    components = components_of(folder)
    unknown = sorted(set(only) - set(components))
    if unknown:
        raise FolderError(str(folder), f"has no component {unknown[0]!r}; it has {', '.join(sorted(components))}")
    imported: list[Imported] = []
    for name, path in components.items():
        if only and name not in only:
            continue
        shards = weight_files(path, variant)
        if not shards:
            continue
        key = WeightKey(
            model=model,
            revision=revision,
            component=name,
            representation=f"{REPRESENTATION}-{variant}" if variant else REPRESENTATION,
            producer=PRODUCER,
            fingerprint=store.fingerprint(shards, progress=progress),
        )
        with store.get_or_build(key, ShardProducer(shards), progress=progress) as lease:
            imported.append(Imported(name, lease.digest, lease.source, lease.nbytes))
    if not imported:
        raise FolderError(str(folder), "has no component with safetensors weights")
    return imported
