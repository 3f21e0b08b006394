"""OmniInteract's layout, confinement, and seeded selection."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from omni_duplex_bench.cases import Case
from omni_duplex_bench.dataset import is_omniinteract, load_omniinteract, select
from omni_duplex_bench.errors import DatasetError
from omni_duplex_bench.paths import confined


def test_all_three_subsets_are_found(omniinteract: SimpleNamespace) -> None:
    assert is_omniinteract(omniinteract.folder) == omniinteract.root == is_omniinteract(omniinteract.root)
    cases = load_omniinteract(omniinteract.root)
    assert [c.case_id for c in cases] == [
        "1q1a/videos__0001",
        "1q1a/videos__0002",
        "1q1a_math/videos__0001",
        "1q1a_math/videos__0002",
        "1qna/egoper__tea",
    ]
    assert {c.scene_type for c in cases} == {"nested", "1QnA"}
    assert all(c.official and c.annotation is not None and c.annotation.is_file() for c in cases)


def test_a_folder_without_subsets_is_none(tmp_path: Path) -> None:
    assert is_omniinteract(tmp_path) is None


@pytest.mark.parametrize("bad", ["../../secret.mp4", "/etc/passwd", "link/a.mp4", ""])
def test_paths_in_mappings_stay_inside(omniinteract: SimpleNamespace, tmp_path: Path, bad: str) -> None:
    root = tmp_path / "data"
    shutil.copytree(omniinteract.root / "1q1a", root / "1q1a")
    (root / "1q1a" / "link").symlink_to(tmp_path)
    (tmp_path / "a.mp4").write_bytes(b"x")
    entry = {"video": bad, "annotation": "annotations/0001.json"}
    (root / "1q1a" / "video_json_map.json").write_text(json.dumps({"entries": [entry]}))
    with pytest.raises(DatasetError, match=r"leaves|outside"):
        load_omniinteract(root, ["1q1a"])


@pytest.mark.parametrize("content", [None, "{", "[]", '{"entries": [{"video": 3}]}', '{"entries": []}'])
def test_a_broken_mapping_is_named(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "1q1a").mkdir()
    if content is not None:
        (tmp_path / "1q1a" / "video_json_map.json").write_text(content)
    with pytest.raises(DatasetError, match="1q1a"):
        load_omniinteract(tmp_path, ["1q1a"])


def test_missing_files_and_subsets_are_named(omniinteract: SimpleNamespace, tmp_path: Path) -> None:
    shutil.copytree(omniinteract.root / "1qna", tmp_path / "1qna")
    with pytest.raises(DatasetError, match="no subset 1q1a"):
        load_omniinteract(tmp_path, ["1q1a"])
    (tmp_path / "1qna" / "annotations" / "egoper" / "tea.json").unlink()
    with pytest.raises(DatasetError, match=r"tea\.json: the file is missing"):
        load_omniinteract(tmp_path, ["1qna"])


def test_selection_is_seeded_and_zero_means_all() -> None:
    cases = [Case(str(n), Path("x")) for n in range(20)]
    one, _ = select(cases, 5, seed=1, shuffle=True)
    again, _ = select(cases, 5, seed=1, shuffle=True)
    other, _ = select(cases, 5, seed=2, shuffle=True)
    assert one == again
    assert one != other
    assert select(cases, 3, seed=1, shuffle=False) == (cases[:3], [])
    whole, said = select(cases, 0, seed=1, shuffle=True)
    assert sorted(whole, key=lambda c: int(c.case_id)) == cases
    assert not said
    more, said = select(cases, 50, seed=1, shuffle=False)
    assert more == cases
    assert said == ["50 cases were asked for, the selection holds 20"]


def test_confined_follows_links(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to(tmp_path)
    assert confined(tmp_path / "in", "a/b") == tmp_path / "in" / "a" / "b"
    for bad in ("out/x", "a/../../b", "..\\x", "\0"):
        with pytest.raises(DatasetError):
            confined(tmp_path / "in", bad)
