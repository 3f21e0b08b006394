"""The manifest of an artifact: what is in which file, and what the module's tensors are. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import msgspec

from omni_hwr.digests import Algorithm, digest_bytes
from omni_hwr.dtypes import ITEM_BYTES
from omni_hwr.errors import KeyFormatError
from omni_hwr.key import WeightKey
from omni_hwr.layout import build_header, file_name, nbytes_of

MANIFEST_SCHEMA: Literal["omni-hwr/manifest/1"] = "omni-hwr/manifest/1"
READY_SCHEMA: Literal["omni-hwr/ready/1"] = "omni-hwr/ready/1"
MAX_MANIFEST_BYTES = 256 << 20
"""A longer manifest is refused unread."""

Kind = Literal["tensor", "parameter", "buffer", "transient"]
"""What a view is to its module; ``transient`` is a non-persistent buffer, ``tensor`` belongs to no module."""


class ManifestError(ValueError):
    """A manifest that contradicts itself; the reader turns it into a denial."""


class FileRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One payload file: name, size, bytes before its data, and digest."""

    name: str
    nbytes: int
    header_bytes: int
    digest: str


class BlobRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One tensor as it lies in payload file number ``file``, dense and contiguous."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: int
    offset: int
    nbytes: int
    digest: str


class ViewRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
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
        """Bytes from the view's first item to behind its last, strides included; -1 where that makes no sense."""
        items = 1
        empty = False
        for size, step in zip(self.shape, self.stride):
            if size < 0 or step < 0:
                return -1
            empty = empty or size == 0
            items += (size - 1) * step
        return 0 if empty else items * ITEM_BYTES.get(self.dtype, -1)


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    """The manifest file's own form."""

    schema: Literal["omni-hwr/manifest/1"]
    key: dict[str, object]
    algorithm: Algorithm
    created_s: float
    files: tuple[FileRecord, ...]
    blobs: tuple[BlobRecord, ...]
    views: tuple[ViewRecord, ...]


_DECODER = msgspec.json.Decoder(_Table)


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
        return build_header([(b.name, b.dtype, b.shape, b.nbytes) for b in self.blobs if b.file == index])

    @cached_property
    def content_digest(self) -> str:
        """Digest of the tensors alone: the same for the same content, whatever the files, the time, the key."""
        blobs = sorted((b.name, b.dtype, b.shape, b.digest) for b in self.blobs)
        names = [blob.name for blob in self.blobs]
        views = sorted((v.name, v.kind, v.dtype, v.shape, v.stride, names[v.blob], v.offset) for v in self.views)
        return hashlib.sha256(msgspec.json.encode([blobs, views])).hexdigest()

    def dump(self) -> bytes:
        """The manifest as JSON, one tensor a line."""
        head = {
            "schema": MANIFEST_SCHEMA,
            "key": self.key.content,
            "algorithm": self.algorithm,
            "created_s": self.created_s,
        }
        text = msgspec.json.encode(head)[:-1]
        tables: tuple[tuple[bytes, Sequence[msgspec.Struct]], ...] = (
            (b"files", self.files),
            (b"blobs", self.blobs),
            (b"views", self.views),
        )
        for name, rows in tables:
            text += b',\n"' + name + b'":[\n' + b",\n".join(map(msgspec.json.encode, rows)) + b"]"
        return text + b"}\n"


def parse_manifest(data: bytes) -> Manifest:
    """Read a manifest and check that it does not contradict itself.

    Raises:
        ManifestError: It is no manifest of this version, or a record points outside of what the others state.
    """
    try:
        table = _DECODER.decode(data)
        key = WeightKey.parse(table.key)
    except (msgspec.MsgspecError, KeyFormatError, UnicodeDecodeError, RecursionError) as fault:
        raise ManifestError(f"malformed: {fault}") from fault
    manifest = Manifest(key, table.algorithm, table.created_s, table.files, table.blobs, table.views)
    _check_files(manifest)
    _check_blobs(manifest)
    _check_views(manifest)
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
    files = iter(enumerate(manifest.files))
    at, position, end = -1, 0, 0
    for blob in manifest.blobs:
        while blob.file != at:
            index, item = next(files, (None, None))
            if index is None or item is None or position != end:
                raise ManifestError(f"tensor {blob.name!r} does not follow the one before it")
            at, position, end = index, item.header_bytes, item.nbytes
        if blob.offset != position or blob.nbytes != nbytes_of(blob.dtype, blob.shape):
            raise ManifestError(f"tensor {blob.name!r} does not follow the one before it, or its size is wrong")
        position += blob.nbytes
    rest = list(files)
    if position != end or any(item.header_bytes != item.nbytes for _, item in rest):
        raise ManifestError("the tensors do not fill the files")
    if len({blob.name for blob in manifest.blobs}) != len(manifest.blobs):
        raise ManifestError("a stored tensor is listed twice")


def _check_views(manifest: Manifest) -> None:
    """Views stay within their blobs and lie on their items."""
    blobs = manifest.blobs
    for view in manifest.views:
        if not 0 <= view.blob < len(blobs) or len(view.shape) != len(view.stride):
            raise ManifestError(f"tensor {view.name!r} names no stored tensor")
        blob, span = blobs[view.blob], view.span_bytes
        if span < 0 or view.offset < 0:
            raise ManifestError(f"tensor {view.name!r} has a negative size, stride or offset, or no known data type")
        if view.offset + span > blob.nbytes:
            raise ManifestError(f"tensor {view.name!r} reaches outside of {blob.name!r}")
        item = ITEM_BYTES[view.dtype]
        if view.offset % item or (span and blob.offset % item):
            raise ManifestError(f"tensor {view.name!r} does not lie on its items")
    if len({view.name for view in manifest.views}) != len(manifest.views):
        raise ManifestError("a tensor is listed twice")


class _Ready(msgspec.Struct, forbid_unknown_fields=True):
    schema: Literal["omni-hwr/ready/1"]
    key_digest: str
    manifest_digest: str


def dump_ready(manifest_bytes: bytes, key: WeightKey) -> bytes:
    """READY.json: the last file of a publication; states the digest of the manifest."""
    return msgspec.json.encode(_Ready(READY_SCHEMA, key.digest, digest_bytes("sha256", manifest_bytes))) + b"\n"


def check_ready(data: bytes, manifest_bytes: bytes, digest: str) -> str | None:
    """None where READY.json states this manifest and this key; else what is wrong."""
    try:
        ready = msgspec.json.decode(data, type=_Ready)
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        return f"READY.json is malformed: {fault}"
    if ready.key_digest != digest:
        return f"READY.json is that of artifact {ready.key_digest[:12]}"
    if ready.manifest_digest != digest_bytes("sha256", manifest_bytes):
        return "READY.json states another manifest"
    return None
