"""The store's settings: the only home of their defaults. Nothing here is written into the store."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from omni_hwr.digests import ALGORITHMS, Algorithm

Verify = Literal["structure", "full"]
"""``structure`` checks all but the payload's bytes; ``full`` hashes those as well."""


@dataclass(frozen=True)
class StoreConfig:
    """How a store is used by this process; another process, or the next start, may use other limits.

    Attributes:
        max_bytes: Limit of all artifacts and builds under way together; None for the disk's own limit.
        max_artifact_bytes: Limit of one artifact; None for no other than ``max_bytes``.
        reserve_bytes: Free space of the file system that a publication must leave.
        quarantine_bytes: What quarantine may keep for a look at what was damaged; the oldest goes first.
        prune_to_fit: Whether a publication may remove least recently used artifacts that nobody leases or pinned.
        shard_bytes: Size of a payload file at which the next one begins; finished files reach the disk while later
            ones are written, so several are faster than one.
        algorithm: Digest of payload bytes.
        build_wait_s: How long to wait for another builder of the same key.
        lock_wait_s: How long to wait for the short locks that guard renames.
        threads: Threads that hash; the write itself runs in the caller's thread.
        allow_file_system: Name of a file system to accept although it is not known to be local.
    """

    max_bytes: int | None = None
    max_artifact_bytes: int | None = None
    reserve_bytes: int = 64 << 20
    quarantine_bytes: int = 1 << 30
    prune_to_fit: bool = False
    shard_bytes: int = 256 << 20
    algorithm: Algorithm = "blake3"
    build_wait_s: float = 1800.0
    lock_wait_s: float = 60.0
    threads: int = min(8, os.cpu_count() or 1)
    allow_file_system: str | None = None

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm is {self.algorithm!r}, not one of {', '.join(ALGORITHMS)}")
        for name in ("max_bytes", "max_artifact_bytes"):
            if getattr(self, name) is not None and getattr(self, name) < 0:
                raise ValueError(f"{name} is negative")
        if min(self.reserve_bytes, self.quarantine_bytes, self.build_wait_s, self.lock_wait_s) < 0:
            raise ValueError("a limit is negative")
        if self.shard_bytes < 1 or self.threads < 1:
            raise ValueError("shard_bytes and threads are at least 1")


@dataclass(frozen=True)
class MapOptions:
    """What a lease asks of the system beyond mapping; what the system refuses is listed in ``lease.refusals``.

    Attributes:
        prefault: Read every page in before the lease is returned.
        lock_memory: Keep the pages from being dropped (needs ``RLIMIT_MEMLOCK``).
        numa_node: Prefer this node's memory for pages that ``prefault`` brings in.
    """

    prefault: bool = False
    lock_memory: bool = False
    numa_node: int | None = None


@dataclass(frozen=True)
class Progress:
    """One report of a long operation.

    ``stage`` is one of ``waiting`` (for another builder), ``hashing`` (of sources), ``reserved``, ``writing``,
    ``synced``, ``manifest``, ``ready``, ``renamed``, ``published``, ``verifying``; each stage of a publication is
    reported after its step is done. ``item`` names the file, tensor or holder concerned.
    """

    stage: str
    done_bytes: int
    total_bytes: int
    item: str = ""


ProgressCallback = Callable[[Progress], None]


def ignore_progress(report: Progress) -> None:
    """The callback of a caller who wants none."""
