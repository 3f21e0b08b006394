"""Writing the payload files of one artifact: preallocated, hashed while written, synced while later files are written.

Every byte of every tensor is to be written exactly once. What is written in order is hashed on the way; a tensor whose
pieces came out of order is read back and hashed, all such tensors in parallel, before the publication goes on.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

from omni_hwr import fsio
from omni_hwr.digests import Algorithm, Hasher, derive_digest, digest_ranges, new_hasher
from omni_hwr.errors import CoverageError, StorageError
from omni_hwr.layout import Placement, Plan
from omni_hwr.manifest import FileRecord

CHUNK_BYTES = 8 << 20
MAX_PENDING_FILES = 2
"""Finished files whose fsync may still run; more would only fill the page cache."""


@dataclass
class _Coverage:
    """Which bytes of one tensor were written, and the digest of those written in order."""

    placement: Placement
    hasher: Hasher | None
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def add(self, start: int, end: int) -> None:
        """Note a written range; refuse what lies outside or was written before."""
        name, size = self.placement.name, self.placement.spec.nbytes
        if start < 0 or end > size:
            raise CoverageError(name, f"bytes {start} to {end} were written of a tensor of {size}")
        at = bisect.bisect_left(self.ranges, (start, end))
        before = self.ranges[at - 1][1] if at else 0
        after = self.ranges[at][0] if at < len(self.ranges) else size
        if start < before or end > after:
            raise CoverageError(name, f"bytes {start} to {end} were written twice in part or whole")
        if start == end:
            return
        joins_left = at > 0 and before == start
        joins_right = at < len(self.ranges) and after == end
        low = self.ranges[at - 1][0] if joins_left else start
        high = self.ranges[at][1] if joins_right else end
        self.ranges[at - joins_left : at + joins_right] = [(low, high)]

    @property
    def position(self) -> int:
        """How far the tensor is written from its beginning without a gap."""
        return self.ranges[0][1] if self.ranges and self.ranges[0][0] == 0 else 0

    @property
    def is_complete(self) -> bool:
        size = self.placement.spec.nbytes
        return size == 0 or self.ranges == [(0, size)]


class PayloadWriter:
    """Writes the files of ``plan`` into the directory ``dir_fd``; a context manager that closes what it opened."""

    def __init__(
        self,
        dir_fd: int,
        plan: Plan,
        algorithm: Algorithm,
        threads: int,
        on_written: Callable[[int, str], None],
        on_synced: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._algorithm = algorithm
        self._threads = threads
        self._on_written = on_written
        self._on_synced = on_synced
        self._fds: list[int] = []
        self._coverage = {item.name: _Coverage(item, new_hasher(algorithm)) for item in plan.placements}
        self._missing = [0] * len(plan.files)
        for item in plan.placements:
            self._missing[item.file] += item.spec.nbytes
        self._hash_pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="omni-hwr-hash")
        self._sync_pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="omni-hwr-sync")
        self._syncs: dict[int, Future[None]] = {}
        self._reported: set[int] = set()
        try:
            self._create(dir_fd)
        except BaseException:
            self.close()
            raise

    def _create(self, dir_fd: int) -> None:
        for item in self._plan.files:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with fsio.step("create", item.name):
                self._fds.append(os.open(item.name, flags, fsio.FILE_MODE, dir_fd=dir_fd))
            with fsio.step("allocate", item.name):
                os.posix_fallocate(self._fds[-1], 0, item.nbytes)
            fsio.write_all(self._fds[-1], item.header, 0, item.name)

    def write(self, name: str, data: memoryview, offset_bytes: int) -> None:
        """Write a piece of a tensor's bytes. ``data`` may be reused as soon as this returns.

        Raises:
            CoverageError: The tensor is not declared, or these bytes lie outside of it or were written before.
            SpaceError, StorageError: The system refuses the write.
        """
        cover = self._coverage.get(name)
        if cover is None:
            raise CoverageError(name, "was written but not declared")
        placement = cover.placement
        in_order = cover.position == offset_bytes
        cover.add(offset_bytes, offset_bytes + len(data))
        if not in_order:
            cover.hasher = None
        file_name = self._plan.files[placement.file].name
        pending: list[Future[object]] = []
        try:
            for at in range(0, len(data), CHUNK_BYTES):
                chunk = data[at : at + CHUNK_BYTES]
                if cover.hasher is not None:
                    pending.append(self._hash_pool.submit(cover.hasher.update, chunk))
                position = placement.offset + offset_bytes + at
                fsio.write_all(self._fds[placement.file], chunk, position, file_name)
                self._on_written(len(chunk), name)
        finally:
            for future in pending:
                future.result()
        self._missing[placement.file] -= len(data)
        if not self._missing[placement.file]:
            self._start_sync(placement.file)

    def _start_sync(self, index: int) -> None:
        if index in self._syncs:
            return
        name = self._plan.files[index].name
        self._syncs[index] = self._sync_pool.submit(fsio.sync, self._fds[index], name)
        waiting = [item for item in self._syncs.items() if item[0] not in self._reported]
        for done, future in waiting[:-MAX_PENDING_FILES]:
            self._await_sync(done, future)

    def _await_sync(self, index: int, future: Future[None]) -> None:
        future.result()
        if index not in self._reported:
            self._reported.add(index)
            self._on_synced(self._plan.files[index].name)

    def finish(self) -> tuple[tuple[FileRecord, ...], tuple[str, ...]]:
        """Check coverage, wait for every fsync; the files' records and the tensors' digests in plan order.

        Raises:
            CoverageError: A tensor is missing or incomplete.
        """
        for cover in self._coverage.values():
            if not cover.is_complete:
                size = cover.placement.spec.nbytes
                written = sum(end - start for start, end in cover.ranges)
                raise CoverageError(cover.placement.name, f"only {written} of {size} bytes were written")
        for index in range(len(self._fds)):
            self._start_sync(index)
        digests = self._digests()
        for index, future in sorted(self._syncs.items()):
            self._await_sync(index, future)
        records = []
        for index, item in enumerate(self._plan.files):
            own = [digests[p.name] for p in self._plan.placements if p.file == index]
            digest = derive_digest(self._algorithm, item.header, own)
            records.append(FileRecord(item.name, item.nbytes, len(item.header), digest))
        return tuple(records), tuple(digests[item.name] for item in self._plan.placements)

    def _digests(self) -> dict[str, str]:
        found: dict[str, str] = {}
        behind: list[Placement] = []
        for name, cover in self._coverage.items():
            if cover.hasher is None:
                behind.append(cover.placement)
            else:
                found[name] = f"{self._algorithm}:{cover.hasher.hexdigest()}"
        ranges = [(self._fds[item.file], item.offset, item.spec.nbytes) for item in behind]
        if ranges:
            for item, digest in zip(behind, digest_ranges(self._algorithm, ranges, self._threads)):
                if digest is None:
                    raise StorageError("read", self._plan.files[item.file].name, None)
                found[item.name] = digest
        return found

    def close(self) -> None:
        """Stop the threads and close the files; harmless when repeated."""
        self._hash_pool.shutdown()
        self._sync_pool.shutdown(cancel_futures=True)
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
