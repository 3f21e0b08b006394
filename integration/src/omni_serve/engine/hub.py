"""The API process's end of every edge: who owns which job, on which replicas, and whom an answer is for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from omni_serve.engine.replicas import Replica
from omni_serve.errors import OverloadedError, StageUnavailableError, UnsupportedError
from omni_serve.stages.links import API, API_INCARNATION, Links
from omni_serve.stages.messages import Peer
from omni_serve.stages.spec import StageKind
from omni_shmring import BacklogError, ClosedError, DamagedError, DecodeError, NoSpaceError

log = logging.getLogger("omni_serve.engine")


@dataclass(frozen=True, slots=True)
class StageDown:
    """What an owner gets, instead of answers, when a replica it is bound to is gone."""

    stage: str
    replica: str
    why: str


Handler = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class _Owner:
    handler: Handler
    replicas: tuple[Replica, ...]


class Hub:
    """Sends messages to replicas and hands theirs to the owner of the job or session they name.

    Everything is called from one event loop. Answers to a job that nobody owns any more are dropped.
    """

    def __init__(self, scope: str, ring_bytes: int) -> None:
        self.links = Links(API, API_INCARNATION, scope, ring_bytes)
        self._owners: dict[str, _Owner] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._replicas: list[Replica] = []
        self._when_up: list[Callable[[], None]] = []
        self._changed = asyncio.Event()
        self.asleep: set[str] = set()

    def know(self, replicas: Sequence[Replica]) -> None:
        """Take the deployment's replicas, up or not."""
        self._replicas = list(replicas)

    # -- Listener

    def replica_up(self, replica: Replica) -> None:
        """Connect to a fresh replica and introduce it to its neighbours."""
        self.links.connect(replica.name, replica.incarnation)
        replica.up = True
        reading = self._read(replica, replica.incarnation)
        self._readers[replica.name] = asyncio.get_running_loop().create_task(reading, name=f"hub-{replica.name}")
        for other in self._replicas:
            if other.up and other is not replica and {other.spec.kind, replica.spec.kind} == {"reply", "speak"}:
                self.links.send(other.name, Peer(replica.name, replica.incarnation))
                self.links.send(replica.name, Peer(other.name, other.incarnation))
        self._tell()
        waiting, self._when_up = self._when_up, []
        for callback in waiting:
            callback()

    def replica_down(self, replica: Replica, why: str) -> None:
        """Forget a replica and fail exactly what is bound to it."""
        if not replica.up:
            return
        replica.up = False
        self.links.disconnect(replica.name)
        reader = self._readers.pop(replica.name, None)
        if reader is not None:
            reader.cancel()
        for other in self._replicas:
            if other.up and {other.spec.kind, replica.spec.kind} == {"reply", "speak"}:
                self.links.send(other.name, Peer(replica.name, 0))
        bound, replica.bound = replica.bound, set()
        down = StageDown(replica.spec.name, replica.name, why)
        for job in bound:
            owner = self._owners.get(job)
            if owner is not None:
                owner.handler(down)
        self._tell()

    async def change(self) -> None:
        """Wait until the next replica comes up or goes down."""
        await self._changed.wait()

    def when_up(self, callback: Callable[[], None]) -> None:
        """Call this once, when the next replica comes up."""
        self._when_up.append(callback)

    # -- owners

    def register(self, job: str, handler: Handler, *replicas: Replica) -> None:
        """Own a job on these replicas: their answers, and their end, go to ``handler``."""
        self._owners[job] = _Owner(handler, replicas)
        for replica in replicas:
            replica.bound.add(job)

    def release(self, job: str) -> None:
        """Own a job no longer; later answers are dropped. Idempotent."""
        owner = self._owners.pop(job, None)
        if owner is not None:
            for replica in owner.replicas:
                replica.bound.discard(job)

    def send(self, replica: Replica, message: Any) -> bool:
        """Put a message on a replica's edge; False when it is gone. Raises OverloadedError when memory is full."""
        try:
            return self.links.send(replica.name, message)
        except (BacklogError, NoSpaceError) as error:
            raise OverloadedError(f"stage {replica.spec.name} is behind: {error}", retry_after_s=1) from error

    def all(self) -> Sequence[Replica]:
        """Every replica of the deployment, up or not."""
        return tuple(self._replicas)

    def kinds(self, kind: StageKind) -> list[Replica]:
        """All replicas of a kind, up or not. Raises UnsupportedError when the deployment has none."""
        found = [r for r in self._replicas if r.spec.kind == kind]
        if not found:
            raise UnsupportedError(f"this deployment has no stage of kind {kind}")
        return found

    def pick(self, kind: StageKind, stage: str | None = None) -> Replica:
        """The live replica of a kind (of one stage, where named) with the least to do.

        Raises UnsupportedError, or StageUnavailableError when none is up and awake.
        """
        found = [r for r in self.kinds(kind) if stage is None or r.spec.name == stage]
        live = [r for r in found if r.up and r.spec.name not in self.asleep]
        if not live:
            name = found[0].spec.name if found else str(stage)
            state = "asleep" if name in self.asleep else "not running; it is being started again"
            raise StageUnavailableError(f"stage {name} is {state}", stage=name)
        return min(live, key=lambda r: len(r.bound))

    async def close(self) -> None:
        """Stop reading and leave the transport. Idempotent."""
        readers, self._readers = list(self._readers.values()), {}
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        self.links.close()

    # -- within

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _read(self, replica: Replica, incarnation: int) -> None:
        """Hand over one replica's messages, in order, until it is gone."""
        number = 0
        transport = self.links.transport
        while True:
            try:
                got = await transport.wait_async(replica.name, self.links.key(incarnation, number))
            except ClosedError:
                return
            except (DamagedError, DecodeError) as error:
                # Nothing that this process says can be trusted any more: the supervisor starts another.
                log.error("the edge from %s is damaged, its process is ended: %s", replica.name, error)
                if replica.process is not None:
                    replica.process.kill()
                return
            if got is None:
                continue
            number += 1
            message = got.payload
            owner = self._owners.get(getattr(message, "session", "") or getattr(message, "job", ""))
            if owner is not None:
                owner.handler(message)
