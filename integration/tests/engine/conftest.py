"""A running engine for tests: real stage processes, the deterministic replier, an event loop of the main thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from omni_serve.contract import ReplyDone, Session, SessionEvent, SessionOptions
from omni_serve.engine.builtin import voice_engine
from omni_serve.engine.config import EngineConfig
from omni_serve.engine.engine import LocalEngine

T = TypeVar("T")
LIMIT_S = 40.0


@dataclass
class Talk:
    """A session whose events are collected."""

    session: Session
    seen: list[SessionEvent] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    reader: asyncio.Task[None] | None = None

    async def read(self) -> None:
        async for event in self.session.events():
            self.seen.append(event)
            self.news.set()

    async def until(self, kind: type[T], count: int = 1, where: Callable[[T], bool] = lambda _: True) -> T:
        """The ``count``-th event of a kind."""
        async with asyncio.timeout(LIMIT_S):
            while len(found := [e for e in self.seen if isinstance(e, kind) and where(e)]) < count:
                self.news.clear()
                await self.news.wait()
        return found[count - 1]

    def kinds(self) -> list[str]:
        """The events' names in order, runs of the same as one."""
        names = [type(e).__name__ for e in self.seen]
        return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]

    async def hear(self, *pieces: NDArray[np.int16] | float) -> None:
        """Append speech and (as numbers) seconds of silence, in pieces of 100 ms."""
        for piece in pieces:
            pcm = np.zeros(int(piece * 16_000), np.int16) if isinstance(piece, float | int) else piece
            for start in range(0, pcm.size, 1600):
                await self.session.append(pcm[start : start + 1600])

    async def close(self) -> None:
        await self.session.close()
        if self.reader is not None:
            await self.reader


class Live:
    """The engine and its loop."""

    def __init__(self, engine: LocalEngine, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def talk(self, options: SessionOptions | None = None) -> Talk:
        talk = Talk(await self.engine.open_session(options or SessionOptions()))
        talk.reader = asyncio.ensure_future(talk.read())
        return talk


@pytest.fixture(scope="module")
def start_engine(needs_voice: None) -> Iterator[Callable[..., Live]]:
    """Starts engines and closes them at the module's end."""
    loops: list[Live] = []

    def start(config: EngineConfig | None = None, *, rules: bool = True) -> Live:
        live = Live(voice_engine(config or EngineConfig(), rules=rules), asyncio.new_event_loop())
        live.run(live.engine.start())
        loops.append(live)
        return live

    yield start
    for live in loops:
        live.run(live.engine.close())
        live.loop.close()


def done_once(talk: Talk) -> dict[str, ReplyDone]:
    """Each reply's end; fails when one has two."""
    ends = [e for e in talk.seen if isinstance(e, ReplyDone)]
    by_id = {e.reply_id: e for e in ends}
    assert len(by_id) == len(ends)
    return by_id
