"""Where everything stands, and marks that notice damage."""

from __future__ import annotations

import pytest

from omni_shmring import layout


@pytest.mark.parametrize("ring_bytes", [0, 4096, 5000, 4 << 20, 64 << 20])
def test_parts_follow_each_other_aligned(ring_bytes: int) -> None:
    geometry = layout.Geometry.for_ring(ring_bytes)
    index = geometry.index
    assert 64 <= geometry.slots <= 1024
    assert (layout.W_TAKEN + layout.MAX_RECEIVERS) * 8 <= layout.HEADER_BYTES == 8 * index.marks
    assert 8 * index.claims == 8 * index.marks + 8 * geometry.slots
    assert index.bodies % 64 == 0
    assert geometry.data_offset % layout.PAGE == 0
    assert geometry.data_offset >= index.end
    assert geometry.file_bytes >= geometry.data_offset + ring_bytes


def test_a_mark_is_its_parts_and_sees_a_changed_byte() -> None:
    for number, slot in ((1, 0), (2**38 - 1, layout.MAX_SLOTS - 1), (123_456_789, 77)):
        mark = layout.pack_mark(number, slot)
        assert mark < 1 << 64
        assert (layout.mark_number(mark), layout.mark_slot(mark), layout.mark_holds(mark)) == (number, slot, True)
        noticed = [not layout.mark_holds(mark ^ flip << 8 * byte) for byte in range(8) for flip in range(1, 256)]
        assert sum(noticed) >= len(noticed) - 8  # a byte that changes by 251 is the one change it cannot see
    assert layout.mark_holds(0)
