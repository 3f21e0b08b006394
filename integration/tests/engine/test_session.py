from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from omni_serve.contract import (
    Listening,
    Message,
    ReplyAudio,
    ReplyDone,
    ReplyOptions,
    ReplyStarted,
    ReplyText,
    SessionOptions,
    SpeechStarted,
    Transcribed,
    TurnCommitted,
    TurnDetection,
)
from omni_serve.errors import ActiveReplyError, InvalidRequestError

Pcm = NDArray[np.int16]
Say = Callable[[str], Pcm]


@pytest.fixture(scope="module")
def live(start_engine):  # type: ignore[no-untyped-def]
    return start_engine()


def test_a_spoken_turn_is_written_down_answered_and_spoken(live, voiced: Say) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        talk = await live.talk()
        await talk.hear(0.5, voiced("The moon is far away."), 1.0)
        done = await talk.until(ReplyDone)
        assert talk.kinds()[:5] == ["SpeechStarted", "SpeechStopped", "TurnCommitted", "Transcribed", "ReplyStarted"]
        assert done.status == "completed"
        assert done.text.lower() == "you said: the moon is far away. that is what i heard."
        text = "".join(e.delta for e in talk.seen if isinstance(e, ReplyText))
        audio = np.concatenate([e.pcm for e in talk.seen if isinstance(e, ReplyAudio)])
        assert text == done.text
        assert done.audio_ms == round(audio.size / 24)
        assert set(done.stages) == {"0", "1", "2"}
        timing = done.stages["0"]
        assert timing.num_tokens_out == len(timing.itls_ms) + 1 == 12
        import soxr

        heard = await live.engine.transcribe(np.asarray(soxr.resample(audio, 24_000, 16_000), np.int16))
        assert "moon is far away" in heard.text.lower()
        await talk.close()

    live.run(scenario())


def test_speech_over_a_reply_stops_it_and_is_answered(live, voiced: Say) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        talk = await live.talk()
        await talk.hear(0.3, voiced("Please count for me."), 1.0)
        started = await talk.until(ReplyStarted)
        await talk.until(ReplyAudio)
        await talk.hear(voiced("Hello there, what is your name?"))
        spoke = await talk.until(SpeechStarted, 2)
        assert spoke.interrupts == started.reply_id
        await talk.hear(1.0)
        second = await talk.until(ReplyStarted, 2)
        await talk.until(ReplyDone, 1, lambda e: e.reply_id == second.reply_id)
        kept = talk.session._conversation.messages("")  # type: ignore[attr-defined]
        assert kept[0] == Message("user", "Please count for me.")
        # Of a reply that was cut off after no time at all, next to nothing was heard.
        said = [m.content for m in kept if m.role == "assistant"]
        assert not any("fourteen" in words for words in said)
        await talk.close()

    live.run(scenario())


@pytest.mark.parametrize("noise", ["Mhm.", "Yeah."])
def test_a_short_listening_noise_does_not_stop_a_reply(live, voiced: Say, noise: str) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        talk = await live.talk()
        await talk.hear(0.3, voiced("Please count for me."), 1.0)
        await talk.until(ReplyAudio)
        await talk.hear(0.3, voiced(noise), 1.0)
        listening = await talk.until(Listening)
        assert listening.reason == "backchannel"
        done = await talk.until(ReplyDone)
        assert done.status == "completed"
        assert len([e for e in talk.seen if isinstance(e, SpeechStarted)]) == 1
        await talk.close()

    live.run(scenario())


def test_a_short_word_that_asks_for_the_floor_stops_a_reply(live, voiced: Say) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        talk = await live.talk()
        await talk.session.add_message("user", "Please count.")
        reply = await talk.session.respond(ReplyOptions())
        await talk.until(ReplyAudio)
        await talk.hear(0.3, voiced("Wait."), 1.0)
        assert (await talk.until(SpeechStarted)).interrupts == reply
        await talk.until(ReplyStarted, 2)
        await talk.close()

    live.run(scenario())


