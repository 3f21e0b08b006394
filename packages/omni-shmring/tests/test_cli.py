"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from omni_shmring import Transport, names


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "omni_shmring.cli", *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "160"},
    )  # fmt: skip


def test_help_and_version() -> None:
    assert "reap" in run("--help").stdout
    assert "dead processes" in run("reap", "--help").stdout
    assert run("--version").stdout.startswith("omni-shmring, version ")


def test_ls_shows_owners_rings_fill_and_keys(scope: str) -> None:
    with Transport("thinker [stage]", scope=scope) as tx, Transport("talker", scope=scope):
        for number in range(5):
            tx.put("talker", f"req:{number}", bytes(100))
        shown = run("ls", "--keys", "2").stdout
        assert scope in shown
        assert "thinker [stage] → talker" in shown
        assert "req:0, req:1, … 3 more" in shown
        assert str(os.getpid()) in shown
        found = [json.loads(line) for line in run("ls", "--json").stdout.splitlines()]
        (mine,) = [each for each in found if each["scope"] == scope]
        assert [owner["alive"] for owner in mine["owners"]] == [True, True]
        assert mine["rings"][0]["pending"] == 5
        # Looking disturbs nobody: everybody still lives and the messages are there.
        tx.close(linger_s=0)


def test_reap_lists_first_and_removes_when_told(scope: str, child: Callable[..., Any]) -> None:
    source = """
        import sys
        from omni_shmring import Transport
        tx = Transport("a", scope=sys.argv[1])
        tx.put("b", "k", bytes(2 << 20))
        print("ready", flush=True)
        sys.stdin.readline()
    """
    path = os.path.join("/dev/shm", names.scope_directory(scope, os.geteuid()))
    each = child(source, scope)
    assert each.line() == "ready"
    assert path not in run("reap").stdout  # it lives
    each.kill()
    listed = run("reap")
    assert path in listed.stdout
    assert "--yes" in listed.stderr
    assert os.path.isdir(path)
    assert "dead" in run("ls").stdout
    assert run("reap", "--yes").returncode == 0
    assert not os.path.exists(path)


def test_mistakes_are_one_sentence(tmp_path: Any) -> None:
    folder = tmp_path / names.scope_directory("s", os.geteuid())
    folder.mkdir()
    folder.chmod(0o777)
    found = run("ls", "--root", str(tmp_path))
    assert found.returncode == 1
    assert found.stderr.count("\n") == 1
    assert "0777" in found.stderr
    assert run("nonsense").returncode == 2


@pytest.mark.parametrize("root", ["/nowhere/at/all"])
def test_no_scopes(root: str) -> None:
    assert "No scope of yours" in run("ls", "--root", root).stdout
