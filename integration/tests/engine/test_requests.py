from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from omni_serve.contract import ChatPiece, ChatRequest, MediaRequest, Message, SessionOptions
from omni_serve.engine.config import EngineConfig
from omni_serve.errors import InvalidRequestError, OverloadedError, StageUnavailableError, UnsupportedError

Say = Callable[[str], NDArray[np.int16]]
COUNT = ChatRequest((Message("user", "Please count."),))


@pytest.fixture(scope="module")
def live(start_engine):  # type: ignore[no-untyped-def]
    return start_engine(EngineConfig(max_sessions=2, queue_per_slot=1))


def test_a_chat_comes_in_pieces_with_counts_at_its_end(live) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> list[ChatPiece]:
        return [piece async for piece in live.engine.chat(COUNT)]

    pieces = live.run(scenario())
    assert "".join(p.text for p in pieces).startswith("one, two, three")
    assert [p.finish_reason for p in pieces[:-1]] == [None] * (len(pieces) - 1)
    last = pieces[-1]
    assert (last.finish_reason, last.tokens_in, last.tokens_out) == ("stop", 2, 14)
    assert last.metrics is not None
    assert len(last.metrics.itls_ms) == 13


def test_speech_and_its_transcript_agree(live) -> None:  # type: ignore[no-untyped-def]
    import soxr

    async def scenario() -> str:
        pieces = [p async for p in live.engine.synthesize("The moon is far away. It is made of stone.", speed=0.9)]
        audio = soxr.resample(np.concatenate(pieces), 24_000, 16_000)
        transcript = await live.engine.transcribe(np.asarray(audio, np.int16), language="en")
        assert transcript.duration_s == pytest.approx(audio.size / 16_000)
        assert transcript.segments[0][0] == 0.0
        return str(transcript.text).lower()

    text = live.run(scenario())
    assert "moon is far away" in text
    assert "made of stone" in text


def test_a_persons_recording_is_written_down(live, spoken: Say) -> None:  # type: ignore[no-untyped-def]
    assert "left" in live.run(live.engine.transcribe(spoken("Rear_Left"))).text.lower()
    assert live.run(live.engine.transcribe(np.zeros(0, np.int16))).text == ""


def test_what_this_deployment_cannot_do_is_said(live) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnsupportedError, match="no stage of kind media"):
        live.run(live.engine.generate(MediaRequest("a tree")))
    with pytest.raises(InvalidRequestError, match="'fr'"):
        live.run(live.engine.transcribe(np.zeros(16_000, np.int16), language="fr"))

    async def speak(text: str, speed: float) -> None:
        async for _ in live.engine.synthesize(text, speed=speed):
            pass

    with pytest.raises(InvalidRequestError, match="nothing to pronounce"):
        live.run(speak("...", 1.0))
    with pytest.raises(InvalidRequestError, match="speed is 9"):
        live.run(speak("Hello.", 9.0))


def test_one_request_too_many_is_refused_and_a_place_comes_free(live) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        # Four slots and a queue of four.
        held = [live.engine.chat(COUNT) for _ in range(8)]
        for one in held:
            await anext(one)
        with pytest.raises(OverloadedError) as caught:
            await anext(live.engine.chat(COUNT))
        assert caught.value.retry_after_s >= 1
        await held[0].aclose()
        assert (await anext(live.engine.chat(COUNT))).text == "one,"
        for one in held:
            await one.aclose()

    live.run(scenario())
    assert b'omni_refused_total{kind="reply"} 1.0' in live.engine.metrics_text()


def test_a_session_beyond_the_limit_is_refused(live) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        two = [await live.engine.open_session(SessionOptions()) for _ in range(2)]
        with pytest.raises(OverloadedError, match="2 sessions are open"):
            await live.engine.open_session(SessionOptions())
        await two[0].close()
        await two[0].close()
        third = await live.engine.open_session(SessionOptions())
        for session in (two[1], third):
            await session.close()

    live.run(scenario())
    assert b"omni_sessions 0.0" in live.engine.metrics_text()


def test_a_closed_reader_frees_the_stage(live) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        for _ in range(20):
            chat = live.engine.chat(COUNT)
            await anext(chat)
            await chat.aclose()
        assert not any(replica.bound for replica in live.engine._supervisor.replicas)

    live.run(scenario())


def test_sleep_and_wake(live) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        with pytest.raises(InvalidRequestError, match="no stage 'reply2'"):
            await live.engine.sleep(["reply", "reply2"], 1)
        with pytest.raises(InvalidRequestError, match="level is 7"):
            await live.engine.sleep(["reply"], 7)
        assert all(s.live and not s.asleep for s in live.engine.health().stages)
        await live.engine.sleep(["reply"], 1)
        reply = next(s for s in live.engine.health().stages if s.stage == "reply")
        assert (reply.live, reply.asleep, reply.restarts) == (0, True, 0)
        with pytest.raises(StageUnavailableError, match="asleep"):
            await anext(live.engine.chat(COUNT))
        await live.engine.wake([])
        assert all(s.live and not s.asleep for s in live.engine.health().stages)
        assert (await anext(live.engine.chat(COUNT))).text == "one,"

    live.run(scenario())


def test_a_long_speech_leaves_the_stage_as_small_as_it_was(live) -> None:  # type: ignore[no-untyped-def]
    (mouth,) = [r for r in live.engine._supervisor.replicas if r.spec.kind == "speak"]

    def anonymous_kib() -> int:
        text = pathlib.Path(f"/proc/{mouth.process.pid}/smaps_rollup").read_text()
        return int(next(line for line in text.splitlines() if line.startswith("Pss_Anon")).split()[1])

    async def scenario() -> None:
        before = anonymous_kib()
        text = "the moon is far away and made of stone and nobody lives there as far as anybody knows today, " * 2
        assert [p async for p in live.engine.synthesize(text)]
        # The mouth has one thread: what it did after the long text is done once it has spoken a short one.
        assert [p async for p in live.engine.synthesize("Hi.")]
        assert anonymous_kib() < before + 40_000

    live.run(scenario())


def test_a_deadline_ends_a_request(start_engine, voiced: Say) -> None:  # type: ignore[no-untyped-def]
    from omni_serve.errors import DeadlineError

    live = start_engine(EngineConfig(deadline_s=0.001))

    async def scenario() -> None:
        with pytest.raises(DeadlineError, match=r"within 0\.001 s"):
            await live.engine.transcribe(voiced("The moon is far away."))
        await asyncio.sleep(0)
        assert not any(replica.bound for replica in live.engine._supervisor.replicas)

    live.run(scenario())
