"""What is in the store and what may go: entries, the choice of what to prune, removal and quarantine."""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from omni_hwr import fsio
from omni_hwr.artifact import DENIED, MANIFEST, READY, is_same
from omni_hwr.domain import Domain
from omni_hwr.errors import StorageError
from omni_hwr.key import is_digest
from omni_hwr.locks import remove_free_lock, try_lock


@dataclass(frozen=True)
class Usage:
    """An artifact as far as pruning needs to know it. Times are seconds since 1970."""

    digest: str
    nbytes: int
    created_s: float
    used_s: float
    pinned: bool


@dataclass(frozen=True)
class PrunePolicy:
    """What to keep; whatever breaks any of the limits goes, least recently used first.

    Attributes:
        max_age_s: Keep what was leased within this time.
        max_bytes: Keep at most this many bytes.
        max_count: Keep at most this many artifacts.
    """

    max_age_s: float | None = None
    max_bytes: int | None = None
    max_count: int | None = None

    def __post_init__(self) -> None:
        for value in (self.max_age_s, self.max_bytes, self.max_count):
            if value is not None and value < 0:
                raise ValueError("a prune limit is negative")


def choose(entries: Iterable[Usage], policy: PrunePolicy, now_s: float) -> list[Usage]:
    """Artifacts to remove by ``policy``, least recently used first. Pinned ones count but never go. Pure."""
    kept = sorted(entries, key=lambda item: (item.used_s, item.digest))
    total, count = sum(item.nbytes for item in kept), len(kept)
    victims: list[Usage] = []
    for item in kept:
        too_old = policy.max_age_s is not None and now_s - item.used_s > policy.max_age_s
        too_big = policy.max_bytes is not None and total > policy.max_bytes
        too_many = policy.max_count is not None and count > policy.max_count
        if item.pinned or not (too_old or too_big or too_many):
            continue
        victims.append(item)
        total -= item.nbytes
        count -= 1
    return victims


def usages(domain: Domain) -> list[Usage]:
    """Every artifact's size and times; one that vanishes meanwhile is left out."""
    found: list[Usage] = []
    names = sorted(filter(is_digest, fsio.names_in(domain.artifacts, "artifacts")))
    pins = set(fsio.names_in(domain.pins, "pins"))
    for name in names:
        try:
            status = os.stat(name, dir_fd=domain.artifacts, follow_symlinks=False)
            nbytes = fsio.tree_bytes(name, domain.artifacts)
            created = os.stat(f"{name}/{READY}", dir_fd=domain.artifacts, follow_symlinks=False).st_mtime
        except OSError as fault:
            if isinstance(fault, (FileNotFoundError, NotADirectoryError)):
                continue
            raise StorageError("stat", name, fault.errno) from fault
        found.append(Usage(name, nbytes, created, status.st_mtime, name in pins))
    return found


def reserved_bytes(domain: Domain) -> int:
    """What builders under way have announced: the size stands in the name of the staging folder."""
    total = 0
    for name in fsio.names_in(domain.staging, "staging"):
        parts = name.split(".")
        if len(parts) == 3 and parts[1].isdigit():
            total += int(parts[1])
    return total


def detach(domain: Domain, digest: str) -> str | None:
    """Take an unleased artifact out of sight; the name in staging to be deleted, or None where it is leased or gone.

    To be called with the store's lock held: nothing else moves an artifact, and a reader that opened it before finds
    its lock taken or its name gone.
    """
    try:
        fd = fsio.open_dir(digest, domain.artifacts)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        fd = None
    except OSError as fault:
        raise StorageError("open", digest, fault.errno) from fault
    try:
        if fd is not None and not try_lock(fd, shared=False):
            return None
        trash = f"{digest}.trash.{secrets.token_hex(8)}"
        with fsio.step("rename", digest):
            os.rename(digest, trash, src_dir_fd=domain.artifacts, dst_dir_fd=domain.staging)
        fsio.sync(domain.artifacts, "artifacts")
    finally:
        if fd is not None:
            os.close(fd)
    return trash


def remove(domain: Domain, digest: str, lock_wait_s: float, *, if_unpinned: bool) -> bool:
    """Remove an artifact and its pin; False where somebody leases it, it is gone, or it is pinned and that counts."""
    with domain.lock(lock_wait_s):
        if if_unpinned and digest in fsio.names_in(domain.pins, "pins"):
            return False
        trash = detach(domain, digest)
        if trash is not None:
            fsio.remove_file(digest, domain.pins)
    if trash is None:
        return False
    fsio.remove_tree(trash, domain.staging)
    return True


