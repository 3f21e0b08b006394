"""Stage processes and the server process die; only what they owned is lost, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from omni_serve.contract import (
    ChatRequest,
    Message,
    ReplyAudio,
    ReplyDone,
    ReplyOptions,
    ReplyStarted,
    SessionFault,
    SessionOptions,
    Transcribed,
    TurnDetection,
)
from omni_serve.errors import ServeError, StageUnavailableError

Say = Callable[[str], NDArray[np.int16]]
COUNT = ChatRequest((Message("user", "Please count."),))


@pytest.fixture(scope="module")
def live(start_engine):  # type: ignore[no-untyped-def]
    return start_engine()


def kill(live, stage: str) -> int:  # type: ignore[no-untyped-def]
    replica = next(r for r in live.engine._supervisor.replicas if r.spec.name == stage)
    os.kill(replica.process.pid, signal.SIGKILL)
    return int(replica.incarnation)


async def back(live, stage: str, incarnation: int) -> None:  # type: ignore[no-untyped-def]
    """Wait until a later incarnation of a stage is up; say so with health in between."""
    replica = next(r for r in live.engine._supervisor.replicas if r.spec.name == stage)
    async with asyncio.timeout(60):
        while replica.up and replica.incarnation == incarnation:
            await live.engine._hub.change()
        health = live.engine.health()
        assert not health.ready
        assert next(s for s in health.stages if s.stage == stage).live == 0
        while not replica.up:
            await live.engine._hub.change()
    assert live.engine.health().ready


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["listen", "reply", "speak"])
def test_a_killed_stage_loses_only_what_it_owned(live, voiced: Say, stage: str) -> None:  # type: ignore[no-untyped-def]
    pcm = voiced("The moon is far away.")

    async def request(kind: str) -> str:
        """One request, held open until the kill has happened where it streams."""
        try:
            if kind == "chat":
                return "".join([p.text async for p in live.engine.chat(COUNT)])
            if kind == "speech":
                return str(sum([p.size async for p in live.engine.synthesize("The moon is far away. " * 6)]))
            return str((await live.engine.transcribe(np.tile(pcm, 20))).text)
        except StageUnavailableError as error:
            return f"lost with {error.stage}"

    async def scenario() -> None:
        talks = [await live.talk() for _ in range(4)]
        replies = []
        for talk in talks:
            await talk.session.add_message("user", "Please count.")
            replies.append(await talk.session.respond(ReplyOptions()))
        kinds = ["chat", "speech", "transcript", "chat", "speech", "transcript", "chat", "speech"]
        requests = [asyncio.ensure_future(request(kind)) for kind in kinds]
        await talks[0].until(ReplyAudio)
        incarnation = kill(live, stage)
        await back(live, stage, incarnation)
        outcomes = dict(zip(range(8), zip(kinds, await asyncio.gather(*requests))))
        owner = {"chat": "reply", "speech": "speak", "transcript": "listen"}
        for kind, outcome in outcomes.values():
            if outcome.startswith("lost"):
                assert outcome == f"lost with {stage}"
                assert owner[kind] == stage
        for talk, reply in zip(talks, replies):
            done = await talk.until(ReplyDone)
            assert done.reply_id == reply
            if stage == "speak":
                assert (done.status, done.reason) == ("failed", "stage speak ended with signal SIGKILL")
            elif stage == "listen":
                assert done.status == "completed"
            faults = [e for e in talk.seen if isinstance(e, SessionFault)]
            assert bool(faults) == (stage == "listen")
            assert not any(f.fatal for f in faults)
        # Every session goes on: a spoken turn is heard and answered.
        for talk in talks:
            before = len([e for e in talk.seen if isinstance(e, ReplyDone)])
            await talk.session.configure(SessionOptions(turn_detection=TurnDetection(interrupt_response=False)))
            await talk.hear(0.3, pcm, 1.0)
            await talk.until(ReplyDone, before + 1)
            assert any("moon" in e.text.lower() for e in talk.seen if isinstance(e, Transcribed))
            ends = [e.reply_id for e in talk.seen if isinstance(e, ReplyDone)]
            starts = [e.reply_id for e in talk.seen if isinstance(e, ReplyStarted)]
            assert sorted(ends) == sorted(starts)
            await talk.close()
        metrics = live.engine.metrics_text().decode()
        assert f'omni_stage_live{{stage="{stage}"}} 1.0' in metrics
        assert f'omni_stage_restarts_total{{stage="{stage}"}} 1.0' in metrics

    live.run(scenario())


def test_while_a_stage_is_down_requests_to_it_are_told_so(live) -> None:  # type: ignore[no-untyped-def]
    async def scenario() -> None:
        incarnation = kill(live, "reply")
        waiting = asyncio.ensure_future(back(live, "reply", incarnation))
        while live.engine.health().ready:
            await live.engine._hub.change()
        with pytest.raises(ServeError, match="reply"):
            await anext(live.engine.chat(COUNT))
        await waiting
        assert (await anext(live.engine.chat(COUNT))).text == "one,"

    live.run(scenario())


@pytest.mark.slow
def test_a_hundred_dropped_sessions_leave_everything_flat(live, voiced: Say) -> None:  # type: ignore[no-untyped-def]
    pcm = voiced("The moon is far away.")
    pids = [r.process.pid for r in live.engine._supervisor.replicas] + [os.getpid()]

    def footprint() -> tuple[list[int], int, int]:
        fds = [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]
        threads = sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids)
        return fds, threads, sum(len(files) for _, _, files in os.walk("/dev/shm"))

    def memory_kib() -> list[int]:
        found = []
        for pid in pids:
            text = pathlib.Path(f"/proc/{pid}/status").read_text()
            found.append(int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]))
        return found

    async def drop(count: int) -> None:
        for _ in range(count):
            talk = await live.talk()
            await talk.session.add_message("user", "Please count.")
            await talk.session.respond(ReplyOptions())
            await talk.hear(pcm[:8000])
            await talk.close()

    async def scenario() -> None:
        # Pools are at their full width before anything is counted.
        held = [live.engine.chat(COUNT) for _ in range(8)]
        for one in held:
            await anext(one)
        for one in held:
            await one.aclose()
        await drop(20)
        await live.engine.transcribe(pcm)
        before, memory = footprint(), memory_kib()
        await drop(100)
        # A round through every stage: whatever was dropped has been seen by now.
        await live.engine.transcribe(pcm)
        assert [p async for p in live.engine.synthesize("Hello.")]
        after = footprint()
        assert max(b - a for a, b in zip(before[0], after[0])) <= 2
        assert after[1] - before[1] <= 2
        assert after[2] == before[2]
        grown = [b - a for a, b in zip(memory, memory_kib())]
        assert max(grown) < 20_000, grown
        assert not any(r.bound for r in live.engine._supervisor.replicas)

    live.run(scenario())
