"""The command line as people and machines use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from omni_envinventory.cli import main

INVENTORY = (
    '[inventory]\nname = "app"\nsources = ["app.py"]\nreference = "docs/env.md"\nowned_prefixes = ["APP_"]\n\n'
    '[[variable]]\nname = "APP_PORT"\ncategory = "public"\n'
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "app.py").write_text('import os\nos.getenv("APP_PORT")\n')
    (tmp_path / "envinventory.toml").write_text(INVENTORY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_docs_then_check(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 1
    assert main(["docs", "--check"]) == 1
    assert main(["docs"]) == 0
    assert main(["docs", "--check"]) == 0
    capsys.readouterr()
    assert main(["check"]) == 0
    assert "The inventory holds" in capsys.readouterr().err


def test_check_finds_the_inventory_above(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["docs"])
    (project / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(project / "deep" / "er")
    assert main(["check"]) == 0


@pytest.mark.parametrize("shape", [[], ["--plain"], ["--github"], ["--json"]])
def test_check_exits_1_with_findings(project: Path, shape: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (project / "app.py").write_text('import os\nos.getenv("APP_PROT")\n')
    assert main(["check", *shape, "changed.py"]) == 1
    out = capsys.readouterr().out
    assert "APP_PROT" in out
    if shape == ["--json"]:
        assert json.loads(out)["ok"] is False
    if shape == ["--github"]:
        assert "::error file=app.py,line=2" in out


def test_scan_outputs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan"]) == 0
    assert "APP_PORT  read" in capsys.readouterr().out
    assert main(["scan", "--names", "app.py"]) == 0
    assert capsys.readouterr().out == "APP_PORT\n"
    assert main(["scan", "--json", "app.py"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"schema", "names", "patterns", "accesses", "unparsed", "files"}
    assert set(document["accesses"][0]) == {
        "name", "kind", "operation", "form", "when", "path", "line", "column", "scope", "via", "detail",
    }  # fmt: skip


def test_collect_and_diff(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    monkeypatch.setenv("APP_PORT", "1")
    assert main(["collect", "--json", "--fingerprints"]) == 0
    (project / "a.json").write_text(capsys.readouterr().out)
    monkeypatch.setenv("APP_PORT", "2")
    main(["collect", "--json", "--fingerprints"])
    (project / "b.json").write_text(capsys.readouterr().out)
    assert main(["diff", "a.json", "a.json"]) == 0
    capsys.readouterr()
    assert main(["diff", "a.json", "b.json"]) == 1
    assert "~ APP_PORT: 1 -> 2" in capsys.readouterr().out
    assert main(["diff", "--json", "a.json", "b.json"]) == 1
    assert json.loads(capsys.readouterr().out)["schema"] == "omni-envinventory/diff/1"


@pytest.mark.parametrize("error", ["RuntimeError('broken')", "OSError(2, 'gone')", "AssertionError()"])
def test_collect_works_when_the_project_cannot_be_imported(project: Path, error: str) -> None:
    (project / "app.py").write_text(f"raise {error}\n")
    (project / "conftest.py").write_text(f"raise {error}\n")
    command = [sys.executable, "-m", "omni_envinventory", "collect"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Environment of process" in done.stdout


def test_collect_without_any_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["collect"]) == 0
    assert "VLLM_OMNI_STORAGE_PATH" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "-i", "none.toml"],
        ["scan", "nowhere"],
        ["diff", "a", "b"],
        ["check", "-i", "broken.toml"],
        ["docs", "-i", "none"],
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_2(
    project: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "broken.toml").write_text("[[variable]]\n")
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("omni-envinventory: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["scan", "--help"], ["check", "--help"], ["collect", "--help"]]
)
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments, prog="omni-serve env")
    assert caught.value.code == 0
    assert "omni-serve env" in capsys.readouterr().out


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["nonsense"])
    assert caught.value.code == 2
