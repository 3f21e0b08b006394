"""From what a user names to cases."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from omni_duplex_bench.bench import Failed
from omni_duplex_bench.cases import Case, Prepared, safe_name
from omni_duplex_bench.errors import DatasetError, UsageError
from omni_duplex_bench.hub import download
from omni_duplex_bench.inputs import all_cases, find_cases
from omni_duplex_bench.media import MediaConfig
from omni_duplex_bench.prepare import prepare
from omni_duplex_bench.testing import speechlike
from omni_duplex_bench.wavfile import wav_bytes


def test_files_folders_and_repeats_have_unique_ids(tmp_path: Path) -> None:
    for name in ("a.wav", "sub/a.wav", "b.mp4", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    cases, _ = all_cases([str(tmp_path), str(tmp_path / "a.wav")], repeat=2)
    ids = [c.case_id for c in cases]
    assert len(ids) == len(set(ids)) == 8
    assert ids[:3] == ["a", "b", "sub__a"]


def test_a_manifest_names_cases_relative_to_itself(tmp_path: Path) -> None:
    manifest = tmp_path / "m.jsonl"
    lines = [{"path": "a.wav", "id": "first/one", "annotation": "a.json"}, {"path": "d/b.wav"}]
    manifest.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    cases, said = find_cases(str(manifest), num_prompts=0, shuffle=False)
    assert [(c.case_id, c.path) for c in cases] == [("first_one", tmp_path / "a.wav"), ("b", tmp_path / "d" / "b.wav")]
    assert cases[0].annotation == tmp_path / "a.json"
    assert not said


@pytest.mark.parametrize("line", ["{", '{"path": 3}', '{"path": "../x"}', '{"path": "/x"}', ""])
def test_a_broken_manifest_is_named(tmp_path: Path, line: str) -> None:
    manifest = tmp_path / "m.jsonl"
    manifest.write_text(line)
    with pytest.raises(DatasetError):
        find_cases(str(manifest))


def test_selection_applies_to_datasets(omniinteract: SimpleNamespace) -> None:
    cases, said = find_cases(str(omniinteract.folder), subsets=["1q1a"], num_prompts=9)
    assert len(cases) == 2
    assert "9 cases were asked for" in said[0]


def test_what_is_not_there_or_holds_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        find_cases(str(tmp_path / "none"))
    with pytest.raises(DatasetError, match="neither"):
        find_cases(str(tmp_path))


def test_the_hub_is_asked_only_with_its_extra_and_fails_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DatasetError, match=r"install omni-duplex-bench\[hub\]|the Hub did not give it"):
        download("nobody-at-all/no-such-dataset")


def test_preparing_isolates_what_is_broken(tmp_path: Path) -> None:
    good, bad, long = (tmp_path / name for name in ("good.wav", "bad.wav", "long.wav"))
    good.write_bytes(wav_bytes(speechlike(0.2, 8000), 8000))
    bad.write_bytes(b"junk")
    long.write_bytes(wav_bytes(speechlike(3.0, 8000), 8000))
    done: list[int] = []
    cases = [Case(p.stem, p) for p in (bad, good, long)]
    entries = prepare(cases, MediaConfig(max_duration_s=1.0), on_done=done.append)
    assert [type(entry) for entry in entries] == [Failed, Prepared, Failed]
    assert done == [1, 2, 3]
    assert isinstance(entries[2], Failed)
    assert "more than the 1 s allowed" in entries[2].error


def test_names_are_safe() -> None:
    assert [safe_name(n) for n in ("a b/c", "..", ".hidden", "", "ok-1.2")] == [
        "a_b_c",
        "case",
        "hidden",
        "case",
        "ok-1.2",
    ]
