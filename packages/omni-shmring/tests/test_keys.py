"""Chunks of a request, found by its prefix."""

from __future__ import annotations

import pytest

from omni_shmring.keys import KeyIndex

hypothesis = pytest.importorskip("hypothesis", reason="waits for hypothesis: pip install hypothesis")
st = hypothesis.strategies
KEYS = st.text("ab:01", max_size=5).map(str.encode)


@hypothesis.settings(max_examples=300, derandomize=True, deadline=None)
@hypothesis.given(st.sets(KEYS), st.sets(KEYS), KEYS, st.booleans())
def test_the_index_finds_what_a_search_finds(keys: set[bytes], gone: set[bytes], prefix: bytes, early: bool) -> None:
    index, pending = KeyIndex(), set[bytes]()
    if early:
        index.build([])
    for key in sorted(keys):
        pending.add(key)
        if index.active:
            index.add(key)
    if not early:
        index.build(pending)
    for key in gone & keys:
        pending.discard(key)
        if index.active:
            index.discard(key)
    expected = sorted(k for k in pending if k.startswith(prefix) and k[len(prefix) :].isdigit())
    assert sorted(index.chunks(prefix, pending)) == expected
    assert sorted(KeyIndex().chunks(prefix, pending)) == expected
    if not pending and keys:
        assert not index.active


def test_finding_a_request_looks_at_its_own_chunks_only() -> None:
    index = KeyIndex()
    others = [b"other-%d:%d" % (n, c) for n in range(500) for c in range(4)]
    index.build([*others, b"req:1", b"req:2"])

    class Untouchable(frozenset[bytes]):
        def __iter__(self) -> object:  # type: ignore[override]
            raise AssertionError("everything pending was searched")

    assert sorted(index.chunks(b"req:", Untouchable(others))) == [b"req:1", b"req:2"]
