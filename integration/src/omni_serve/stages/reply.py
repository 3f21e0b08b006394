"""The mind: several conversations side by side, each answered in pieces and, when asked, in clauses to the mouth."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from omni_serve.contract import Message
from omni_serve.errors import InvalidRequestError
from omni_serve.stages.links import API, Links
from omni_serve.stages.messages import Answer, Cancel, Clause, Failed, Text, TextDone
from omni_serve.voice.clauses import ClauseSplitter
from omni_serve.voice.parts import Replier, ReplyRequest

log = logging.getLogger("omni_serve.stages")


class ReplyStage:
    """See the module. ``width`` answers are written side by side; more wait their turn."""

    def __init__(self, links: Links, replier: Replier, width: int) -> None:
        self._links = links
        self._replier = replier
        self._pool = ThreadPoolExecutor(width, thread_name_prefix="reply")
        self._stops: dict[str, threading.Event] = {}

    def handle(self, peer: str, message: Any) -> None:
        """Take one message from the API."""
        match message:
            case Answer():
                stop = threading.Event()
                self._stops[message.job] = stop
                self._pool.submit(self._answer, message, stop, time.perf_counter())
            case Cancel():
                stopped = self._stops.get(message.job)
                if stopped is not None:
                    stopped.set()

    def close(self) -> None:
        """Stop every answer and let the weights go."""
        for stop in list(self._stops.values()):
            stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._replier.close()

    def _answer(self, ask: Answer, stop: threading.Event, asked_s: float) -> None:
        try:
            if not stop.is_set():
                self._write(ask, stop, asked_s)
        except InvalidRequestError as error:
            self._links.send(API, Failed(ask.job, str(error), error.code, error.field or ""))
        except Exception as error:
            log.exception("reply %s failed", ask.job)
            self._links.send(API, Failed(ask.job, f"{type(error).__name__}: {error}"))
        finally:
            self._stops.pop(ask.job, None)

    def _write(self, ask: Answer, stop: threading.Event, asked_s: float) -> None:
        request = ReplyRequest(
            tuple(Message(role, content) for role, content in ask.messages),  # type: ignore[arg-type]
            ask.max_tokens,
            ask.temperature,
            ask.top_p,
            ask.seed,
            tuple(ask.stop),
        )
        splitter = ClauseSplitter()
        times: list[float] = []
        clauses = 0
        for piece in self._replier.reply(request, stop.is_set):
            if stop.is_set():
                return
            if piece.text:
                times.append(time.perf_counter())
                self._links.send(API, Text(ask.job, piece.text))
                clauses += self._speak(ask, splitter.push(piece.text))
            if piece.finish is not None:
                clauses += self._speak(ask, splitter.finish())
                if ask.speak_to:
                    self._links.send(ask.speak_to, Clause(ask.job, "", ask.speed, last=True))
                self._links.send(
                    API,
                    TextDone(
                        ask.job,
                        piece.finish,
                        piece.tokens_in,
                        piece.tokens_out,
                        (times[0] - asked_s) * 1e3 if times else None,
                        [(b - a) * 1e3 for a, b in itertools.pairwise(times)],
                        (time.perf_counter() - asked_s) * 1e3,
                        clauses,
                    ),
                )

    def _speak(self, ask: Answer, clauses: list[str]) -> int:
        """Pass clauses on to the mouth, where there is one; how many."""
        if not ask.speak_to:
            return 0
        for clause in clauses:
            self._links.send(ask.speak_to, Clause(ask.job, clause, ask.speed, last=False))
        return len(clauses)
