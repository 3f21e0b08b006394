"""The schedule: every sample once, on time, with the last one held back where the commit must carry it."""

from __future__ import annotations

import numpy as np
import pytest

from omni_duplex_bench import PacingConfig, RealtimeClient, UsageError
from omni_duplex_bench.pacing import Pacer, fills_units, plan_chunks
from omni_duplex_bench.testing import Script, ScriptedServer, speechlike


@pytest.mark.parametrize(
    ("samples", "rate", "ms"), [(44_100, 44_100, 15), (16_000, 16_000, 200), (7, 16_000, 200), (1, 8000, 5)]
)
def test_chunks_cover_every_sample_once_without_drift(samples: int, rate: int, ms: int) -> None:
    chunks = plan_chunks(samples, rate, ms)
    assert [c.start for c in chunks] == [0, *(c.end for c in chunks[:-1])]
    assert chunks[-1].end == samples
    for index, chunk in enumerate(chunks[:-1], 1):
        assert chunk.due_s == pytest.approx(index * ms / 1000, abs=1 / rate)


def test_nothing_needs_no_chunk() -> None:
    assert plan_chunks(0, 16_000, 200) == ()


def test_the_last_sample_is_held_back_into_a_chunk_of_its_own() -> None:
    chunks = plan_chunks(16_000, 16_000, 200, hold_back=True)
    assert (chunks[-2].end, chunks[-1].start, chunks[-1].end) == (15_999, 15_999, 16_000)
    assert plan_chunks(1, 16_000, 200, hold_back=True)[-1].end == 1


@pytest.mark.parametrize(
    ("samples", "period", "fills"),
    [
        (16_000, 1000, True),
        (16_001, 1000, False),
        (8_000, 500, True),
        (16_000, None, False),
        (0, 1000, False),
        (16_000, 0, False),
    ],
)
def test_units_are_filled_exactly_or_not(samples: int, period: int | None, fills: bool) -> None:
    assert fills_units(samples, 16_000, period) is fills


def test_frames_go_with_the_chunk_that_reaches_their_time() -> None:
    chunks = plan_chunks(32_000, 16_000, 200, frame_times_s=(0.5, 1.5, 9.0))
    carried = {frame: chunk.due_s for chunk in chunks for frame in chunk.frames}
    assert carried == {0: pytest.approx(0.6), 1: pytest.approx(1.6), 2: pytest.approx(2.0)}


def test_chunk_length_is_bounded() -> None:
    with pytest.raises(UsageError):
        PacingConfig(chunk_ms=1)


async def test_an_input_of_whole_units_is_committed_with_its_last_sample() -> None:
    async with ScriptedServer(Script(chunk_period_ms=500)) as server, RealtimeClient(server.url) as client:
        await client.configure()
        sent: list[int] = []
        client.observe_sent(lambda c, at: sent.append(len(getattr(c, "audio", "")) * 3 // 4))
        pacer = Pacer(client, speechlike(0.5, 16_000), rate_hz=16_000, config=PacingConfig(chunk_ms=100))
        assert await pacer.run() == "response"
        # 5 chunks of 1600 samples, the last one cut into 1599 and 1: the commit carries a sample (one base64 quad).
        assert [size for size in sent if size][-1] == 3
        assert len(pacer.trace.lags_s) == 6


async def test_input_is_resampled_to_the_declared_rate() -> None:
    async with ScriptedServer(Script(extended=False)) as server, RealtimeClient(server.url) as client:
        await client.configure()
        assert client.input_rate_hz == 24_000
        pacer = Pacer(client, speechlike(0.3, 44_100), rate_hz=44_100, config=PacingConfig(chunk_ms=100))
        await pacer.run()
        total = sum(int(e["audio"].split()[0][1:]) for e in server.received if "audio" in e)
        assert total == pytest.approx(0.3 * 24_000 * 2 * 4 / 3, rel=0.01)
        assert pacer.trace.input_s == pytest.approx(0.3)


async def test_a_detector_that_never_ends_the_turn_is_helped_by_a_commit() -> None:
    script = Script(turns="server", silence_s=60.0)
    async with ScriptedServer(script) as server, RealtimeClient(server.url) as client:
        await client.configure()
        config = PacingConfig(chunk_ms=100, tail_s=0.3, decision_timeout_s=0.5)
        quiet = np.zeros(3200, np.int16)
        pacer = Pacer(client, quiet, rate_hz=16_000, config=config)
        await pacer.run()
        assert pacer.trace.commit_was_fallback
        assert pacer.trace.speech == ()


async def test_frames_are_sent_where_taken_and_counted_where_not() -> None:
    frames = [(0.05, b"jpeg"), (0.15, b"more")]
    for extended in (True, False):
        async with ScriptedServer(Script(extended=extended)) as server, RealtimeClient(server.url) as client:
            await client.configure()
            config = PacingConfig(chunk_ms=100)
            pacer = Pacer(client, speechlike(0.2, 16_000), rate_hz=16_000, config=config, frames=frames)
            await pacer.run()
            carried = sum(len(e.get("video_frames", ())) for e in server.received)
            assert carried == pacer.trace.frames_sent == (2 if extended else 0)
            assert pacer.trace.frames_withheld == (0 if extended else 2)
