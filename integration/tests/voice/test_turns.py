from __future__ import annotations

import pytest

from omni_serve.voice.config import TurnConfig
from omni_serve.voice.parts import FRAME_MS, FRAME_SAMPLES
from omni_serve.voice.turns import Onset, Pause, Sustained, TurnDetector, TurnEnd, TurnEvent

hypothesis = pytest.importorskip("hypothesis", reason="the properties need hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

CONFIG = TurnConfig()
PER_MS = 16


def run(detector: TurnDetector, *stretches: tuple[float, int]) -> list[TurnEvent]:
    """Feed stretches of (probability, frames)."""
    return [event for p, frames in stretches for _ in range(frames) for event in detector.frame(p)]


def frames(milliseconds: int) -> int:
    return -(-milliseconds // FRAME_MS)


def test_a_turn_begins_before_its_speech_and_ends_after_half_a_second_of_silence() -> None:
    events = run(TurnDetector(CONFIG), (0.0, 20), (0.9, 30), (0.0, frames(500)))
    assert [type(e) for e in events] == [Onset, Sustained, Pause, TurnEnd]
    onset, _, _, end = events
    assert isinstance(onset, Onset)
    assert isinstance(end, TurnEnd)
    assert onset.speech == 20 * FRAME_SAMPLES
    assert onset.start == onset.speech - 200 * PER_MS
    assert end.speech_end == 50 * FRAME_SAMPLES
    assert end.end == end.speech_end + 200 * PER_MS
    assert end.sustained


def test_a_click_is_no_turn() -> None:
    assert run(TurnDetector(CONFIG), (0.0, 10), (1.0, 1), (0.0, 40)) == []


def test_a_short_sound_is_not_sustained() -> None:
    events = run(TurnDetector(CONFIG), (0.0, 10), (1.0, frames(250)), (0.0, 20))
    assert [type(e) for e in events] == [Onset, Pause, TurnEnd]
    assert not events[-1].sustained  # type: ignore[union-attr]


def test_a_pause_shorter_than_the_limit_does_not_end_the_turn() -> None:
    events = run(TurnDetector(CONFIG), (1.0, 20), (0.0, frames(300)), (1.0, 20), (0.0, 20))
    assert [type(e) for e in events] == [Onset, Sustained, Pause, Pause, TurnEnd]


def test_a_prefix_never_reaches_into_the_turn_before() -> None:
    detector = TurnDetector(CONFIG)
    first = run(detector, (1.0, 20), (0.0, frames(500)))[-1]
    second = run(detector, (1.0, 3))[0]
    assert isinstance(first, TurnEnd)
    assert isinstance(second, Onset)
    assert second.start >= first.end


def test_an_endless_speaker_is_closed() -> None:
    config = TurnConfig(max_turn_ms=2000)
    events = run(TurnDetector(config), (1.0, frames(5000)))
    ends = [e for e in events if isinstance(e, TurnEnd)]
    assert len(ends) == 2
    assert all(e.end - e.start <= 2000 * PER_MS + FRAME_SAMPLES for e in ends)


def test_finish_closes_by_hand_and_clear_forgets() -> None:
    detector = TurnDetector(CONFIG)
    assert detector.finish() is None
    run(detector, (1.0, 10))
    ended = detector.finish()
    assert ended is not None
    assert ended.end == 10 * FRAME_SAMPLES
    run(detector, (1.0, 10))
    detector.clear()
    assert not detector.in_turn
    assert detector.keep_from == detector.position


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 40)), max_size=30),
    st.integers(0, 400),
    st.integers(32, 1500),
)
def test_any_stream_gives_well_formed_turns(
    stretches: list[tuple[float, int]], prefix_ms: int, silence_ms: int
) -> None:
    config = TurnConfig(prefix_ms=prefix_ms, silence_ms=silence_ms, early_ms=min(224, silence_ms))
    detector = TurnDetector(config)
    open_start: int | None = None
    sustained = False
    last_end = 0
    for probability, count in stretches:
        for _ in range(count):
            keep = detector.keep_from
            for event in detector.frame(probability):
                match event:
                    case Onset(start=start, speech=speech):
                        assert open_start is None
                        assert last_end <= start <= speech < detector.position
                        # What the caller was told it could let go is never asked for again.
                        assert start >= keep
                        open_start, sustained = start, False
                    case Sustained():
                        assert open_start is not None
                        assert not sustained
                        sustained = True
                    case Pause(start=start, end=end):
                        assert start == open_start
                        assert start < end <= detector.position
                    case TurnEnd(start=start, end=end, speech_end=speech_end):
                        assert start == open_start
                        assert start < speech_end <= end <= detector.position
                        assert event.sustained == sustained
                        open_start, last_end = None, end
            assert detector.in_turn == (open_start is not None)
