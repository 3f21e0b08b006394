"""The connector contract over omni-shmring: for stages of one host, /dev/shm and user."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from omni_serve.connectors.contract import ConnectorHealth, Got
from omni_shmring import ClosedError, Received, Transport, TransportConfig


@dataclass(frozen=True, slots=True)
class RingConnectorConfig:
    """Settings of a RingConnector.

    Attributes:
        scope: Processes of one deployment share it; others never see its messages.
        ring_bytes: Size of each ring that this process fills; 0, or 4 KiB to 64 MiB.
        max_pending_bytes: Bound on what this process published and nobody took yet.
    """

    scope: str = "omni"
    ring_bytes: int = 4 << 20
    max_pending_bytes: int = 1 << 30


class RingConnector:
    """Opens one transport for each stage that this process speaks or listens as, when it first does.

    Thread-safe. Errors are those of omni_shmring (BacklogError, NoSpaceError, EncodeError, …), unchanged.
    """

    def __init__(self, config: RingConnectorConfig) -> None:
        self._config = config
        self._transports: dict[str, Transport] = {}
        self._targets: dict[str, set[str]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def put(self, from_stage: str, to_stage: str, key: str, payload: Any) -> tuple[int, bytes]:
        """See Connector.put."""
        transport = self._as(from_stage)
        before = self._targets.setdefault(from_stage, set())
        before.add(to_stage)
        descriptor = transport.put(to_stage, key, payload)
        return descriptor.nbytes, descriptor.to_bytes()

    def get(self, from_stage: str, to_stage: str, key: str, handle: bytes | None = None) -> Got | None:
        """See Connector.get."""
        return _got(self._as(to_stage).get(from_stage, key, descriptor=handle))

    def get_with_deadline(
        self, from_stage: str, to_stage: str, key: str, handle: bytes | None = None, *, deadline_s: float
    ) -> Got | None:
        """See Connector.get_with_deadline. What a handle names is there or gone, so it is not waited for."""
        if handle is not None:
            return self.get(from_stage, to_stage, key, handle)
        return _got(self._as(to_stage).wait(from_stage, key, timeout_s=max(0.0, deadline_s - time.monotonic())))

    def cleanup(self, key: str) -> None:
        """See Connector.cleanup."""
        for stage, targets in list(self._targets.items()):
            for target in list(targets):
                self._as(stage).cancel(target, key)

    def cleanup_prefix(self, prefix: str) -> None:
        """See Connector.cleanup_prefix."""
        for stage, targets in list(self._targets.items()):
            for target in list(targets):
                self._as(stage).cancel_prefix(target, prefix)

    def health(self) -> ConnectorHealth:
        """See Connector.health."""
        if self._closed:
            raise ClosedError("the connector is closed")
        found = [transport.stats() for transport in list(self._transports.values())]
        return ConnectorHealth(
            puts=sum(s.puts for s in found),
            gets=sum(s.gets for s in found),
            bytes_put=sum(s.put_bytes for s in found),
            bytes_got=sum(s.get_bytes for s in found),
            pending=sum(s.pending for s in found),
            pending_bytes=sum(s.pending_bytes for s in found),
        )

    def close(self) -> None:
        """See Connector.close. What nobody took is dropped: an engine that closes has no use for it."""
        with self._lock:
            self._closed = True
            transports, self._transports = list(self._transports.values()), {}
        for transport in transports:
            transport.close(linger_s=0)

    def _as(self, stage: str) -> Transport:
        with self._lock:
            if self._closed:
                raise ClosedError("the connector is closed")
            found = self._transports.get(stage)
            if found is None:
                config = TransportConfig(
                    ring_bytes=self._config.ring_bytes, max_pending_bytes=self._config.max_pending_bytes
                )
                found = self._transports[stage] = Transport(stage, scope=self._config.scope, config=config)
            return found


def _got(received: Received | None) -> Got | None:
    return None if received is None else Got(received.payload, received.nbytes)
