"""Archives: refused by name, whole or absent, one result for many starts."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from omni_duplex_bench.errors import DatasetError, UnsafeArchiveError
from omni_duplex_bench.extract import extract

TarOf = Callable[[list[tarfile.TarInfo]], Path]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "bad",
    [
        member("../x"),
        member("a/../../x"),
        member("/abs"),
        member("sym", tarfile.SYMTYPE, "/etc"),
        member("hard", tarfile.LNKTYPE, "good"),
        member("dev", tarfile.CHRTYPE),
        member("block", tarfile.BLKTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda m: m.name,
)
def test_dangerous_members_are_refused_by_name_and_leave_nothing(
    tar_of: TarOf, tmp_path: Path, bad: tarfile.TarInfo
) -> None:
    archive = tar_of([member("good"), bad])
    with pytest.raises(UnsafeArchiveError) as caught:
        extract(archive, tmp_path / "cache")
    assert caught.value.member == bad.name
    assert [p.name for p in (tmp_path / "cache").iterdir() if not p.name.endswith(".lock")] == []
    assert not (tmp_path / "x").exists()


def test_a_member_through_an_earlier_link_is_refused(tar_of: TarOf, tmp_path: Path) -> None:
    archive = tar_of([member("d", tarfile.SYMTYPE, str(tmp_path)), member("d/escape")])
    with pytest.raises(UnsafeArchiveError):
        extract(archive, tmp_path / "cache")
    assert not (tmp_path / "escape").exists()


@pytest.mark.parametrize("cut", [0, 10, 600])
def test_broken_archives_are_named_and_leave_nothing(tmp_path: Path, omniinteract: SimpleNamespace, cut: int) -> None:
    archive = tmp_path / "cut.tar.gz"
    archive.write_bytes(omniinteract.archive.read_bytes()[:cut])
    with pytest.raises(DatasetError, match="cannot be unpacked"):
        extract(archive, tmp_path / "cache")
    assert not [p for p in (tmp_path / "cache").iterdir() if p.is_dir()]


def test_the_second_time_nothing_is_unpacked(omniinteract: SimpleNamespace, tmp_path: Path) -> None:
    first = extract(omniinteract.archive, tmp_path)
    (first / "mark").touch()
    assert extract(omniinteract.archive, tmp_path) == first
    assert (first / "mark").exists()


def test_two_processes_at_once_share_one_result(omniinteract: SimpleNamespace, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from omni_duplex_bench.extract import extract;"
        "sys.stdin.readline(); print(extract(Path(sys.argv[1]), Path(sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, str(omniinteract.archive), str(tmp_path)]
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(2)
    ]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    found = {process.communicate(timeout=60)[0].strip() for process in both}
    assert len(found) == 1
    assert len([p for p in tmp_path.iterdir() if p.is_dir()]) == 1
    assert (Path(found.pop()) / "data" / "1q1a" / "video_json_map.json").is_file()
