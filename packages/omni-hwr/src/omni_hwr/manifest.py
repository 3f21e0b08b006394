"""The manifest of an artifact: what is in which file, and what the module's tensors are. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast, get_args

from omni_hwr.digests import ALGORITHMS, Algorithm, digest_bytes, new_hasher
from omni_hwr.dtypes import ITEM_BYTES
from omni_hwr.errors import KeyFormatError
from omni_hwr.key import WeightKey, canonical_json
from omni_hwr.layout import TensorSpec, build_header, file_name

MANIFEST_SCHEMA = "omni-hwr/manifest/1"
READY_SCHEMA = "omni-hwr/ready/1"
MAX_MANIFEST_BYTES = 256 << 20
"""A longer manifest is refused unread."""

Kind = Literal["tensor", "parameter", "buffer", "transient"]
"""What a view is to its module; ``transient`` is a non-persistent buffer, ``tensor`` belongs to no module."""

KINDS: tuple[Kind, ...] = get_args(Kind)


class ManifestError(ValueError):
    """A manifest that contradicts itself; the reader turns it into a denial."""


@dataclass(frozen=True)
class FileRecord:
    """One payload file: name, size, bytes before its data, and digest."""

    name: str
    nbytes: int
    header_bytes: int
    digest: str


@dataclass(frozen=True)
class BlobRecord:
    """One tensor as it lies in a payload file, dense and contiguous."""

    name: str
    spec: TensorSpec
    file: int
    offset: int
    digest: str


@dataclass(frozen=True)
class ViewRecord:
    """One tensor as the user names it: a view of blob number ``blob``, ``offset`` bytes into it."""

    name: str
    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    blob: int
    offset: int

    @property
    def span_bytes(self) -> int:
        """Bytes from the view's first item to behind its last, strides included."""
        if any(size == 0 for size in self.shape):
            return 0
        items = 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride))
        return items * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Manifest:
    """Everything about a published artifact but its bytes."""

    key: WeightKey
    algorithm: Algorithm
    created_s: float
    files: tuple[FileRecord, ...]
    blobs: tuple[BlobRecord, ...]
    views: tuple[ViewRecord, ...]

    @property
    def nbytes(self) -> int:
        """Size of the payload files."""
        return sum(item.nbytes for item in self.files)

    def header_of(self, index: int) -> bytes:
        """The header that payload file ``index`` must begin with."""
        return build_header([(blob.name, blob.spec) for blob in self.blobs if blob.file == index])

    @cached_property
    def content_digest(self) -> str:
        """Digest of the tensors alone: the same for the same content, whatever the files, the time, the key."""
        hasher = new_hasher("sha256")
        for blob in sorted(self.blobs, key=lambda item: item.name):
            hasher.update(canonical_json([blob.name, blob.spec.dtype, blob.spec.shape, blob.digest]).encode("ascii"))
        for view in sorted(self.views, key=lambda item: item.name):
            name = self.blobs[view.blob].name
            line = [view.name, view.kind, view.dtype, view.shape, view.stride, name, view.offset]
            hasher.update(canonical_json(line).encode("ascii"))
        return hasher.hexdigest()

    def dump(self) -> bytes:
        """The manifest as JSON, one tensor a line."""
        head = {
            "schema": MANIFEST_SCHEMA,
            "key": self.key.content,
            "algorithm": self.algorithm,
            "created_s": self.created_s,
            "content_digest": self.content_digest,
        }
        files = [[item.name, item.nbytes, item.header_bytes, item.digest] for item in self.files]
        blobs = [
            [b.name, b.spec.dtype, list(b.spec.shape), b.file, b.offset, b.spec.nbytes, b.digest] for b in self.blobs
        ]
        views = [[v.name, v.kind, v.dtype, list(v.shape), list(v.stride), v.blob, v.offset] for v in self.views]
        parts = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in head.items()]
        for name, rows in (("files", files), ("blobs", blobs), ("views", views)):
            parts.append(f'"{name}":[\n' + ",\n".join(json.dumps(row) for row in rows) + "]")
        return ("{" + ",\n".join(parts) + "}\n").encode("ascii")


