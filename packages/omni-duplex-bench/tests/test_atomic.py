"""Files appear whole or not at all, whatever the disk does."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from omni_duplex_bench.atomic import publish, write_file
from omni_duplex_bench.errors import ArtifactError


def test_a_set_is_published_with_its_marker_and_without_stale_files(tmp_path: Path) -> None:
    (tmp_path / ".failed.json").write_text("old")
    publish(tmp_path, {"a": b"1", ".done": b"2", "b": b"3"}, marker=".done", stale=(".failed.json",))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"1", "b": b"3", ".done": b"2"}


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("nth", [0, 1, 2])
def test_a_full_disk_leaves_nothing_of_the_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, nth: int
) -> None:
    real, calls = getattr(os, step), [0]

    def fail(*arguments: object) -> object:
        calls[0] += 1
        if calls[0] == nth + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(ArtifactError, match="No space left") as caught:
        publish(tmp_path, {"a": b"1", "b": b"2", ".done": b"3"}, marker=".done")
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "x.json"
    write_file(path, b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactError):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]
