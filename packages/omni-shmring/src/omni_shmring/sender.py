"""Everything a transport sends: its edges, the bound on what is pending, one codec, one lock."""

from __future__ import annotations

import threading
import time
from typing import Any

from omni_shmring import futex, names
from omni_shmring.codec import Codec
from omni_shmring.config import TransportConfig
from omni_shmring.descriptor import Descriptor, edge_number, edge_seed
from omni_shmring.errors import BacklogError, NoSpaceError
from omni_shmring.gate import Gate
from omni_shmring.member import Member
from omni_shmring.outbound import Outbound, Route
from omni_shmring.stats import Counters, EdgeStats

_LINGER_LOOK_S = 0.02
NUDGE_BYTES = 1 << 20
"""Up to this frame size a sleeping receiver is woken before the frame is written rather than after."""


class Sender:
    """The sending half of a transport. Thread-safe."""

    def __init__(self, gate: Gate, member: Member, config: TransportConfig, counters: Counters) -> None:
        self.lock = threading.Lock()
        self._gate = gate
        self._member = member
        self._config = config
        self._limit = config.max_pending_bytes
        self._counters = counters
        self._codec = Codec(config.types, config.exact)
        self._edges: dict[str | int, Outbound] = {}
        self._ceiling = 0
        """At least as much as is pending; what is really pending is looked up when this passes the limit."""

    def put(self, dest: str | int, raw: bytes, payload: Any) -> Descriptor:
        """See Transport.put."""
        with self.lock:
            edge = self._edges.get(dest) or self._edge(dest)
            self._gate.pass_through()
            codec = self._codec
            try:
                frame = codec.encode(payload)
                nbytes = frame.nbytes
                if nbytes <= NUDGE_BYTES:
                    edge.inbox.nudge()
                self._ceiling += nbytes + len(raw)
                if self._ceiling > self._limit:
                    self._weigh(edge, raw, nbytes)
                ring, publication = edge.put(raw, frame)
            except (BacklogError, NoSpaceError):
                self._counters.refusals += 1
                raise
            finally:
                codec.done()
            counters = self._counters
            counters.puts += 1
            counters.put_bytes += nbytes
            return Descriptor(
                edge_number(edge.seed, raw), self._member.instance, ring.name.serial, publication.mark, nbytes
            )

    def cancel(self, dest: str | int, raw: bytes) -> bool:
        """See Transport.cancel."""
        with self.lock:
            edge = self._existing(dest)
            return edge is not None and edge.cancel(raw)

    def cancel_prefix(self, dest: str | int, raw: bytes) -> int:
        """See Transport.cancel_prefix."""
        with self.lock:
            edge = self._existing(dest)
            return 0 if edge is None else edge.cancel_prefix(raw)

    def stats(self) -> tuple[EdgeStats, ...]:
        """Every edge now."""
        with self.lock:
            self._gate.pass_through()
            return tuple(edge.stats() for edge in self._distinct())

    def linger(self, linger_s: float) -> None:
        """Wait until everything pending has been taken, or for ``linger_s``."""
        deadline = time.monotonic() + linger_s
        while True:
            with self.lock:
                waiting = None
                for edge in self._distinct():
                    edge.linger(True)
                    word = edge.drained_word()
                    edge.sweep()
                    if edge.pending:
                        waiting = word
            left = deadline - time.monotonic()
            if waiting is None or left <= 0:
                return
            # Bounded, because several edges cannot be slept on at once; and receivers may die.
            futex.wait(*waiting, min(left, _LINGER_LOOK_S))

    def close(self) -> int:
        """Close all edges; how many messages were dropped. With the lock held."""
        dropped = sum([edge.close() for edge in self._distinct()])
        self._edges.clear()
        return dropped

    def let_go(self) -> None:
        """In a forked child: unmap, remove nothing."""
        for edge in self._distinct():
            edge.let_go()
        self._edges.clear()

    def _distinct(self) -> list[Outbound]:
        return list({id(edge): edge for edge in self._edges.values()}.values())

    def _existing(self, dest: str | int) -> Outbound | None:
        self._gate.pass_through()
        return self._edges.get(names.stage_name(dest))

    def _edge(self, dest: str | int) -> Outbound:
        """The edge to a stage, made at the first put; found under the text and, if that was given, the integer."""
        self._gate.pass_through()
        stage = names.stage_name(dest)
        edge = self._edges.get(stage)
        if edge is None:
            member = self._member
            route = Route(member.stage, stage, member.stage_digest, names.digest(stage))
            seed = edge_seed(member.scope, member.stage, stage)
            edge = Outbound(
                member.directory, route, seed, member.instance, self._config.ring_bytes, member.lives, self._counters
            )
            self._edges[stage] = edge
        if type(dest) is int:
            self._edges[dest] = edge
        return edge

    def _weigh(self, edge: Outbound, raw: bytes, nbytes: int) -> None:
        """Hold a put to ``max_pending_bytes``, by what is really pending."""
        edges = self._distinct()
        for each in edges:
            each.sweep()
        pending = sum(each.pending_bytes for each in edges)
        self._ceiling = after = pending + nbytes + len(raw)
        if after - edge.pending_bytes_under(raw) > self._limit:
            self._ceiling = pending
            raise BacklogError(str(edge.route), nbytes, pending, self._limit, sum(each.pending for each in edges))
