"""Names of stages, keys and files."""

from __future__ import annotations

import pytest

from omni_shmring import InvalidArgumentError, names


def test_every_file_name_stays_in_its_directory() -> None:
    for text in ("../..", "/etc/passwd", "a\0b", ".", "\N{SNOWMAN}" * 300, "x" * 10_000):
        ring = names.RingName(names.digest(text), names.digest("b"), 5, 6)
        for name in (
            str(ring), ring.chunk(3), ring.segment(9), names.life_file(names.digest(text), 7),
            names.inbox_file(names.digest(text)), names.pipe_file(4), names.scratch_file(4, "life"),
            names.scope_directory(text, 1000),
        ):  # fmt: skip
            assert "/" not in name
            assert "\0" not in name
            assert name not in (".", "..")
            assert len(name.encode()) < 256


def test_file_names_say_whose_they_are() -> None:
    ring = names.RingName(names.digest("a"), names.digest("b"), 2**64 - 2, 6)
    assert names.parse_ring(str(ring)) == ring
    assert names.parse_life(names.life_file(names.digest("a"), 77)) == (names.digest("a"), 77)
    owned = (str(ring), ring.chunk(1), ring.segment(2), names.pipe_file(ring.instance))
    assert {names.owner_of(name) for name in owned} == {ring.instance}
    assert names.owner_of(names.scratch_file(9, "inbox.00ff")) == 9
    assert names.owner_of(names.inbox_file(names.digest("a"))) is None
    for stranger in ("ring.x", "life.", "notes.txt", str(ring) + ".bak", "frame.1.2.3"):
        assert names.owner_of(stranger) is None
        assert names.parse_ring(stranger) is None


def test_scopes_differ_where_their_readable_part_is_the_same() -> None:
    assert names.scope_directory("a/b", 0) != names.scope_directory("a_b", 0)
    assert names.scope_directory("a", 0) != names.scope_directory("a", 1)


def test_an_integer_is_its_digits() -> None:
    assert names.stage_name(7) == names.stage_name("7") == "7"
    assert names.stage_name(-1) == "-1"


@pytest.mark.parametrize("key", ["x" * 65_536, "é" * 32_768, b"k", 1, None, "\ud800"])
def test_bad_keys(key: object) -> None:
    with pytest.raises(InvalidArgumentError):
        names.key_bytes(key)
    assert names.key_bytes("é" * 32_767) == "é".encode() * 32_767