def quarantine(domain: Domain, digest: str, dir_fd: int | None, budget_bytes: int, lock_wait_s: float) -> None:
    """Deny the artifact in ``dir_fd`` to every process, then move it to quarantine and keep that within its budget.

    The first step takes READY away, which needs no space and no other directory; the second may be finished by any
    later process. ``dir_fd`` is None where the name is no directory. Does nothing when the name leads elsewhere now.
    """
    with domain.lock(lock_wait_s):
        if dir_fd is not None:
            if not is_same(dir_fd, digest, domain.artifacts):
                return
            # Where this fails, for instance in another user's directory, the second step still denies it.
            with suppress(OSError):
                os.rename(READY, DENIED, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
                os.fsync(dir_fd)
        elif _is_directory(domain, digest):
            return
        target = f"{digest}.{time.time_ns()}.{secrets.token_hex(4)}"
        with fsio.step("rename", digest):
            try:
                os.rename(digest, target, src_dir_fd=domain.artifacts, dst_dir_fd=domain.quarantine)
            except FileNotFoundError:
                return
        fsio.sync(domain.artifacts, "artifacts")
        trim_quarantine(domain, budget_bytes)


def _is_directory(domain: Domain, digest: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(digest, dir_fd=domain.artifacts, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def trim_quarantine(domain: Domain, budget_bytes: int) -> None:
    """Remove the oldest from quarantine until the rest fits the budget."""

    def moved_ns(name: str) -> int:
        parts = name.split(".")
        return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0

    names = sorted(fsio.names_in(domain.quarantine, "quarantine"), key=moved_ns)
    sizes = {name: fsio.tree_bytes(name, domain.quarantine) for name in names}
    total = sum(sizes.values())
    for name in names:
        if total <= budget_bytes:
            return
        fsio.remove_tree(name, domain.quarantine)
        total -= sizes[name]


def clean(domain: Domain, quarantine_bytes: int, lock_wait_s: float) -> list[str]:
    """Remove what dead processes left: staging of any key, lock files, pins of what is gone; finish quarantines.

    Returns:
        The names that were removed.
    """
    dead: list[tuple[str, int | None]] = []
    denied: list[str] = []
    removed: list[str] = []
    try:
        with domain.lock(lock_wait_s):
            for name in fsio.names_in(domain.staging, "staging"):
                try:
                    fd = fsio.open_dir(name, domain.staging)
                except OSError:
                    dead.append((name, None))
                    continue
                if try_lock(fd, shared=False):
                    dead.append((name, fd))
                else:
                    os.close(fd)
            free = [name for name in fsio.names_in(domain.locks, "locks") if remove_free_lock(domain.locks, name)]
            removed += [f"locks/{name}" for name in free]
            artifacts = set(fsio.names_in(domain.artifacts, "artifacts"))
            for name in set(fsio.names_in(domain.pins, "pins")) - artifacts:
                fsio.remove_file(name, domain.pins)
                removed.append(f"pins/{name}")
            denied = [name for name in sorted(artifacts) if _is_denied(domain, name)]
            domain.remove_temporaries()
            trim_quarantine(domain, quarantine_bytes)
        for name, _ in dead:
            fsio.remove_tree(name, domain.staging)
            removed.append(f"staging/{name}")
    except OSError as fault:
        if isinstance(fault, StorageError):
            raise
        raise StorageError("clean", str(domain.root), fault.errno) from fault
    finally:
        for _, held in dead:
            if held is not None:
                os.close(held)
    for name in denied:
        fd = fsio.open_dir(name, domain.artifacts)
        try:
            quarantine(domain, name, fd, quarantine_bytes, lock_wait_s)
        finally:
            os.close(fd)
        removed.append(f"artifacts/{name}")
    return removed


def _is_denied(domain: Domain, name: str) -> bool:
    try:
        os.stat(f"{name}/{DENIED}", dir_fd=domain.artifacts, follow_symlinks=False)
    except OSError:
        return False
    return True


def summary(domain: Domain, digest: str) -> dict[str, object] | None:
    """The manifest's head as a table, unchecked, for listings; None where it cannot be read."""
    try:
        fd = fsio.open_dir(digest, domain.artifacts)
    except OSError:
        return None
    try:
        data = fsio.read_small(MANIFEST, fd, 1 << 28)
        table = json.loads(data or b"")
    except (OSError, ValueError):
        return None
    finally:
        os.close(fd)
    return table if isinstance(table, dict) else None
