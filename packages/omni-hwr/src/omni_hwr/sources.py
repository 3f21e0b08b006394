"""Fingerprints of source files, with a cache of digests in the store: a second start reads no source byte.

A record is trusted while the file's inode, device, size, times and symlink target are those it was made for. A file
whose name in a Hub cache is its own digest is trusted by that name and never read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from omni_hwr import fsio
from omni_hwr.config import Progress, ProgressCallback, StoreConfig
from omni_hwr.digests import digest_bytes, digest_range
from omni_hwr.domain import Domain
from omni_hwr.errors import SourceChangedError, StorageError, WeightStoreError
from omni_hwr.key import canonical_json
from omni_hwr.locks import directory_lock

RECORD_SCHEMA = "omni-hwr/source/1"
_MAX_RECORD_BYTES = 64 << 10
_BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_CLOCK_TICK_S = 0.02
"""File times are those of the kernel's coarse clock: two writes within one tick leave the same time."""


@dataclass(frozen=True)
class SourceStamp:
    """What tells one state of a file from another without reading it."""

    path: str
    device: int
    inode: int
    nbytes: int
    mtime_ns: int
    ctime_ns: int
    link: str


def stamp_of(path: Path) -> SourceStamp:
    """The stamp of the file that ``path`` leads to, and where the link points if it is one."""
    with fsio.step("stat", str(path)):
        status = path.stat()
        link = os.readlink(path) if path.is_symlink() else ""
    absolute = os.path.abspath(path)
    return SourceStamp(
        absolute, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, link
    )


def blob_digest(path: Path) -> str | None:
    """Digest by which a Hub cache names this file's content (``snapshots/<revision>/…`` → ``blobs/<digest>``), or None.

    Source: the layout of huggingface_hub's cache, "Understand caching" in its documentation.
    """
    if not path.is_symlink():
        return None
    target = Path(os.path.normpath(path.parent / os.readlink(path)))
    if target.parent.name != "blobs" or not _BLOB.fullmatch(target.name) or "snapshots" not in path.parts:
        return None
    return f"{'sha256' if len(target.name) == 64 else 'git-sha1'}:{target.name}"


def fingerprint(
    files: Sequence[Path], open_domain: Callable[[], Domain], config: StoreConfig, report: ProgressCallback
) -> str:
    """Digest of the names (last part) and contents of ``files``, whatever their order and place.

    Raises:
        SourceChangedError: A file changed while it was being hashed.
        StorageError: A file cannot be read. A cache that cannot be used costs a direct hash and is no error.
    """
    digests: dict[Path, str] = {}
    unknown: list[Path] = []
    for path in files:
        trusted = blob_digest(path)
        if trusted is not None:
            digests[path] = trusted
        else:
            unknown.append(path)
    if unknown:
        digests.update(_cached(unknown, open_domain, config, report))
    rows = sorted([path.name, digests[path]] for path in files)
    return hashlib.sha256(canonical_json(rows).encode("ascii")).hexdigest()


def _cached(
    files: list[Path], open_domain: Callable[[], Domain], config: StoreConfig, report: ProgressCallback
) -> dict[Path, str]:
    found: dict[Path, str] = {}
    try:
        cache: int | None = open_domain().source_digests
    except WeightStoreError:
        cache = None
    missing = _look_up(files, cache, found)
    if not missing:
        return found
    with ExitStack() as stack:
        if cache is not None:
            try:
                # Whoever holds it hashes for all: a second process waits and then finds the records.
                stack.enter_context(directory_lock(cache, "the source digests", config.build_wait_s))
                missing = _look_up(missing, cache, found)
            except WeightStoreError:
                cache = None
        stamps = [stamp_of(path) for path in missing]
        total = sum(stamp.nbytes for stamp in stamps)
        with _threads(config.threads) as pool:
            hashed = pool.map(_hash_one, missing, stamps, [_adder(report, total)] * len(missing))
            for path, stamp, digest in zip(missing, stamps, hashed):
                found[path] = digest
                if cache is not None:
                    _store(cache, stamp, digest)
    return found


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="omni-hwr-source")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _adder(report: ProgressCallback, total: int) -> Callable[[int, str], None]:
    lock = threading.Lock()
    done = 0

    def add(nbytes: int, name: str) -> None:
        nonlocal done
        with lock:
            done += nbytes
            report(Progress("hashing", done, total, name))

    return add


def _hash_one(path: Path, stamp: SourceStamp, add: Callable[[int, str], None]) -> str:
    fresh_s = stamp.ctime_ns / 1e9 + _CLOCK_TICK_S - time.time()
    if 0 < fresh_s <= _CLOCK_TICK_S:
        # A write in the tick of the last one would leave no trace in the times: let the tick pass first.
        threading.Event().wait(fresh_s)
    with fsio.step("open", str(path)):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        digest = digest_range("blake3", fd, 0, stamp.nbytes, lambda nbytes: add(nbytes, path.name))
        grown = os.pread(fd, 1, stamp.nbytes)
    finally:
        os.close(fd)
    if digest is None or grown or stamp_of(path) != stamp:
        raise SourceChangedError(str(path))
    return digest


def _record_name(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest() + ".json"


def _look_up(files: list[Path], cache: int | None, found: dict[Path, str]) -> list[Path]:
    """Fill ``found`` from the cache; the files that it does not know."""
    if cache is None:
        return files
    missing = []
    for path in files:
        digest = _load(cache, stamp_of(path))
        if digest is None:
            missing.append(path)
        else:
            found[path] = digest
    return missing


def _load(cache: int, stamp: SourceStamp) -> str | None:
    """The digest on record for exactly this stamp; None where there is none or the record is damaged."""
    try:
        data = fsio.read_small(_record_name(stamp.path), cache, _MAX_RECORD_BYTES)
        table = json.loads(data or b"")
        body = {name: value for name, value in table.items() if name != "checksum"}
        if table["checksum"] != digest_bytes("blake3", canonical_json(body).encode("ascii")):
            return None
        if body["schema"] != RECORD_SCHEMA or body["stamp"] != asdict(stamp):
            return None
        return str(body["digest"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _store(cache: int, stamp: SourceStamp, digest: str) -> None:
    body: dict[str, object] = {"schema": RECORD_SCHEMA, "stamp": asdict(stamp), "digest": digest}
    try:
        record = {**body, "checksum": digest_bytes("blake3", canonical_json(body).encode("ascii"))}
        fsio.replace_file(_record_name(stamp.path), json.dumps(record).encode("ascii"), cache)
    except (StorageError, OSError, ValueError):
        # The digest is known; only the next start has to take it again.
        return
