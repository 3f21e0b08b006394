"""Two processes of a stage: work is spread over them, and the end of one costs only what it had."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from omni_serve.contract import ChatRequest, Message, SessionFault, SessionOptions, Transcribed, TurnDetection
from omni_serve.engine.config import EngineConfig
from omni_serve.engine.engine import LocalEngine
from omni_serve.errors import OverloadedError, StageUnavailableError, StartupError
from omni_serve.stages.spec import StageSpec

Say = Callable[[str], NDArray[np.int16]]
COUNT = ChatRequest((Message("user", "Please count."),))


class Running:
    """An engine with the deterministic replier, its processes by name."""

    def __init__(self, *specs: StageSpec, config: EngineConfig | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.engine = LocalEngine(specs, (), "", config or EngineConfig())
        self.run = self.loop.run_until_complete

    def replica(self, name: str):  # type: ignore[no-untyped-def]
        return next(r for r in self.engine._supervisor.replicas if r.name == name)  # type: ignore[union-attr]

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.replica(name).process.pid, number)

    async def until_up(self, name: str, incarnation: int) -> None:
        """Wait until a process is up that was started after this one."""
        async with asyncio.timeout(60):
            while not (self.replica(name).up and self.replica(name).incarnation > incarnation):
                await self.engine._hub.change()  # type: ignore[union-attr]

    async def chat(self) -> str:
        try:
            return "".join([piece.text async for piece in self.engine.chat(COUNT)])
        except StageUnavailableError as error:
            return f"lost with {error.stage}"

    def __enter__(self) -> Running:
        self.run(self.engine.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.engine.close())
        self.loop.close()


@pytest.fixture(scope="module")
def two() -> Iterator[Running]:
    with Running(StageSpec("mind", "reply", "rules", width=2, replicas=2)) as running:
        yield running


def test_requests_are_spread_and_a_killed_replica_loses_only_its_own(two: Running) -> None:
    async def scenario() -> None:
        incarnation = two.replica("mind.0").incarnation
        two.signal("mind.0", signal.SIGSTOP)
        chats = [asyncio.ensure_future(two.chat()) for _ in range(4)]
        # Those of the other process are answered while this one says nothing.
        answered, waiting = set(), set(chats)
        async with asyncio.timeout(30):
            while len(answered) < 2:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                answered |= done
        assert len(two.replica("mind.0").bound) == len(waiting) == 2
        two.signal("mind.0", signal.SIGKILL)
        assert [await one for one in waiting] == ["lost with mind"] * 2
        assert all(one.result().startswith("one, two, three") for one in answered)
        health = two.engine.health()
        assert health.ready, "one of two is enough to serve"
        assert (health.stages[0].live, health.stages[0].wanted) == (1, 2)
        assert (await two.chat()).startswith("one, two, three")
        await two.until_up("mind.0", incarnation)
        assert two.engine.health().stages[0].live == 2
        assert not two.replica("mind.0").bound
        assert not two.replica("mind.1").bound

    two.run(scenario())


def test_ten_times_the_admissible_load_is_refused_and_what_was_accepted_completes(two: Running) -> None:
    admissible = 4 + 4 * EngineConfig().queue_per_slot

    async def one() -> tuple[str, float]:
        began = time.perf_counter()
        try:
            return await two.chat(), time.perf_counter() - began
        except OverloadedError as error:
            return "refused" if error.retry_after_s >= 1 else "refused without a time", 0.0

    async def scenario() -> None:
        alone = [(await one())[1] for _ in range(5)]
        outcomes = await asyncio.gather(*(one() for _ in range(10 * admissible)))
        assert [text for text, _ in outcomes].count("refused") == 9 * admissible
        accepted = [took_s for text, took_s in outcomes if text.startswith("one, two, three")]
        assert len(accepted) == admissible
        print(f"\naccepted under load / alone: {np.median(accepted) / np.median(alone):.1f} (medians)")
        assert (await two.chat()).startswith("one, two, three"), "the places are free again"

    two.run(scenario())
    assert f'omni_refused_total{{kind="reply"}} {9 * admissible}.0'.encode() in two.engine.metrics_text()


@pytest.mark.parametrize("program", ["/nonexistent/python", "/bin/false"])
def test_a_failed_wake_leaves_the_stage_asleep(two: Running, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    async def scenario() -> None:
        await two.engine.sleep(["mind"], 1)
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", program)
            with pytest.raises(StartupError, match="stage mind"):
                await two.engine.wake(["mind"])
        stage = two.engine.health().stages[0]
        assert (stage.asleep, stage.live) == (True, 0)
        with pytest.raises(StageUnavailableError, match="asleep"):
            await anext(two.engine.chat(COUNT))
        await two.engine.wake([])
        stage = two.engine.health().stages[0]
        assert (stage.asleep, stage.live) == (False, 2)
        assert (await two.chat()).startswith("one, two, three")

    two.run(scenario())


def test_a_stages_environment_is_its_own_and_only_its_names_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def environment(pid: int) -> dict[str, str]:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return dict(pair.decode().split("=", 1) for pair in pairs if pair)

    before = dict(os.environ)
    mine = {"OMP_NUM_THREADS": "3", "SOME_TOKEN": "hush-1234"}
    caplog.set_level("DEBUG")
    with Running(
        StageSpec("first", "reply", "rules", env=mine, replicas=2), StageSpec("second", "reply", "rules")
    ) as running:
        for name in ("first.0", "first.1"):
            found = environment(running.replica(name).process.pid)
            assert {key: found[key] for key in mine} == mine
        other = environment(running.replica("second.0").process.pid)
        assert "SOME_TOKEN" not in other
        assert other["OMP_NUM_THREADS"] == "1"
        assert dict(os.environ) == before
    assert "first.0: environment sets OMP_NUM_THREADS, SOME_TOKEN" in caplog.text
    assert "hush-1234" not in caplog.text


def test_sessions_are_spread_and_only_those_of_a_killed_ear_hear_of_it(needs_voice: None, voiced: Say) -> None:
    pcm = np.concatenate([np.zeros(4800, np.int16), voiced("The moon is far away."), np.zeros(16_000, np.int16)])
    options = SessionOptions(turn_detection=TurnDetection(create_response=False), modalities=("text",))
    ears = StageSpec("ear", "listen", "voice", replicas=2)

    with Running(ears, StageSpec("mind", "reply", "rules")) as running:

        async def scenario() -> None:
            sessions = [await running.engine.open_session(options) for _ in range(4)]
            assert [len(running.replica(f"ear.{n}").bound) for n in range(2)] == [2, 2]
            hit = set(running.replica("ear.0").bound)
            incarnation = running.replica("ear.0").incarnation
            running.signal("ear.0", signal.SIGKILL)
            await running.engine._hub.change()  # type: ignore[union-attr]
            assert running.engine.health().ready
            for session in sessions:
                await session.append(pcm)
            for session in sessions:
                faults = 0
                async with asyncio.timeout(60):
                    async for event in session.events():
                        if isinstance(event, SessionFault):
                            assert (event.code, event.fatal) == ("listening_restarted", False)
                            faults += 1
                        if isinstance(event, Transcribed):
                            assert "moon" in event.text.lower()
                            break
                assert faults == (session.id in hit)
            await running.until_up("ear.0", incarnation)
            for session in sessions:
                await session.close()

        running.run(scenario())
