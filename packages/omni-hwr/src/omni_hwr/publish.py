"""One publication: reserve, write, sync, manifest, READY, rename. Until the rename no reader can see any of it."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from omni_hwr import fsio
from omni_hwr.artifact import MANIFEST, READY
from omni_hwr.config import Progress, ProgressCallback, StoreConfig
from omni_hwr.digests import digest_bytes
from omni_hwr.domain import Domain
from omni_hwr.errors import SpaceError, StorageError
from omni_hwr.key import WeightKey
from omni_hwr.layout import Placement, Plan, plan_layout
from omni_hwr.locks import try_lock
from omni_hwr.manifest import BlobRecord, Manifest, dump_ready
from omni_hwr.payload import PayloadWriter
from omni_hwr.producer import MappingPayload, Payload, TensorSink
from omni_hwr.space import PrunePolicy, choose, detach, reserved_bytes, usages
from omni_hwr.tensors import raw_bytes

OVERHEAD_BYTES = 4096
"""READY and the directory's own entry; the manifest's size is estimated by tensor."""

_BYTES_PER_TENSOR = 512


@dataclass(frozen=True)
class Published:
    """What was written, and whether it is what stands under the key now or another publication came first."""

    manifest: Manifest
    is_ours: bool


@contextmanager
def publication(
    domain: Domain, key: WeightKey, payload: Payload, config: StoreConfig, report: ProgressCallback
) -> Iterator[Published]:
    """Publish ``payload`` under ``key``, with the artifact locked against removal in the block.

    When another publication of the same key came first, its artifact stays and nothing of this one is left; the
    caller compares the contents.

    Raises:
        SpaceError, StorageError, CoverageError, TensorError: Nothing was published and nothing is left behind.
    """
    plan = plan_layout(payload.specs, config.shard_bytes)
    needed = plan.nbytes + OVERHEAD_BYTES + _BYTES_PER_TENSOR * len(plan.placements)
    name, fd = _reserve(domain, key, needed, config)
    kept = False
    try:
        report(Progress("reserved", 0, plan.nbytes))
        manifest = _fill(fd, key, payload, plan, config, report)
        with domain.lock(config.lock_wait_s):
            # Exclusive to shared is no single step, and a cleaner might come between.
            fcntl.flock(fd, fcntl.LOCK_SH)
        kept = _commit(domain, name, key)
        if kept:
            report(Progress("renamed", plan.nbytes, plan.nbytes))
            _settle(domain, name, key)
        report(Progress("published", plan.nbytes, plan.nbytes))
        yield Published(manifest, kept)
    finally:
        try:
            fsio.remove_tree(name, domain.staging)
        finally:
            os.close(fd)


def _reserve(domain: Domain, key: WeightKey, needed: int, config: StoreConfig) -> tuple[str, int]:
    """Check the limits and make the staging folder, whose name holds the reservation, in one locked step."""
    if config.max_artifact_bytes is not None and needed > config.max_artifact_bytes:
        raise SpaceError(
            "the artifact is over the limit of one", needed_bytes=needed, available_bytes=config.max_artifact_bytes
        )
    trash: list[str] = []
    name = f"{key.digest}.{needed}.{secrets.token_hex(8)}"
    fd: int | None = None
    try:
        with domain.lock(config.lock_wait_s):
            _make_room(domain, needed, config, trash)
            with fsio.step("mkdir", name):
                os.mkdir(name, fsio.DIR_MODE, dir_fd=domain.staging)
            try:
                with fsio.step("open", name):
                    fd = fsio.open_dir(name, domain.staging)
                try_lock(fd, shared=False)
            except BaseException:
                fsio.remove_tree(name, domain.staging)
                raise
    finally:
        for old in trash:
            fsio.remove_tree(old, domain.staging)
    return name, fd


def _make_room(domain: Domain, needed: int, config: StoreConfig, trash: list[str]) -> None:
    """Refuse, or detach least recently used artifacts into ``trash``, until ``needed`` bytes fit the limits."""
    entries = usages(domain)
    used = sum(item.nbytes for item in entries) + reserved_bytes(domain)
    store_left = None if config.max_bytes is None else config.max_bytes - used
    disk_left = domain.free_bytes() - config.reserve_bytes
    short = max(needed - disk_left, 0 if store_left is None else needed - store_left)
    if short > 0 and config.prune_to_fit and (config.max_bytes is None or needed <= config.max_bytes):
        for victim in choose(entries, PrunePolicy(max_bytes=0), time.time()):
            if short <= 0:
                break
            name = detach(domain, victim.digest)
            if name is not None:
                trash.append(name)
                short -= victim.nbytes
        while short > 0 and trash:
            # All that may go is not enough: nothing goes.
            name = trash.pop()
            with fsio.step("rename", name):
                os.rename(name, name.split(".")[0], src_dir_fd=domain.staging, dst_dir_fd=domain.artifacts)
    if short <= 0:
        return
    if store_left is not None and needed > store_left:
        raise SpaceError("the store is at its limit", needed_bytes=needed, available_bytes=max(store_left, 0))
    raise SpaceError("the disk is too full", needed_bytes=needed, available_bytes=max(disk_left, 0), errno=errno.ENOSPC)


def _fill(
    fd: int, key: WeightKey, payload: Payload, plan: Plan, config: StoreConfig, report: ProgressCallback
) -> Manifest:
    """Write and sync everything that the artifact's directory holds."""
    written = 0

    def on_written(nbytes: int, name: str) -> None:
        nonlocal written
        written += nbytes
        report(Progress("writing", written, plan.nbytes, name))

    def on_synced(name: str) -> None:
        report(Progress("synced", written, plan.nbytes, name))

    with PayloadWriter(fd, plan, config.algorithm, config.threads, on_written, on_synced) as writer:
        payload.write(TensorSink(writer, payload.specs))
        files, digests = writer.finish()
    blobs = tuple(_record(item, digest) for item, digest in zip(plan.placements, digests))
    views = payload.views({blob.name: index for index, blob in enumerate(blobs)})
    manifest = Manifest(key, config.algorithm, time.time(), files, blobs, views)
    data = manifest.dump()
    fsio.create_file(MANIFEST, data, fd)
    report(Progress("manifest", plan.nbytes, plan.nbytes))
    fsio.create_file(READY, dump_ready(data, key), fd)
    fsio.sync(fd, "staging")
    report(Progress("ready", plan.nbytes, plan.nbytes))
    return manifest


