"""The scope's directory: who is in it, what is left in it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from omni_shmring import ScopeError, Transport, TransportConfig, names
from omni_shmring.scope import ScopeDirectory, scopes_of_user


def test_what_belongs_to_nobody_alive_is_left_over(tmp_path: Path) -> None:
    config = TransportConfig(root=str(tmp_path), linger_s=0)
    with Transport("a", scope="s", config=config) as tx:
        tx.put("b", "k", 1)
        scope = ScopeDirectory(str(tmp_path), "s")
        dead = names.RingName(names.digest("x"), names.digest("y"), 12345, 1)
        for name in (str(dead), dead.segment(1), names.pipe_file(12345), names.scratch_file(12345, "life")):
            (Path(scope.path) / name).write_bytes(b"")
        (Path(scope.path) / "notes of a person").write_bytes(b"")
        assert len(scope.leftovers()) == 4
        with scope.locked():
            assert len(scope.reap()) == 4
        assert scope.leftovers() == []
        assert (Path(scope.path) / "notes of a person").exists()
        scope.close()
    assert scopes_of_user(str(tmp_path)) == []


def test_the_lock_is_one_at_a_time_and_patience_ends(tmp_path: Path) -> None:
    first, second = ScopeDirectory(str(tmp_path), "s"), ScopeDirectory(str(tmp_path), "s")
    with first.locked() as held:
        assert held
        with second.locked(0) as other:
            assert not other
        with pytest.raises(ScopeError, match="kept locked"), second.locked(0.01):
            pass
    with second.locked(0) as other:
        assert other
    first.close()
    second.close()


def test_closing_ends_though_somebody_keeps_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TransportConfig(root=str(tmp_path), linger_s=0)
    kept = ScopeDirectory(str(tmp_path), "s")
    with Transport("a", scope="s", config=config) as tx:
        tx.put("b", "k", 1)
        monkeypatch.setattr(ScopeDirectory.locked.__wrapped__, "__defaults__", (0.01,))  # type: ignore[attr-defined]
        with kept.locked():
            tx.close()
    monkeypatch.undo()
    with Transport("next", scope="s", config=config):
        pass
    kept.close()
    assert os.listdir(tmp_path) == []


def test_opening_and_closing_at_once_never_fails(tmp_path: Path) -> None:
    config = TransportConfig(root=str(tmp_path), linger_s=0)
    errors: list[BaseException] = []

    def come_and_go(name: str) -> None:
        try:
            for _ in range(30):
                with Transport(name, scope="s", config=config):
                    pass
        except BaseException as error:  # noqa: BLE001 (reported by the test below)
            errors.append(error)

    threads = [threading.Thread(target=come_and_go, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert os.listdir(tmp_path) == []


def test_a_directory_removed_between_making_and_opening_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = os.mkdir
    left = 3

    def make_and_lose(path: str, mode: int = 0o777, **more: int) -> None:
        nonlocal left
        made(path, mode, **more)
        if left and str(path).startswith(str(tmp_path)):
            left -= 1
            os.rmdir(path)

    monkeypatch.setattr(os, "mkdir", make_and_lose)
    with Transport("a", scope="s", config=TransportConfig(root=str(tmp_path), linger_s=0)):
        assert left == 0
    assert os.listdir(tmp_path) == []
