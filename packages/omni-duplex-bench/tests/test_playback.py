"""When audio would be heard, and what is left of it after a clear."""

from __future__ import annotations

import pytest

from omni_duplex_bench.audio import Interval
from omni_duplex_bench.playback import Playback

RATE = 1000


def pcm(seconds: float) -> bytes:
    return b"\1\0" * round(seconds * RATE)


def test_each_segment_starts_when_received_or_when_the_one_before_ends() -> None:
    playback = Playback()
    playback.push("a", "i", pcm(1.0), RATE, 10.0)
    playback.push("a", "i", pcm(1.0), RATE, 10.2)
    playback.push("b", "j", pcm(0.5), RATE, 14.0)
    assert playback.heard() == (Interval(10.0, 12.0), Interval(14.0, 14.5))
    assert playback.heard("b") == (Interval(14.0, 14.5),)
    assert playback.end_s == 14.5


def test_clearing_drops_what_was_not_heard() -> None:
    playback = Playback()
    playback.push("a", "i", pcm(4.0), RATE, 0.0)
    assert playback.clear(1.5) == pytest.approx(2.5)
    assert playback.heard() == (Interval(0.0, 1.5),)
    assert len(playback.segments[0].audio) == 3000
    playback.push("b", "j", pcm(1.0), RATE, 1.6)
    assert playback.heard("b") == (Interval(1.6, 2.6),)


def test_clearing_one_response_moves_the_next_up() -> None:
    playback = Playback()
    playback.push("a", "i", pcm(4.0), RATE, 0.0)
    playback.push("b", "j", pcm(1.0), RATE, 0.1)
    playback.clear(1.0, "a")
    assert playback.heard("a") == (Interval(0.0, 1.0),)
    assert playback.heard("b") == (Interval(1.0, 2.0),)
    playback.clear(0.5, "b")
    assert playback.heard("b") == ()


def test_progress_reports_only_what_was_heard_and_only_news() -> None:
    playback = Playback()
    playback.push("a", "i", pcm(1.0), RATE, 0.0)
    assert playback.progress(0.0) == []
    assert [(p.response_id, p.item_id, p.played_ms) for p in playback.progress(0.4)] == [("a", "i", 400)]
    assert playback.progress(0.4) == []
    playback.push("b", "j", pcm(1.0), RATE, 0.5)
    assert [(p.response_id, p.played_ms) for p in playback.progress(1.25)] == [("a", 1000), ("b", 250)]
    playback.clear(1.25)
    assert playback.progress(9.0) == []


def test_memory_does_not_grow_when_audio_is_not_kept() -> None:
    playback = Playback(keep_audio=False)
    for n in range(1000):
        playback.push("a", "i", pcm(0.1), RATE, n * 0.01)
    assert len(playback.segments) == 1
    assert not playback.segments[0].audio
    assert playback.end_s == pytest.approx(100.0)
