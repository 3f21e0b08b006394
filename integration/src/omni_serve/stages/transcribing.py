"""The ear's one transcription thread: turns first, then turns that may be over, then recordings."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from omni_serve.contract import Pcm
from omni_serve.voice.parts import HeardSegment, Transcriber

TURN, EARLY, RECORDING = range(3)
"""Which work goes first."""


@dataclass(slots=True)
class Job:
    """Audio to write down. ``deliver`` is called once, when there is text and somebody wants it."""

    pcm: Pcm
    deliver: Callable[[tuple[HeardSegment, ...] | BaseException, float], None] | None
    cancelled: bool = False
    result: tuple[HeardSegment, ...] | BaseException | None = None
    busy_ms: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def claim(self, deliver: Callable[[tuple[HeardSegment, ...] | BaseException, float], None]) -> None:
        """Want the result of a job that was begun ahead: now if it is there, else when it is."""
        with self.lock:
            self.deliver = deliver
            done = self.result
        if done is not None:
            deliver(done, self.busy_ms)


class TranscribeThread:
    """Runs jobs one after the other on one thread."""

    def __init__(self, transcriber: Transcriber) -> None:
        self._transcriber = transcriber
        self._jobs: queue.PriorityQueue[tuple[int, int, Job | None]] = queue.PriorityQueue()
        self._count = itertools.count()
        self._thread = threading.Thread(target=self._run, name="transcribe", daemon=True)
        self._thread.start()

    def submit(self, priority: int, job: Job) -> None:
        """Queue a job."""
        self._jobs.put((priority, next(self._count), job))

    def close(self) -> None:
        """Stop after the window at hand. Idempotent."""
        self._jobs.put((-1, next(self._count), None))
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        while (job := self._jobs.get()[2]) is not None:
            if not job.cancelled:
                self._work(job)

    def _work(self, job: Job) -> None:
        started = time.perf_counter()
        result: tuple[HeardSegment, ...] | BaseException
        try:
            result = self._transcriber.transcribe(job.pcm, lambda: job.cancelled)
        except Exception as error:  # noqa: BLE001 - delivered to the job's owner
            result = error
        job.busy_ms = (time.perf_counter() - started) * 1e3
        with job.lock:
            job.result = result
            deliver = None if job.cancelled else job.deliver
        if deliver is not None:
            deliver(result, job.busy_ms)
