"""Ordered mailboxes between processes, over omni-shmring.

An edge is one direction between two stage processes. Its messages are numbered from 0 in an epoch made of both ends'
incarnations, so that neither a restarted sender nor a restarted receiver ever sees the other's past.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from omni_serve.stages.messages import WIRE_TYPES
from omni_shmring import Transport, TransportConfig

API = "api"
"""The stage name of the process that holds the API and the orchestrator."""

API_INCARNATION = 1


def epoch(source: int, dest: int) -> str:
    """The key prefix of one edge between two incarnations."""
    return f"{source}.{dest}:"


class Links:
    """A process's edges. ``send`` may be called from any thread; one thread reads each edge.

    Args:
        name: This process's stage name.
        incarnation: Which start of that stage this is, from 1.
        scope: The deployment's scope of the transport.
        ring_bytes: Size of each outgoing ring.
    """

    def __init__(self, name: str, incarnation: int, scope: str, ring_bytes: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self._lock = threading.Lock()
        self._peers: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        config = TransportConfig(ring_bytes=ring_bytes, types=WIRE_TYPES, linger_s=0.0)
        self.transport = Transport(name, scope=scope, config=config)

    def connect(self, peer: str, incarnation: int) -> None:
        """Talk to this incarnation of a peer from now on; what an older one left unclaimed is retired."""
        with self._lock:
            before = self._peers.get(peer)
            if before == incarnation:
                return
            if before is not None:
                self.transport.cancel_prefix(peer, epoch(self.incarnation, before))
            self._peers[peer] = incarnation
            self._sent[peer] = 0

    def disconnect(self, peer: str) -> None:
        """Forget a peer that is gone; what it did not claim is retired, what is said to it is dropped."""
        with self._lock:
            before = self._peers.pop(peer, None)
            if before is not None:
                self.transport.cancel_prefix(peer, epoch(self.incarnation, before))

    def connected(self, peer: str) -> int | None:
        """The incarnation of a peer, or None when it is gone."""
        return self._peers.get(peer)

    def send(self, peer: str, message: Any) -> bool:
        """Put a message at the end of the edge to ``peer``; False when the peer is gone and it was dropped."""
        with self._lock:
            incarnation = self._peers.get(peer)
            if incarnation is None:
                return False
            number = self._sent[peer]
            self.transport.put(peer, f"{epoch(self.incarnation, incarnation)}{number}", message)
            self._sent[peer] = number + 1
            return True

    def key(self, incarnation: int, number: int) -> str:
        """The key of a peer's message to us."""
        return f"{epoch(incarnation, self.incarnation)}{number}"

    def close(self) -> None:
        """Leave the transport. Idempotent."""
        self.transport.close(linger_s=0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
