"""Descriptors, honest and hostile."""

from __future__ import annotations

import os
import pickle
from typing import Any

import msgspec
import pytest

from omni_shmring import Descriptor, DescriptorError, Transport, layout

GOOD = Descriptor(1, 2, 3, layout.pack_mark(4, 5), 6)


def test_it_survives_the_control_plane() -> None:
    assert Descriptor.from_bytes(GOOD.to_bytes()) == GOOD
    assert len(GOOD.to_bytes()) <= 64 + 16


HOSTILE: list[Any] = [
    b"", b"\xc1", b"x" * 10_000, pickle.dumps(GOOD), msgspec.msgpack.encode([1, 2, 3]), b"\x81" * 200, 5, "text", {},
    msgspec.msgpack.encode({"edge": "../../etc/passwd", "producer": 1, "ring": 1, "mark": 1, "nbytes": 1}),
    msgspec.msgpack.encode({"edge": -1, "producer": 1, "ring": 1, "mark": 1, "nbytes": 1}),
    msgspec.structs.replace(GOOD, ring=1 << 32), msgspec.structs.replace(GOOD, mark=GOOD.mark ^ 1),
    msgspec.structs.replace(GOOD, producer=-1), msgspec.structs.replace(GOOD, producer="../x"),
    msgspec.structs.replace(GOOD, mark=0), msgspec.structs.replace(GOOD, nbytes=None),
    msgspec.structs.replace(GOOD, edge=2**64), msgspec.structs.replace(GOOD, edge=True),
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda h: str(h)[:40])
def test_a_hostile_one_is_one_error_and_opens_nothing(
    hostile: Any, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Transport("a", scope=scope) as tx, Transport("b", scope=scope) as rx:
        tx.put("b", "k", 1)
        rx.get("a", "nothing")
        opened: list[Any] = []
        real_open = os.open

        def watch(path: Any, *arguments: Any, **settings: Any) -> int:
            opened.append(path)
            return real_open(path, *arguments, **settings)

        monkeypatch.setattr(os, "open", watch)
        with pytest.raises(DescriptorError):
            rx.get("a", "k", hostile)
        monkeypatch.undo()
        assert opened == []
        assert rx.get("a", "k") is not None


def test_forged_numbers_of_the_right_edge_deliver_nothing(scope: str) -> None:
    with Transport("a", scope=scope) as tx, Transport("b", scope=scope) as rx:
        real = tx.put("b", "k", 1)
        for changes in (
            {"producer": real.producer ^ 1}, {"ring": 2}, {"mark": layout.pack_mark(1, 5)},
            {"mark": layout.pack_mark(2, layout.mark_slot(real.mark))},
            {"mark": layout.pack_mark(9, layout.MAX_SLOTS - 1)},
        ):  # fmt: skip
            assert rx.get("a", "k", msgspec.structs.replace(real, **changes)) is None
        assert rx.get("a", "k", real) is not None


def test_another_scope(scope: str) -> None:
    with Transport("a", scope=scope) as tx, Transport("b", scope=scope + "-other") as rx:
        descriptor = tx.put("b", "k", 1)
        with pytest.raises(DescriptorError, match="another scope"):
            rx.get("a", "k", descriptor)
        tx.close(linger_s=0)
