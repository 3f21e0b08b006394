"""How much may be under way at once: what a stage can work on and a short queue behind it, no more."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Iterator

from omni_serve.engine.metrics import EngineMetrics
from omni_serve.errors import OverloadedError, ServeError, StageUnavailableError

_SMOOTHING = 0.2


class Gate:
    """Admits requests of one kind.

    Args:
        kind: Its name in metrics and messages.
        slots: Requests worked on side by side.
        queue: Requests that may wait behind them.
    """

    def __init__(self, kind: str, slots: int, queue: int, metrics: EngineMetrics) -> None:
        self._kind = kind
        self._slots = slots
        self._limit = slots + queue
        self._metrics = metrics
        self._typical_s = 1.0
        self.inside = 0
        self.closed = False
        self.idle = asyncio.Event()
        self.idle.set()

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """Hold a place for a request's life. Raises OverloadedError when all are taken."""
        if self.closed:
            raise StageUnavailableError("the server is shutting down", stage=self._kind)
        if self.inside >= self._limit:
            self._metrics.refused.labels(self._kind).inc()
            waiting_s = self._typical_s * (self.inside - self._slots + 1) / self._slots
            raise OverloadedError(
                f"{self._limit} {self._kind} requests are under way, the most this server admits",
                retry_after_s=max(1, math.ceil(waiting_s)),
            )
        self.inside += 1
        self.idle.clear()
        self._metrics.queue.labels(self._kind).set(self.inside)
        started = time.monotonic()
        outcome = "completed"
        try:
            yield
        except ServeError as error:
            outcome = type(error).__name__
            raise
        except BaseException:
            outcome = "cancelled"
            raise
        finally:
            self.inside -= 1
            if self.inside == 0:
                self.idle.set()
            took_s = time.monotonic() - started
            if outcome == "completed":
                self._typical_s += _SMOOTHING * (took_s - self._typical_s)
            self._metrics.queue.labels(self._kind).set(self.inside)
            self._metrics.requests.labels(self._kind, outcome).inc()
            self._metrics.request_seconds.labels(self._kind).observe(took_s)
