"""The store: publish once per node, lease many times."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch

from omni_hwr import fsio
from omni_hwr.artifact import Artifact
from omni_hwr.config import MapOptions, Progress, ProgressCallback, StoreConfig, Verify, ignore_progress
from omni_hwr.domain import Domain
from omni_hwr.errors import BusyError, ClosedError, ConflictError, DeniedError, KeyFormatError, MissingError
from omni_hwr.key import WeightKey, is_digest
from omni_hwr.lease import Lease, Source
from omni_hwr.locks import BuildLock, poll
from omni_hwr.manifest import Manifest
from omni_hwr.mapping import map_files
from omni_hwr.producer import MappingPayload, Payload, Producer, StreamPayload, StreamProducer
from omni_hwr.publish import content_of, publication
from omni_hwr.reader import open_checked
from omni_hwr.resolve import Mode, Resolution, resolve
from omni_hwr.sources import fingerprint
from omni_hwr.space import PrunePolicy, choose, clean, remove, summary, usages


@dataclass(frozen=True)
class Entry:
    """One artifact in a listing. ``key`` is None where its manifest cannot be read. Times are seconds since 1970."""

    digest: str
    key: WeightKey | None
    nbytes: int
    created_s: float
    used_s: float
    pinned: bool


class WeightStore:
    """A node-local store of immutable weights below one directory.

    Nothing is opened or created before the first use. One store may be used from many threads and by many processes
    at once; a forked child opens its own.

    Args:
        root: The store's directory, on a local file system; created with mode 0700.
        max_bytes: Limit of all artifacts together; short for the field of ``config``.
        config: All other settings.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, max_bytes: int | None = None, config: StoreConfig | None = None
    ) -> None:
        settings = config or StoreConfig()
        self.config = settings if max_bytes is None else replace(settings, max_bytes=max_bytes)
        self.root = Path(root)
        self._domain: Domain | None = None
        self._is_closed = False
        self._opening = threading.Lock()

    def _open(self) -> Domain:
        with self._opening:
            if self._is_closed:
                raise ClosedError(f"the store {self.root} is closed")
            if self._domain is None:
                with fsio.step("resolve", str(self.root)):
                    root = self.root.resolve()
                domain = Domain.open(root, self.config)
                try:
                    clean(domain, self.config.quarantine_bytes, self.config.lock_wait_s)
                except BaseException:
                    domain.close()
                    raise
                self._domain = domain
            return self._domain

    # ----------------------------------------------------------------------------------------------- reading

    def lease(self, key: WeightKey, *, verify: Verify = "structure", mapping: MapOptions | None = None) -> Lease | None:
        """The artifact of ``key``, checked, locked and mapped; None where there is none.

        Raises:
            DeniedError: A check failed; the artifact is in quarantine now.
            BusyError, StorageError: A lock was not to be had, or the system refused a step (``mmap``, for example).
        """
        return self._lease(key, "hit", verify, mapping or MapOptions(), ignore_progress)

    def _lease(
        self, key: WeightKey, source: Source, verify: Verify, mapping: MapOptions, report: ProgressCallback
    ) -> Lease | None:
        artifact = self._checked(key.digest, key, verify, report)
        if artifact is None:
            return None
        try:
            mapped = map_files(artifact.manifest, artifact.fds, mapping)
            with fsio.step("utime", key.digest):
                os.utime(artifact.dir_fd)
        except BaseException:
            artifact.close()
            raise
        return Lease(artifact, mapped, source)

    def _checked(self, digest: str, key: WeightKey | None, verify: Verify, report: ProgressCallback) -> Artifact | None:
        return open_checked(self._open(), self.config, digest, key, verify, report)

    def verify(self, key: WeightKey | str, progress: ProgressCallback = ignore_progress) -> Manifest:
        """Check everything about an artifact, its bytes included; its manifest.

        Raises:
            MissingError: There is none.
            DeniedError: A check failed; the artifact is in quarantine now.
        """
        digest = _digest_of(key)
        artifact = self._checked(digest, key if isinstance(key, WeightKey) else None, "full", progress)
        if artifact is None:
            raise MissingError(digest)
        with artifact:
            return artifact.manifest

    def manifest(self, key: WeightKey | str) -> Manifest:
        """What an artifact holds, after every check but that of its bytes.

        Raises:
            MissingError: There is none.
            DeniedError: A check failed; the artifact is in quarantine now.
        """
        digest = _digest_of(key)
        expected = key if isinstance(key, WeightKey) else None
        artifact = self._checked(digest, expected, "structure", ignore_progress)
        if artifact is None:
            raise MissingError(digest)
        with artifact:
            return artifact.manifest

    # -------------------------------------------------------------------------------------------- publishing

    def publish(
        self, key: WeightKey, tensors: Mapping[str, torch.Tensor], progress: ProgressCallback = ignore_progress
    ) -> Manifest:
        """Publish ``tensors`` under ``key``; harmless where the same content is published already.

        Raises:
            ConflictError: Other content is published under this key; it stays.
            SpaceError, StorageError, TensorError, BusyError: Nothing was published, nothing is left behind.
        """
        payload = MappingPayload(tensors)
        domain = self._open()
        lock = self._build_lock(domain, key, progress)
        try:
            published = self._published(key)
            if published is None:
                with publication(domain, key, payload, self.config, progress) as made:
                    published = made.manifest if made.is_ours else self._published(key) or made.manifest
                    offered = made.manifest.content_digest
            else:
                offered = content_of(key, payload, replace(self.config, algorithm=published.algorithm))
        finally:
            lock.release()
        if offered != published.content_digest:
            raise ConflictError(key.digest, published.content_digest, offered)
        return published

    def _published(self, key: WeightKey) -> Manifest | None:
        try:
            artifact = self._checked(key.digest, key, "structure", ignore_progress)
        except DeniedError:
            return None
        if artifact is None:
            return None
        with artifact:
            return artifact.manifest

    def get_or_build(
        self,
        key: WeightKey,
        producer: Producer,
        *,
        progress: ProgressCallback = ignore_progress,
        verify: Verify = "structure",
        mapping: MapOptions | None = None,
    ) -> Lease:
        """Lease the artifact of ``key``, building it first where there is none; ``lease.source`` says which.

        Of all processes that ask at once one builds and the others wait for it, at most ``config.build_wait_s``. A
        damaged artifact is replaced. Exceptions of ``producer`` and of ``progress`` pass through, with nothing
        published and nothing left behind.

        Raises:
            BusyError: Another builder took longer than the wait; the message names it.
            SpaceError, StorageError, CoverageError, TensorError: The build failed.
        """
        options = mapping or MapOptions()
        lease = self._lease_or_none(key, "hit", verify, options, progress)
        if lease is not None:
            return lease
        domain = self._open()
        lock = self._build_lock(domain, key, progress)
        try:
            lease = self._lease_or_none(key, "joined", verify, options, progress)
            if lease is not None:
                return lease
            payload: Payload = (
                StreamPayload(producer) if isinstance(producer, StreamProducer) else MappingPayload(producer())
            )
            with publication(domain, key, payload, self.config, progress) as made:
                lease = self._lease(key, "built", "structure", options, ignore_progress)
        finally:
            lock.release()
        if lease is None:
            raise MissingError(key.digest)
        if not made.is_ours and lease.content_digest != made.manifest.content_digest:
            lease.close()
            raise ConflictError(key.digest, lease.content_digest, made.manifest.content_digest)
        return lease

    def _lease_or_none(
        self, key: WeightKey, source: Source, verify: Verify, mapping: MapOptions, report: ProgressCallback
    ) -> Lease | None:
        try:
            return self._lease(key, source, verify, mapping, report)
        except DeniedError:
            return None

    def _build_lock(self, domain: Domain, key: WeightKey, report: ProgressCallback) -> BuildLock:
        lock = BuildLock(domain.locks, key.digest)
        if lock.try_acquire():
            return lock
        holder = lock.holder()
        report(Progress("waiting", 0, 0, holder))
        started = time.monotonic()
        if not poll(lock.try_acquire, self.config.build_wait_s):
            raise BusyError(f"the build of {key.digest[:12]}", lock.holder(), time.monotonic() - started)
        return lock

    def resolve(
        self,
        key: WeightKey,
        *,
        mode: Mode,
        producer: Producer | None = None,
        progress: ProgressCallback = ignore_progress,
        verify: Verify = "structure",
        mapping: MapOptions | None = None,
    ) -> Resolution:
        """What a loader asks; see :func:`omni_hwr.resolve.resolve`."""
        return resolve(self, key, mode, producer, progress, verify, mapping or MapOptions())

    def fingerprint(
        self, files: Iterable[str | os.PathLike[str]], *, progress: ProgressCallback = ignore_progress
    ) -> str:
        """Digest of source files' names and content; see :func:`omni_hwr.sources.fingerprint`."""
        return fingerprint([Path(item) for item in files], self._open, self.config, progress)

    # ------------------------------------------------------------------------------------------------- space

    def entries(self) -> list[Entry]:
        """Every published artifact, most recently used first."""
        domain = self._open()
        found = [
            Entry(item.digest, _key_of(domain, item.digest), item.nbytes, item.created_s, item.used_s, item.pinned)
            for item in usages(domain)
        ]
        return sorted(found, key=lambda entry: -entry.used_s)

    def prune(self, policy: PrunePolicy, *, dry_run: bool = False) -> list[Entry]:
        """Remove what ``policy`` does not keep, never what is leased or pinned; the entries that went, or would go.

        A dry run does not know who will have a lease, so it may name more than a later run removes.
        """
        domain = self._open()
        listed = {entry.digest: entry for entry in self.entries()}
        removed: list[Entry] = []
        for victim in choose(usages(domain), policy, time.time()):
            entry = listed.get(victim.digest)
            if entry is not None and (
                dry_run or remove(domain, victim.digest, self.config.lock_wait_s, if_unpinned=True)
            ):
                removed.append(entry)
        return removed

    def remove(self, key: WeightKey | str) -> bool:
        """Remove an artifact, pinned or not; False where somebody leases it or there is none."""
        return remove(self._open(), _digest_of(key), self.config.lock_wait_s, if_unpinned=False)

    def pin(self, key: WeightKey | str) -> None:
        """Keep an artifact from being pruned, in this and every later process.

        Raises:
            MissingError: There is none.
        """
        domain, digest = self._open(), _digest_of(key)
        with domain.lock(self.config.lock_wait_s):
            if digest not in fsio.names_in(domain.artifacts, "artifacts"):
                raise MissingError(digest)
            if digest not in fsio.names_in(domain.pins, "pins"):
                fsio.create_file(digest, b"", domain.pins)

    def unpin(self, key: WeightKey | str) -> None:
        """Let an artifact be pruned again; harmless where it was not pinned."""
        domain = self._open()
        with domain.lock(self.config.lock_wait_s):
            fsio.remove_file(_digest_of(key), domain.pins)

    def close(self) -> None:
        """Close the store's directories; leases stay open. Harmless when repeated."""
        with self._opening:
            domain, self._domain = self._domain, None
            self._is_closed = True
        if domain is not None:
            domain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _digest_of(key: WeightKey | str) -> str:
    if isinstance(key, WeightKey):
        return key.digest
    if not is_digest(key):
        raise KeyFormatError(f"{key!r} is no digest of 64 hexadecimal letters")
    return key


def _key_of(domain: Domain, digest: str) -> WeightKey | None:
    table = summary(domain, digest)
    try:
        return None if table is None else WeightKey.parse(table.get("key"))
    except KeyFormatError:
        return None