def _commit(domain: Domain, name: str, key: WeightKey) -> bool:
    """Rename into place; False where another publication came first."""
    try:
        os.rename(name, key.digest, src_dir_fd=domain.staging, dst_dir_fd=domain.artifacts)
    except OSError as fault:
        if fault.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise StorageError("rename", name, fault.errno) from fault
    return True


def _settle(domain: Domain, name: str, key: WeightKey) -> None:
    """Sync the directories that the rename changed; where that fails, take the artifact back out of sight."""
    try:
        fsio.sync(domain.artifacts, "artifacts")
        fsio.sync(domain.staging, "staging")
    except OSError:
        with fsio.step("rename", key.digest):
            os.rename(key.digest, name, src_dir_fd=domain.artifacts, dst_dir_fd=domain.staging)
        raise


def _record(item: Placement, digest: str) -> BlobRecord:
    spec = item.spec
    return BlobRecord(item.name, spec.dtype, spec.shape, item.file, item.offset, spec.nbytes, digest)


def content_of(key: WeightKey, payload: MappingPayload, config: StoreConfig) -> str:
    """The content digest that a publication of ``payload`` would have, without writing anything."""
    plan = plan_layout(payload.specs, config.shard_bytes)
    found = {blob.name: digest_bytes(config.algorithm, raw_bytes(blob.read())) for blob in payload.blobs}
    blobs = tuple(_record(p, found[p.name]) for p in plan.placements)
    views = payload.views({blob.name: index for index, blob in enumerate(blobs)})
    return Manifest(key, config.algorithm, 0.0, (), blobs, views).content_digest
