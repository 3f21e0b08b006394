"""Digests name their algorithm and are the same however the bytes come."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import blake3
import pytest

from omni_hwr.digests import (
    ALGORITHMS,
    CHUNK_BYTES,
    Algorithm,
    derive_digest,
    digest_bytes,
    digest_range,
    digest_ranges,
)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_memory_and_file_agree(algorithm: Algorithm, tmp_path: Path) -> None:
    data = os.urandom(CHUNK_BYTES + 12345)
    (tmp_path / "data").write_bytes(data)
    fd = os.open(tmp_path / "data", os.O_RDONLY)
    try:
        ranges = [(fd, 0, len(data)), (fd, 5, 100), (fd, len(data), 0), (fd, len(data) - 1, 2)]
        seen: list[int] = []
        found = digest_ranges(algorithm, ranges, 3, seen.append)
        assert found[0] == digest_bytes(algorithm, data) == digest_range(algorithm, fd, 0, len(data))
        assert found[1] == digest_bytes(algorithm, data[5:105])
        assert found[2] == digest_bytes(algorithm, b"")
        assert found[3] is None
        assert sum(seen) == len(data) + 101
    finally:
        os.close(fd)


def test_known_values() -> None:
    assert digest_bytes("sha256", b"abc") == "sha256:" + hashlib.sha256(b"abc").hexdigest()
    assert digest_bytes("blake3", b"abc") == "blake3:" + blake3.blake3(b"abc").hexdigest()


def test_a_derived_digest_depends_on_header_digests_and_order() -> None:
    base = derive_digest("blake3", b"h", ["a", "b"])
    assert base == derive_digest("blake3", b"h", ["a", "b"])
    others = [(b"i", ["a", "b"]), (b"h", ["b", "a"]), (b"h", ["a"]), (b"h", ["ab"])]
    assert len({base, *(derive_digest("blake3", header, parts) for header, parts in others)}) == 5
