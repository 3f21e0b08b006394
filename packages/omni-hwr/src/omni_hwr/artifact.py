"""Opening a published artifact: every check but the payload's bytes, in the order from outside to inside."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Self

from omni_hwr import fsio
from omni_hwr.config import Verify
from omni_hwr.digests import derive_digest, digest_ranges
from omni_hwr.domain import Domain
from omni_hwr.errors import BusyError, DeniedError, StorageError
from omni_hwr.key import WeightKey
from omni_hwr.locks import holder_of, poll, try_lock
from omni_hwr.manifest import MAX_MANIFEST_BYTES, Manifest, ManifestError, check_ready, parse_manifest

READY = "READY.json"
MANIFEST = "manifest.json"
DENIED = "DENIED.json"
MAX_READY_BYTES = 4096


class Artifact:
    """A checked artifact, open and locked against removal until :meth:`close`.

    Attributes:
        digest: Digest of its key, its name in the store.
        manifest: What it holds.
        dir_fd: Its directory.
        fds: Its payload files, in the manifest's order.
    """

    def __init__(self, digest: str, dir_fd: int, manifest: Manifest, fds: tuple[int, ...]) -> None:
        self.digest = digest
        self.dir_fd = dir_fd
        self.manifest = manifest
        self.fds = fds
        self._is_open = True

    def close(self) -> None:
        """Let go of the lock and the files; what is mapped stays mapped. Harmless when repeated."""
        if self._is_open:
            self._is_open = False
            for fd in (*self.fds, self.dir_fd):
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def open_locked(domain: Domain, digest: str, limit_s: float) -> int | None:
    """The artifact's directory under a shared lock, or None where there is none.

    Raises:
        DeniedError: The name is a symlink or no directory.
        BusyError: A removal held the artifact for ``limit_s``.
    """
    fd: int | None = None

    def attempt() -> bool:
        nonlocal fd
        try:
            fd = fsio.open_dir(digest, domain.artifacts)
        except FileNotFoundError:
            fd = None
            return True
        except OSError as fault:
            if fault.errno in (errno.ELOOP, errno.ENOTDIR):
                raise DeniedError(digest, "symlink", "its name in the store is a symlink or no directory") from fault
            raise StorageError("open", digest, fault.errno) from fault
        locked = False
        try:
            locked = try_lock(fd, shared=True) and is_same(fd, digest, domain.artifacts)
        finally:
            if not locked:
                os.close(fd)
        return locked

    if not poll(attempt, limit_s):
        try:
            holder = holder_of(os.stat(digest, dir_fd=domain.artifacts, follow_symlinks=False))
        except FileNotFoundError:
            return None
        raise BusyError(f"artifact {digest[:12]}", holder, limit_s)
    return fd


def is_same(fd: int, name: str, dir_fd: int) -> bool:
    """Whether ``name`` still leads to the directory that ``fd`` is."""
    try:
        named = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    own = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)


def check(dir_fd: int, digest: str, key: WeightKey | None) -> Artifact:
    """Check the artifact in the directory ``dir_fd``, which the result then owns.

    Raises:
        DeniedError: A check failed; ``reason`` says which. ``dir_fd`` stays open.
        StorageError: The system refuses a step; nothing is said about the artifact.
    """
    _check_directory(dir_fd, digest)
    listing = set(fsio.names_in(dir_fd, digest))
    if DENIED in listing:
        raise DeniedError(digest, "denied", "another process denied it and could not move it to quarantine")
    ready = _read(READY, dir_fd, digest, MAX_READY_BYTES)
    manifest_bytes = _read(MANIFEST, dir_fd, digest, MAX_MANIFEST_BYTES)
    problem = check_ready(ready, manifest_bytes, digest)
    if problem is not None:
        raise DeniedError(digest, "ready", problem)
    try:
        manifest = parse_manifest(manifest_bytes)
    except ManifestError as fault:
        raise DeniedError(digest, "manifest", str(fault)) from fault
    if manifest.key.digest != digest or (key is not None and manifest.key != key):
        raise DeniedError(digest, "key", f"it holds {manifest.key.model} {manifest.key.component}, another key")
    expected = {READY, MANIFEST, *(item.name for item in manifest.files)}
    if listing != expected:
        odd = ", ".join(sorted(listing ^ expected)[:3])
        raise DeniedError(digest, "listing", f"its files are not those of the manifest: {odd}")
    fds: list[int] = []
    try:
        for index, item in enumerate(manifest.files):
            fds.append(_open_checked(item.name, dir_fd, digest))
            _check_payload(fds[-1], manifest, index, digest)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    return Artifact(digest, dir_fd, manifest, tuple(fds))


def _check_directory(dir_fd: int, digest: str) -> None:
    status = os.fstat(dir_fd)
    if status.st_uid != os.geteuid():
        raise DeniedError(digest, "owner", f"its directory belongs to user {status.st_uid}")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise DeniedError(digest, "mode", f"its directory has mode {stat.S_IMODE(status.st_mode):04o}")


def _open_checked(name: str, dir_fd: int, digest: str) -> int:
    try:
        fd = fsio.open_regular(name, dir_fd)
    except OSError as fault:
        if fault.errno == errno.ELOOP:
            raise DeniedError(digest, "symlink", f"{name} is a symlink") from fault
        if fault.errno in (errno.ENOENT, errno.ENXIO):
            raise DeniedError(digest, "listing", f"{name} is missing or no regular file") from fault
        raise StorageError("open", name, fault.errno) from fault
    status = os.fstat(fd)
    mode = stat.S_IMODE(status.st_mode)
    problem: tuple[str, str] | None = None
    if not stat.S_ISREG(status.st_mode):
        problem = ("listing", f"{name} is no regular file")
    elif status.st_uid != os.geteuid():
        problem = ("owner", f"{name} belongs to user {status.st_uid}")
    elif status.st_nlink != 1:
        problem = ("hardlink", f"{name} has {status.st_nlink} names; another one may change it")
    elif mode & ~fsio.FILE_MODE:
        problem = ("mode", f"{name} has mode {mode:04o}")
    if problem is not None:
        os.close(fd)
        raise DeniedError(digest, *problem)
    return fd


def _read(name: str, dir_fd: int, digest: str, limit_bytes: int) -> bytes:
    fd = _open_checked(name, dir_fd, digest)
    try:
        size = os.fstat(fd).st_size
        if size > limit_bytes:
            raise DeniedError(digest, "oversized", f"{name} has {size} bytes, {limit_bytes} are allowed")
        with fsio.step("read", name):
            data = os.pread(fd, size, 0)
            while len(data) < size and (more := os.pread(fd, size - len(data), len(data))):
                data += more
        return data
    finally:
        os.close(fd)


def _check_payload(fd: int, manifest: Manifest, index: int, digest: str) -> None:
    item = manifest.files[index]
    size = os.fstat(fd).st_size
    if size != item.nbytes:
        reason = "truncated" if size < item.nbytes else "listing"
        raise DeniedError(digest, reason, f"{item.name} has {size} bytes, the manifest states {item.nbytes}")
    header = manifest.header_of(index)
    with fsio.step("read", item.name):
        found = os.pread(fd, len(header), 0)
    if found != header or len(header) != item.header_bytes:
        raise DeniedError(digest, "header", f"the header of {item.name} is not that of the manifest")
    own = [blob.digest for blob in manifest.blobs if blob.file == index]
    if derive_digest(manifest.algorithm, header, own) != item.digest:
        raise DeniedError(digest, "header", f"the digest of {item.name} does not follow from its tensors' digests")


def check_bytes(artifact: Artifact, verify: Verify, threads: int, on_bytes: Callable[[int], None]) -> None:
    """Hash the payload where ``verify`` asks for it.

    Raises:
        DeniedError: A tensor's bytes are not those that were published; names the tensor.
    """
    if verify != "full":
        return
    manifest = artifact.manifest
    ranges = [(artifact.fds[blob.file], blob.offset, blob.nbytes) for blob in manifest.blobs]
    for blob, found in zip(manifest.blobs, digest_ranges(manifest.algorithm, ranges, threads, on_bytes)):
        if found != blob.digest:
            raise DeniedError(artifact.digest, "payload", f"the bytes of tensor {blob.name!r} are not those published")
