"""The mouth: clauses in, pieces of speech out, one clause of each reply in turn."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from omni_serve.contract import OUTPUT_RATE_HZ
from omni_serve.errors import InvalidRequestError
from omni_serve.stages.links import API, Links
from omni_serve.stages.memory import give_back
from omni_serve.stages.messages import Cancel, Clause, Failed, Sound, SoundDone
from omni_serve.voice.parts import Speaker

log = logging.getLogger("omni_serve.stages")

_PIECE = OUTPUT_RATE_HZ // 5
_REMEMBER_CANCELLED = 4096


@dataclass(slots=True)
class _Line:
    """A job's clauses that wait to be spoken."""

    job: str
    clauses: deque[Clause] = field(default_factory=deque)
    first_s: float = 0.0
    ttft_ms: float | None = None
    busy_ms: float = 0.0
    taken: int = 0
    spoken: int = 0


class SpeakStage:
    """See the module. Every job gets a clause in turn, so that one long reply does not hold up the others."""

    def __init__(self, links: Links, speaker: Speaker) -> None:
        self._links = links
        self._speaker = speaker
        self._ready = threading.Condition()
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._cancelled: OrderedDict[str, None] = OrderedDict()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="speak", daemon=True)
        self._thread.start()

    def handle(self, peer: str, message: Any) -> None:
        """Take one message, from the API or from a mind."""
        match message:
            case Clause():
                with self._ready:
                    if message.job in self._cancelled:
                        return
                    line = self._lines.get(message.job)
                    if line is None:
                        line = self._lines[message.job] = _Line(message.job, first_s=time.perf_counter())
                    line.clauses.append(message)
                    self._ready.notify()
            case Cancel():
                with self._ready:
                    self._lines.pop(message.job, None)
                    self._cancelled[message.job] = None
                    while len(self._cancelled) > _REMEMBER_CANCELLED:
                        self._cancelled.popitem(last=False)

    def close(self) -> None:
        """Stop after the clause at hand."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join(timeout=3.0)
        self._speaker.close()

    def _next(self) -> tuple[_Line, Clause] | None:
        """The next clause of the job that has waited longest; None when the stage closes."""
        with self._ready:
            while True:
                if self._closed:
                    return None
                for job, line in self._lines.items():
                    if line.clauses:
                        self._lines.move_to_end(job)
                        return line, line.clauses.popleft()
                self._ready.wait()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            line, clause = work
            try:
                self._speak(line, clause)
            except InvalidRequestError as error:
                self._fail(line.job, Failed(line.job, str(error), error.code, error.field or ""))
            except Exception as error:
                log.exception("speech of %s failed", line.job)
                self._fail(line.job, Failed(line.job, f"{type(error).__name__}: {error}"))
            if not self._lines:
                give_back()

    def _fail(self, job: str, failed: Failed) -> None:
        self._lines.pop(job, None)
        self._links.send(API, failed)

    def _wanted(self, job: str) -> bool:
        return not self._closed and job in self._lines

    def _speak(self, line: _Line, clause: Clause) -> None:
        if clause.text:
            line.taken += 1
            started = time.perf_counter()
            pcm = self._speaker.speak(clause.text, clause.speed)
            now = time.perf_counter()
            line.busy_ms += (now - started) * 1e3
            if pcm.size:
                if line.ttft_ms is None:
                    line.ttft_ms = (now - line.first_s) * 1e3
                line.spoken += 1
            for start in range(0, pcm.size, _PIECE):
                if not self._wanted(line.job):
                    return
                text = clause.text if start == 0 else ""
                self._links.send(API, Sound(line.job, text, pcm[start : start + _PIECE]))
        if clause.last and self._wanted(line.job):
            with self._ready:
                self._lines.pop(line.job, None)
            self._links.send(API, SoundDone(line.job, line.taken, line.spoken, line.ttft_ms, line.busy_ms))
