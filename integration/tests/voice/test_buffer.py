from __future__ import annotations

import numpy as np
import pytest

from omni_serve.voice.buffer import AudioBuffer

hypothesis = pytest.importorskip("hypothesis", reason="the properties need hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100_000), st.floats(0, 1)), max_size=20))
def test_what_is_held_is_what_was_appended(steps: list[tuple[int, float]]) -> None:
    whole = np.arange(2_000_000, dtype=np.int64).astype(np.int16)
    buffer = AudioBuffer()
    for count, share in steps:
        buffer.append(whole[buffer.end : buffer.end + count])
        buffer.forget(int(share * buffer.end))
        assert np.array_equal(buffer.cut(buffer.base, buffer.end), whole[buffer.base : buffer.end])


def test_what_was_let_go_or_never_came_is_refused() -> None:
    buffer = AudioBuffer()
    buffer.append(np.ones(100, np.int16))
    buffer.forget(50)
    with pytest.raises(ValueError, match="not within"):
        buffer.cut(49, 60)
    with pytest.raises(ValueError, match="not within"):
        buffer.cut(60, 101)


def test_forgetting_ahead_of_the_end_keeps_the_positions() -> None:
    buffer = AudioBuffer()
    buffer.append(np.ones(10, np.int16))
    buffer.forget(1000)
    assert (buffer.base, buffer.end) == (10, 10)
