from __future__ import annotations

import asyncio
import contextlib

import pytest

from omni_serve.engine.admission import Gate
from omni_serve.engine.metrics import EngineMetrics
from omni_serve.errors import DeadlineError, OverloadedError, StageUnavailableError

hypothesis = pytest.importorskip("hypothesis", reason="the properties need hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402


async def test_ten_times_the_admissible_load_admits_what_is_admissible_and_says_when_to_come_back() -> None:
    metrics = EngineMetrics()
    gate = Gate("reply", 2, 2, metrics)
    go = asyncio.Event()

    async def request() -> str:
        try:
            with gate.enter():
                await go.wait()
        except OverloadedError as error:
            return "refused" if error.retry_after_s >= 1 else "refused without a time"
        return "done"

    tasks = [asyncio.ensure_future(request()) for _ in range(40)]
    await asyncio.sleep(0)
    assert gate.inside == 4
    assert not gate.idle.is_set()
    go.set()
    outcomes = await asyncio.gather(*tasks)
    assert outcomes.count("done") == 4
    assert outcomes.count("refused") == 36
    assert outcomes[:4] == ["done"] * 4, "first come, first served"
    assert gate.inside == 0
    assert gate.idle.is_set()
    text = metrics.text().decode()
    assert 'omni_refused_total{kind="reply"} 36.0' in text
    assert 'omni_requests_total{kind="reply",outcome="completed"} 4.0' in text


def test_a_closed_gate_admits_nobody_and_lets_those_inside_finish() -> None:
    async def scenario() -> None:
        gate = Gate("speak", 1, 0, EngineMetrics())
        with gate.enter():
            gate.closed = True
            with pytest.raises(StageUnavailableError, match="shutting down"), gate.enter():
                pass
        await gate.idle.wait()

    asyncio.run(scenario())


_ENDS = st.sampled_from([None, DeadlineError("late"), asyncio.CancelledError(), ValueError("bug")])


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.integers(1, 3), st.integers(0, 3), st.lists(st.one_of(st.just("enter"), _ENDS), max_size=30))
def test_however_requests_end_every_place_comes_back(slots: int, queue: int, steps: list[object]) -> None:
    async def scenario() -> None:
        gate = Gate("reply", slots, queue, EngineMetrics())
        inside: list[contextlib.AbstractContextManager[None]] = []
        for step in steps:
            if step == "enter":
                place = gate.enter()
                if len(inside) == slots + queue:
                    with pytest.raises(OverloadedError):
                        place.__enter__()
                else:
                    place.__enter__()
                    inside.append(place)
            elif inside:
                place = inside.pop(0)
                if isinstance(step, BaseException):
                    assert not place.__exit__(type(step), step, None)
                else:
                    place.__exit__(None, None, None)
            assert gate.inside == len(inside)
            assert gate.idle.is_set() == (not inside)
        for place in inside:
            place.__exit__(None, None, None)

    asyncio.run(scenario())