def test_turns_by_hand(live, voiced: Say) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        talk = await live.talk(SessionOptions(turn_detection=None, modalities=("text",)))
        with pytest.raises(InvalidRequestError, match="nothing was appended"):
            await talk.session.commit()
        await talk.hear(voiced("This is forgotten."))
        await talk.session.clear()
        with pytest.raises(InvalidRequestError, match="nothing was appended"):
            await talk.session.commit()
        await talk.hear(0.2, voiced("The moon is far away."), 0.2)
        turn = await talk.session.commit()
        assert (await talk.until(TurnCommitted)).turn_id == turn
        assert re.sub(r"\W", "", (await talk.until(Transcribed)).text).lower() == "themoonisfaraway"
        assert (await talk.until(Listening)).reason == "not_requested"
        reply = await talk.session.respond(ReplyOptions())
        done = await talk.until(ReplyDone)
        assert (done.reply_id, done.status, done.audio_ms) == (reply, "completed", 0)
        assert not [e for e in talk.seen if isinstance(e, ReplyAudio | SpeechStarted)]
        await talk.close()

    live.run(scenario())


def test_one_reply_at_a_time_and_one_end_each(live) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        talk = await live.talk()
        assert await talk.session.cancel() is None
        await talk.session.add_message("user", "Please count.")
        first = await talk.session.respond(ReplyOptions())
        with pytest.raises(ActiveReplyError) as caught:
            await talk.session.respond(ReplyOptions())
        assert caught.value.reply_id == first
        assert await talk.session.cancel() == first
        second = await talk.session.respond(ReplyOptions(max_output_tokens=3))
        await talk.until(ReplyDone, 2)
        ends = {e.reply_id: (e.status, e.reason) for e in talk.seen if isinstance(e, ReplyDone)}
        assert ends == {first: ("cancelled", "client_cancelled"), second: ("incomplete", "max_output_tokens")}
        await talk.close()
        assert len([e for e in talk.seen if isinstance(e, ReplyDone)]) == 2

    live.run(scenario())


def test_truncation_keeps_what_was_heard(live) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        talk = await live.talk()
        await talk.session.add_message("user", "Please count.")
        reply = await talk.session.respond(ReplyOptions())
        done = await talk.until(ReplyDone)
        await talk.session.truncate(reply, done.audio_ms // 2)
        await talk.session.played(reply, 100)
        await talk.session.truncate("resp_unknown", 5)
        (kept,) = [m.content for m in talk.session._conversation.messages("") if m.role == "assistant"]  # type: ignore[attr-defined]
        assert done.text.startswith(kept[:10])
        assert 0.2 < len(kept) / len(done.text) < 0.8
        await talk.close()

    live.run(scenario())


def test_without_create_response_it_only_listens(live, voiced: Say) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        talk = await live.talk(SessionOptions(turn_detection=TurnDetection(create_response=False)))
        await talk.hear(0.3, voiced("The moon is far away."), 1.0)
        assert (await talk.until(Listening)).reason == "not_requested"
        assert not [e for e in talk.seen if isinstance(e, ReplyStarted)]
        await talk.close()
        with pytest.raises(InvalidRequestError, match="closed"):
            await talk.session.append(np.zeros(100, np.int16))

    live.run(scenario())


def test_without_interruption_a_turn_waits_for_the_replys_end(live, voiced: Say) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        options = SessionOptions(turn_detection=TurnDetection(interrupt_response=False))
        talk = await live.talk(options)
        await talk.session.add_message("user", "Please count.")
        first = await talk.session.respond(ReplyOptions())
        await talk.hear(0.3, voiced("Hello there, what is your name?"), 1.0)
        committed = await talk.until(TurnCommitted)
        await talk.until(ReplyDone, 2)
        replies = [e for e in talk.seen if isinstance(e, ReplyDone)]
        assert [e.status for e in replies] == ["completed", "completed"]
        assert replies[0].reply_id == first
        assert not [e for e in talk.seen if isinstance(e, SpeechStarted) and e.interrupts]
        assert committed.turn_id == next(e.turn_id for e in talk.seen if isinstance(e, ReplyStarted) and e.turn_id)
        await talk.close()

    live.run(scenario())


def test_audio_is_never_dropped_however_fast_it_comes(live, voiced: Say) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        talk = await live.talk(SessionOptions(turn_detection=TurnDetection(create_response=False)))
        pcm = voiced("The moon is far away.")
        rest = np.zeros(16_000 * 45, np.int16)
        await talk.session.append(np.concatenate([rest, pcm, rest[: 16_000 * 2]]))
        said = await talk.until(Transcribed)
        assert "moon" in said.text.lower()
        assert (await talk.until(SpeechStarted)).at_ms > 44_000
        await talk.close()

    live.run(scenario())
