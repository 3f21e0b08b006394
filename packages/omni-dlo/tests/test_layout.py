"""Packed blocks keep sharing and alignment."""

from __future__ import annotations

import pytest

from omni_dlo.layout import ALIGNMENT, ByteRange, pack

hypothesis = pytest.importorskip("hypothesis", reason="needs hypothesis: pip install hypothesis")
st = hypothesis.strategies

ITEMS = st.sampled_from([1, 2, 4, 8])


@st.composite
def ranges(draw: st.DrawFn) -> list[ByteRange]:
    made = []
    for _ in range(draw(st.integers(0, 12))):
        item = draw(ITEMS)
        start = draw(st.integers(0, 40)) * item
        made.append(ByteRange(draw(st.integers(0, 2)), start, start + draw(st.integers(0, 20)) * item, item))
    return made


@hypothesis.settings(derandomize=True, max_examples=300, deadline=None)
@hypothesis.given(items=ranges())
def test_bytes_arrive_where_the_places_say(items: list[ByteRange]) -> None:
    layout = pack(items)
    storages = {source: [(source, at) for at in range(2000)] for source in range(3)}
    buffer: list[object] = [None] * layout.nbytes
    for segment in layout.segments:
        assert segment.offset % ALIGNMENT == 0
        assert all(cell is None for cell in buffer[segment.offset : segment.offset + segment.nbytes])
        buffer[segment.offset : segment.offset + segment.nbytes] = storages[segment.source][segment.start : segment.end]
    for item, place in zip(items, layout.places):
        assert buffer[place : place + item.end - item.start] == storages[item.source][item.start : item.end]
        assert place % item.itemsize == 0


def test_overlapping_ranges_share_and_neighbours_do_not() -> None:
    layout = pack([ByteRange("s", 0, 16, 4), ByteRange("s", 8, 24, 4), ByteRange("s", 24, 32, 4)])
    assert len(layout.segments) == 2
    assert layout.places == (0, 8, 256)
    assert layout.payload_bytes == 32