def parse_manifest(data: bytes) -> Manifest:
    """Read a manifest and check that it does not contradict itself.

    Raises:
        ManifestError: It is no manifest of this version, or a record points outside of what the others state.
    """
    try:
        table = json.loads(data)
        if not isinstance(table, dict) or table.get("schema") != MANIFEST_SCHEMA:
            raise ManifestError(f"schema is not {MANIFEST_SCHEMA}")
        algorithm = table["algorithm"]
        if algorithm not in ALGORITHMS:
            raise ManifestError(f"unknown digest algorithm {algorithm!r}")
        manifest = Manifest(
            key=WeightKey.parse(table["key"]),
            algorithm=cast(Algorithm, algorithm),
            created_s=float(table["created_s"]),
            files=tuple(FileRecord(*row) for row in table["files"]),
            blobs=tuple(
                BlobRecord(name, TensorSpec(dtype, tuple(shape)), file, offset, digest)
                for name, dtype, shape, file, offset, _, digest in table["blobs"]
            ),
            views=tuple(
                ViewRecord(name, kind, dtype, tuple(shape), tuple(stride), blob, offset)
                for name, kind, dtype, shape, stride, blob, offset in table["views"]
            ),
        )
        _check_files(manifest)
        _check_blobs(manifest)
        _check_views(manifest)
    except (KeyError, TypeError, ValueError, KeyFormatError, RecursionError) as fault:
        if isinstance(fault, ManifestError):
            raise
        raise ManifestError(f"malformed: {fault}") from fault
    return manifest


def _check_files(manifest: Manifest) -> None:
    count = len(manifest.files)
    for index, item in enumerate(manifest.files):
        if item.name != file_name(index, count):
            raise ManifestError(f"file {index} is called {item.name!r}, not {file_name(index, count)!r}")
        if not 0 < item.header_bytes <= item.nbytes:
            raise ManifestError(f"{item.name} states {item.header_bytes} header bytes of {item.nbytes}")


def _check_blobs(manifest: Manifest) -> None:
    """Blobs fill each file behind its header, in order, without gap or overlap."""
    at, position = 0, manifest.files[0].header_bytes if manifest.files else 0
    names: set[str] = set()
    for blob in manifest.blobs:
        while blob.file != at:
            if position != manifest.files[at].nbytes:
                raise ManifestError(
                    f"{manifest.files[at].name} ends at {manifest.files[at].nbytes}, data at {position}"
                )
            at += 1
            position = manifest.files[at].header_bytes if at < len(manifest.files) else 0
            if at >= len(manifest.files):
                raise ManifestError(f"tensor {blob.name!r} lies in file {blob.file} of {len(manifest.files)}")
        if blob.offset != position or min(blob.spec.shape, default=0) < 0:
            raise ManifestError(f"tensor {blob.name!r} begins at {blob.offset}, not {position}")
        names.add(blob.name)
        position += blob.spec.nbytes
    if manifest.files and (at != len(manifest.files) - 1 or position != manifest.files[at].nbytes):
        raise ManifestError("the tensors do not fill the files")
    if len(names) != len(manifest.blobs):
        raise ManifestError("a stored tensor is listed twice")


def _check_views(manifest: Manifest) -> None:
    """Views stay within their blobs and lie on their items."""
    for view in manifest.views:
        if view.kind not in KINDS:
            raise ManifestError(f"tensor {view.name!r} is of unknown kind {view.kind!r}")
        if not 0 <= view.blob < len(manifest.blobs) or len(view.shape) != len(view.stride):
            raise ManifestError(f"tensor {view.name!r} names no stored tensor")
        if min(view.shape, default=0) < 0 or min(view.stride, default=0) < 0 or view.offset < 0:
            raise ManifestError(f"tensor {view.name!r} has a negative size, stride or offset")
        blob = manifest.blobs[view.blob]
        item = ITEM_BYTES[view.dtype]
        if view.offset % item or view.offset + view.span_bytes > blob.spec.nbytes:
            raise ManifestError(f"tensor {view.name!r} reaches outside of {blob.name!r}")
        if (blob.offset + view.offset) % item:
            raise ManifestError(f"tensor {view.name!r} does not lie on its items")
    if len({view.name for view in manifest.views}) != len(manifest.views):
        raise ManifestError("a tensor is listed twice")


def dump_ready(manifest_bytes: bytes, key: WeightKey) -> bytes:
    """READY.json: the last file of a publication; states the digest of the manifest."""
    table = {
        "schema": READY_SCHEMA,
        "key_digest": key.digest,
        "manifest_nbytes": len(manifest_bytes),
        "manifest_digest": digest_bytes("sha256", manifest_bytes),
    }
    return (json.dumps(table) + "\n").encode("ascii")


def check_ready(data: bytes, manifest_bytes: bytes, digest: str) -> str | None:
    """None where READY.json states this manifest and this key; else what is wrong."""
    try:
        table = json.loads(data)
    except ValueError:
        return "READY.json is no JSON"
    if not isinstance(table, Mapping) or table.get("schema") != READY_SCHEMA:
        return f"READY.json is not of schema {READY_SCHEMA}"
    if table.get("key_digest") != digest:
        return f"READY.json is that of artifact {str(table.get('key_digest'))[:12]}"
    if table.get("manifest_digest") != digest_bytes("sha256", manifest_bytes):
        return "READY.json states another manifest"
    return None
