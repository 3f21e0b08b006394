"""Digests that name their algorithm, over bytes in memory and byte ranges of files.

A file's digest is derived: the digest of its header, then of its tensors' digests in file order. So each payload byte
is hashed once, while it is written, and checking one tensor needs no other.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Protocol

import blake3

from omni_hwr.errors import StorageError

Algorithm = Literal["blake3", "sha256"]
ALGORITHMS: tuple[Algorithm, ...] = ("blake3", "sha256")
CHUNK_BYTES = 8 << 20


class Hasher(Protocol):
    """What both algorithms' objects offer."""

    def update(self, data: bytes | memoryview, /) -> object: ...
    def hexdigest(self) -> str: ...


def new_hasher(algorithm: Algorithm) -> Hasher:
    """A fresh hash object; both release the interpreter while they work on a large chunk."""
    if algorithm == "blake3":
        return blake3.blake3()
    return hashlib.sha256()


def digest_bytes(algorithm: Algorithm, data: bytes | memoryview) -> str:
    """``algorithm:hexadecimal`` of ``data``."""
    hasher = new_hasher(algorithm)
    hasher.update(data)
    return f"{algorithm}:{hasher.hexdigest()}"


def derive_digest(algorithm: Algorithm, header: bytes, tensor_digests: Iterable[str]) -> str:
    """A payload file's digest, from its header and its tensors' digests in file order."""
    hasher = new_hasher(algorithm)
    hasher.update(digest_bytes(algorithm, header).encode("ascii"))
    for digest in tensor_digests:
        hasher.update(b"\n" + digest.encode("ascii"))
    return f"{algorithm}:{hasher.hexdigest()}"


def digest_range(
    algorithm: Algorithm, fd: int, offset: int, nbytes: int, on_bytes: Callable[[int], None] | None = None
) -> str | None:
    """Digest of a byte range of an open file, or None where the file ends before the range does."""
    hasher = new_hasher(algorithm)
    buffer = memoryview(bytearray(min(CHUNK_BYTES, max(nbytes, 1))))
    done = 0
    while done < nbytes:
        try:
            got = os.preadv(fd, [buffer[: min(len(buffer), nbytes - done)]], offset + done)
        except OSError as fault:
            raise StorageError("read", f"descriptor {fd}", fault.errno) from fault
        if got == 0:
            return None
        hasher.update(buffer[:got])
        done += got
        if on_bytes is not None:
            on_bytes(got)
    return f"{algorithm}:{hasher.hexdigest()}"


def digest_ranges(
    algorithm: Algorithm,
    ranges: Sequence[tuple[int, int, int]],
    threads: int,
    on_bytes: Callable[[int], None] | None = None,
) -> list[str | None]:
    """Digests of many ``(descriptor, offset, nbytes)`` in parallel, in the order given.

    ``on_bytes`` is called from the threads with the size of each chunk that was hashed.
    """
    with ThreadPoolExecutor(max_workers=max(1, threads), thread_name_prefix="omni-hwr-hash") as pool:
        return list(pool.map(lambda item: digest_range(algorithm, item[0], item[1], item[2], on_bytes), ranges))
