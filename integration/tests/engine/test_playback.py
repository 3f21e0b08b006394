from __future__ import annotations

import pytest

from omni_serve.engine.playback import PlaybackClock

hypothesis = pytest.importorskip("hypothesis", reason="the properties need hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

_STEP = st.tuples(st.sampled_from(["sent", "ack"]), st.floats(-500, 5000), st.floats(0, 3))


def test_pieces_play_one_after_the_other_however_early_they_came() -> None:
    clock = PlaybackClock()
    clock.sent(400, 10.0)
    clock.sent(600, 10.1)
    assert clock.heard_ms(10.3) == pytest.approx(300)
    assert clock.playing(10.9)
    assert clock.heard_ms(11.0) == pytest.approx(1000)
    assert not clock.playing(11.0)


def test_a_gap_between_pieces_is_not_heard() -> None:
    clock = PlaybackClock()
    clock.sent(100, 10.0)
    clock.sent(100, 15.0)
    assert clock.heard_ms(15.05) == pytest.approx(150)


def test_an_acknowledged_position_corrects_what_was_assumed() -> None:
    clock = PlaybackClock()
    clock.sent(1000, 10.0)
    clock.acknowledge(200, 10.9)
    assert clock.heard_ms(10.9) == pytest.approx(200)
    assert clock.heard_ms(11.0) == pytest.approx(300)
    assert clock.playing(11.6)
    clock.acknowledge(1e9, 11.6)
    assert not clock.playing(11.6)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(_STEP, max_size=30))
def test_what_was_heard_is_never_more_than_was_sent_nor_less_than_none(steps: list[tuple[str, float, float]]) -> None:
    clock, now_s, sent_ms = PlaybackClock(), 100.0, 0.0
    for what, amount_ms, later_s in steps:
        now_s += later_s
        before = clock.heard_ms(now_s)
        if what == "sent":
            duration_ms = abs(amount_ms)
            clock.sent(duration_ms, now_s)
            sent_ms += duration_ms
            # A new piece changes nothing of what was heard until now.
            assert clock.heard_ms(now_s) == pytest.approx(before, abs=1e-3)
        else:
            clock.acknowledge(amount_ms, now_s)
            assert clock.heard_ms(now_s) == pytest.approx(min(max(amount_ms, 0.0), sent_ms), abs=1e-3)
        assert -1e-6 <= clock.heard_ms(now_s) <= sent_ms + 1e-3
        assert clock.heard_ms(now_s) <= clock.heard_ms(now_s + 0.5) + 1e-6
    assert clock.heard_ms(now_s + 1e6) == pytest.approx(sent_ms)
