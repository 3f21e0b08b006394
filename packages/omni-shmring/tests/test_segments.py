"""A frame's own file, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omni_shmring import NoSpaceError, segments


def test_many_buffers_arrive_in_order(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        parts = [bytes([n % 256]) * (n % 37) for n in range(2000)]
        whole = b"".join(parts)
        segments.write(directory, "f", [memoryview(p) for p in parts], len(whole))
        segment = segments.open_segment(directory, "f", len(whole))
        assert segment is not None
        assert bytes(segment.view) == whole
        segment.close()
        assert segments.read_start(directory, "f", 10) == whole[:10]
        assert segments.read_start(directory, "f", len(whole) + 1) is None
        assert segments.open_segment(directory, "f", len(whole) + 1) is None
        assert segments.open_segment(directory, "other", 1) is None
    finally:
        os.close(directory)


def test_a_link_or_fifo_in_its_place_is_not_followed(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        (tmp_path / "target").write_bytes(b"x" * 10)
        (tmp_path / "link").symlink_to(tmp_path / "target")
        os.mkfifo(tmp_path / "fifo")
        for name in ("link", "fifo"):
            assert segments.open_segment(directory, name, 10) is None
    finally:
        os.close(directory)


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "ENOMEM", "EIO"])
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    number = getattr(errno, code)
    calls: list[int] = []

    def fail(fd: int, buffers: list[memoryview], offset: int) -> int:
        calls.append(offset)
        if len(calls) > 1:
            raise OSError(number, os.strerror(number))
        return 3  # a short write first

    monkeypatch.setattr(os, "pwritev", fail)
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=r"\w") as caught:
            segments.write(directory, "f", [memoryview(bytes(10))], 10)
        assert isinstance(caught.value, NoSpaceError) == (code != "EIO")
        assert calls == [0, 3]
        assert os.listdir(tmp_path) == []
    finally:
        os.close(directory)
