from __future__ import annotations

import asyncio

from omni_serve.contract import ReplyText, SessionEvent, SessionFault
from omni_serve.engine.outbox import EventOutbox


def text(number: int) -> ReplyText:
    return ReplyText("r", str(number))


async def all_of(outbox: EventOutbox) -> list[SessionEvent]:
    return [event async for event in outbox.read()]


async def test_events_come_in_order_to_a_reader_that_waits_and_to_one_that_is_late() -> None:
    outbox = EventOutbox(10)
    outbox.emit(text(0))
    reader = asyncio.ensure_future(all_of(outbox))
    for number in range(1, 4):
        await asyncio.sleep(0)
        outbox.emit(text(number))
    outbox.close()
    outbox.close()
    outbox.emit(text(9))
    assert await reader == [text(0), text(1), text(2), text(3)]
    assert await all_of(outbox) == []


async def test_a_reader_that_comes_back_goes_on_where_the_last_one_stopped() -> None:
    outbox = EventOutbox(10)
    for number in range(3):
        outbox.emit(text(number))
    first = outbox.read()
    assert await anext(first) == text(0)
    outbox.close()
    assert await all_of(outbox) == [text(1), text(2)]


async def test_a_client_that_does_not_read_is_told_once_and_costs_no_more_memory() -> None:
    outbox = EventOutbox(4)
    for number in range(1000):
        outbox.emit(text(number))
    outbox.close()
    *kept, last = await all_of(outbox)
    assert kept == [text(n) for n in range(4)]
    assert isinstance(last, SessionFault)
    assert last.fatal
    assert last.code == "slow_reader"
