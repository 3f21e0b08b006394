"""A single request on the stages that work for it: answers in order, faults as exceptions, an end everywhere."""

from __future__ import annotations

import asyncio
import uuid
from types import TracebackType
from typing import Any, Self

from omni_serve.engine.hub import Hub, StageDown
from omni_serve.engine.replicas import Replica
from omni_serve.errors import DeadlineError, InvalidRequestError, StageUnavailableError
from omni_serve.stages.messages import Cancel, Failed


class Job:
    """Use as a context manager: leaving it before :meth:`finished` cancels the job in every stage.

    Args:
        hub: Where the stages are reached.
        deadline_s: The job's longest life, in seconds.
        replicas: The processes that work on it.
    """

    def __init__(self, hub: Hub, deadline_s: float, *replicas: Replica) -> None:
        self.id = f"job_{uuid.uuid4().hex[:24]}"
        self._hub = hub
        self._replicas = replicas
        self._deadline_s = deadline_s
        self._until = asyncio.get_running_loop().time() + deadline_s
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._finished = False
        hub.register(self.id, self._answers.put_nowait, *replicas)

    def send(self, message: Any) -> None:
        """Give the job to its first stage. Raises OverloadedError, StageUnavailableError."""
        if not self._hub.send(self._replicas[0], message):
            name = self._replicas[0].spec.name
            raise StageUnavailableError(f"stage {name} is being started again", stage=name)

    async def next(self) -> Any:
        """The next answer.

        Raises:
            StageUnavailableError: a stage of the job failed or died.
            InvalidRequestError: a stage refused what the client asked for.
            DeadlineError: the job's life is over.
        """
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._answers.get()
        except TimeoutError:
            raise DeadlineError(f"no answer within {self._deadline_s:g} s") from None
        if isinstance(message, StageDown):
            raise StageUnavailableError(f"stage {message.stage} {message.why}", stage=message.stage)
        if isinstance(message, Failed):
            self._finished = True
            if message.code:
                raise InvalidRequestError(message.message, field=message.field or None, code=message.code)
            stage = self._replicas[0].spec.name
            raise StageUnavailableError(f"stage {stage} failed: {message.message}", stage=stage)
        return message

    def finished(self) -> None:
        """The last answer is there: nothing is left to cancel."""
        self._finished = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._hub.release(self.id)
        if not self._finished:
            for replica in self._replicas:
                if replica.up:
                    self._hub.send(replica, Cancel(self.id))
