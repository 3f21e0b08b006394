"""The loop around a stage's part: read every edge, hand each message over, stop when told."""

from __future__ import annotations

import logging
import queue
import threading
from typing import Any, Protocol

from omni_serve.stages.links import API, API_INCARNATION, Links
from omni_serve.stages.messages import Failed, Peer
from omni_shmring import ClosedError, DamagedError, DecodeError

log = logging.getLogger("omni_serve.stages")

_RECHECK_S = 0.5


class Stage(Protocol):
    """A stage's own code. ``handle`` is called from one thread and must not compute for long."""

    def handle(self, peer: str, message: Any) -> None: ...

    def close(self) -> None: ...


class Runtime:
    """Reads the edges of one stage process; see :meth:`run`."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._readers: list[threading.Thread] = []
        links.connect(API, API_INCARNATION)
        self._read(API, API_INCARNATION)

    def stop(self) -> None:
        """Make :meth:`run` return. Callable from a signal handler or any thread."""
        self._stopping.set()
        self._messages.put((API, None))

    def run(self, stage: Stage) -> None:
        """Hand messages to the stage until :meth:`stop`."""
        while not self._stopping.is_set():
            peer, message = self._messages.get()
            if message is None:
                continue
            if isinstance(message, Peer):
                self._meet(message)
                continue
            try:
                stage.handle(peer, message)
            except Exception as error:
                log.exception("a message could not be handled")
                job = str(getattr(message, "job", "") or getattr(message, "session", ""))
                self._links.send(API, Failed(job, f"{type(error).__name__}: {error}"))

    def join(self) -> None:
        """Wait for the readers, after :meth:`stop` and after the links were closed."""
        for reader in self._readers:
            reader.join(timeout=2 * _RECHECK_S)

    def _meet(self, peer: Peer) -> None:
        self._links.disconnect(peer.name)
        if peer.incarnation:
            self._links.connect(peer.name, peer.incarnation)
            self._read(peer.name, peer.incarnation)

    def _read(self, peer: str, incarnation: int) -> None:
        reader = threading.Thread(target=self._pump, args=(peer, incarnation), name=f"from-{peer}", daemon=True)
        self._readers = [r for r in self._readers if r.is_alive()]
        self._readers.append(reader)
        reader.start()

    def _pump(self, peer: str, incarnation: int) -> None:
        """Read one edge until the peer is another incarnation or gone."""
        number = 0
        try:
            while not self._stopping.is_set() and self._links.connected(peer) == incarnation:
                got = self._links.transport.wait(peer, self._links.key(incarnation, number), timeout_s=_RECHECK_S)
                if got is not None:
                    number += 1
                    self._messages.put((peer, got.payload))
        except ClosedError:
            return
        except (DamagedError, DecodeError):
            # An edge without one of its messages cannot be trusted: the supervisor starts a fresh process.
            log.exception("the edge from %s is unreadable; this process ends", peer)
            self.stop()
