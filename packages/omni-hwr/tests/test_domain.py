"""The store's directories: private, of this version, and nothing before the first use."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from omni_hwr import WeightStore
from omni_hwr.errors import DomainError, StorageError


def opened(root: Path) -> None:
    with WeightStore(root) as store:
        store.entries()


def test_nothing_is_made_before_the_first_use(root: Path) -> None:
    with WeightStore(root):
        assert not root.exists()


def test_the_identity_stays_and_names_the_file_system(root: Path) -> None:
    opened(root)
    first = json.loads((root / "domain.json").read_text())
    opened(root)
    assert json.loads((root / "domain.json").read_text()) == first
    assert first["file_system"]
    folders = {"artifacts", "staging", "locks", "quarantine", "source-digests", "pins"}
    assert {path.name for path in root.iterdir()} == {"domain.json", *folders}


@pytest.mark.parametrize("name", ["", "artifacts", "staging", "pins"])
def test_a_directory_open_to_others_is_refused_with_the_mode_to_set(name: str, root: Path) -> None:
    opened(root)
    (root / name).chmod(0o750)
    with pytest.raises(DomainError, match=r"0750.*0700"):
        opened(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="waits for root, who alone can give files to another user")
def test_another_users_store_is_refused(root: Path) -> None:
    opened(root)
    os.chown(root, 12345, 12345)
    with pytest.raises(DomainError, match="belongs to user 12345"):
        opened(root)


def test_a_folder_that_is_a_symlink_is_refused(root: Path, tmp_path: Path) -> None:
    opened(root)
    (root / "artifacts").rename(tmp_path / "elsewhere")
    (root / "artifacts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises((DomainError, StorageError)) as caught:
        opened(root)
    assert "artifacts" in str(caught.value)


def test_a_root_reached_through_a_symlink_is_fine(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    opened(tmp_path / "link")
    assert (root / "domain.json").exists()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "omni-hwr/domain/9", "id": "x"}', "x" * 10_000])
def test_a_damaged_or_foreign_identity_is_refused(text: str, root: Path) -> None:
    opened(root)
    (root / "domain.json").unlink()
    (root / "domain.json").write_text(text)
    with pytest.raises(DomainError):
        opened(root)


def test_half_written_records_are_removed(root: Path) -> None:
    opened(root)
    for name in (".domain.json.12ab", "source-digests/.record.12ab"):
        (root / name).write_bytes(b"")
    opened(root)
    assert not (root / ".domain.json.12ab").exists()
    assert list((root / "source-digests").iterdir()) == []


def test_opening_leaks_no_descriptor(root: Path) -> None:
    opened(root)
    before = len(os.listdir("/proc/self/fd"))
    opened(root)
    (root / "pins").chmod(0o755)
    with pytest.raises(DomainError):
        opened(root)
    assert len(os.listdir("/proc/self/fd")) == before
