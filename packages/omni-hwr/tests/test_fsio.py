"""File operations: whole, without following symlinks, with faults turned into the package's own."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_hwr import fsio
from omni_hwr.errors import SpaceError, StorageError


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, SpaceError), (errno.EDQUOT, SpaceError), (errno.EIO, StorageError), (errno.EACCES, StorageError)],
)
def test_a_fault_gets_its_type_and_names_its_step(number: int, kind: type[OSError]) -> None:
    with pytest.raises(kind, match="rename failed on x") as caught:
        with fsio.step("rename", "x"):
            raise OSError(number, "text")
    assert caught.value.errno == number


def test_a_short_write_goes_on(folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: original(fd, data[:3], offset))
    fsio.create_file("x", b"0123456789", folder)
    assert (tmp_path / "x").read_bytes() == b"0123456789"


def test_replacing_is_all_or_nothing(folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsio.replace_file("x", b"old", folder)

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EIO, "text")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(StorageError):
        fsio.replace_file("x", b"new", folder)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_a_tree_is_removed_without_following_symlinks(folder: int, tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir()
    (outside / "kept").write_bytes(b"12345")
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").write_bytes(b"123")
    (tree / "a" / "link").symlink_to(outside)
    assert fsio.tree_bytes("tree", folder) == 3 + len(str(outside))
    fsio.remove_tree("tree", folder)
    fsio.remove_tree("tree", folder)
    assert not tree.exists()
    assert (outside / "kept").exists()
    assert fsio.tree_bytes("tree", folder) == 0


def test_small_files_are_bounded(folder: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert fsio.read_small("x", folder, 5) == b"12345"
    assert fsio.read_small("x", folder, 4) is None
