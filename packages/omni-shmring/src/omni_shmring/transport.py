"""The facade: one transport per process and stage."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from typing import Any, Self

import msgspec

from omni_shmring import forks, futex, names
from omni_shmring.codec import Codec
from omni_shmring.codec.frame import look_at
from omni_shmring.config import TransportConfig
from omni_shmring.descriptor import Descriptor, check, edge_number
from omni_shmring.errors import (
    BacklogError,
    ClosedError,
    DamagedError,
    DecodeError,
    DescriptorError,
    ForkedError,
    InvalidArgumentError,
    NoSpaceError,
)
from omni_shmring.inbound import Home, Inbound, Taken
from omni_shmring.lease import Lease
from omni_shmring.member import Member
from omni_shmring.outbound import Outbound, Route
from omni_shmring.stats import Counters, EdgeStats, Stats
from omni_shmring.waiting import RECHECK_S, LoopWaiters

log = logging.getLogger("omni_shmring")

HOUSEKEEPING_S = 1.0
"""How often a transport in use looks for what dead processes left in its scope."""


class Received(msgspec.Struct, frozen=True):
    """A message, owned by the receiver: writable, independent of the ring and of every other message.

    Attributes:
        payload: The value that was put.
        nbytes: Size of the frame it came in, in bytes.
    """

    payload: Any
    nbytes: int


class Transport:
    """Sends trees of Python values and CPU tensors to other stages of the same host, and receives theirs.

    Thread-safe. Not usable in a forked child (it raises ForkedError there): open another one instead.
    """

    def __init__(self, name: str | int, *, scope: str | int = "default", config: TransportConfig | None = None) -> None:
        """Join a scope as a stage.

        Args:
            name: The stage; any non-empty text or integer. Several processes may open the same stage and compete.
            scope: Whom to talk to: transports of one user see each other within one scope only.
            config: Sizes and limits; the defaults where None.

        Raises:
            InvalidArgumentError: a name or scope that cannot be.
            ScopeError: the scope's directory cannot be trusted.
            NoSpaceError: no room in shared memory for a page.
            TooManyReceiversError: 64 living processes have this stage open.
        """
        self.name = names.stage_name(name)
        self.scope = names.stage_name(scope, "scope")
        if config is not None and not isinstance(config, TransportConfig):
            raise InvalidArgumentError(f"config is {config!r}; it must be a TransportConfig")
        self.config = config if config is not None else TransportConfig()
        self._codec = Codec(self.config.types, self.config.exact)
        self._reader_codec = Codec(self.config.types, self.config.exact)
        self._counters = Counters()
        self._lock = threading.Lock()
        self._receiving = threading.Lock()
        self._outbound: dict[object, Outbound] = {}
        self._inbound: dict[object, Inbound] = {}
        self._ceiling = 0
        self._forks = forks.generation
        self._closed = False
        self._next_chores_s = time.monotonic() + HOUSEKEEPING_S
        self._member = Member(self.config.root, self.scope, self.name)
        member = self._member
        self._digest = member.stage_digest
        self._home = Home(member.directory, member.inbox, member.entry, member.instance, member.lives, self._found_dead)
        self._waiters = LoopWaiters(member.directory, member.instance, member.inbox, member.entry, self._may_be_there)

    # -- sending

    def put(self, dest: str | int, key: str, payload: Any) -> Descriptor:
        """Publish ``payload`` under ``key`` for stage ``dest``; an unclaimed earlier one of that key is retired.

        Everything is copied before this returns. It never waits for another process.

        Args:
            dest: The receiving stage; it need not run yet.
            key: Text of up to 65,535 bytes in UTF-8.
            payload: Any tree of the values listed in the README.

        Returns:
            What names exactly this publication; ``get`` works without it too.

        Raises:
            EncodeError: something in the payload cannot travel; names the path. Nothing was written.
            BacklogError: unclaimed messages have reached ``max_pending_bytes``.
            NoSpaceError: shared memory has no room for it.
            InvalidArgumentError, ClosedError, ForkedError
        """
        raw = names.key_bytes(key)
        with self._lock:
            edge = self._outbound.get(dest) or self._edge(dest)
            if forks.generation != self._forks:
                self._check()
            codec = self._codec
            try:
                frame = codec.encode(payload)
                self._ceiling += frame.nbytes + len(raw)
                if self._ceiling > self.config.max_pending_bytes:
                    self._weigh(edge, raw, frame.nbytes)
                ring, publication = edge.put(raw, frame)
            except (BacklogError, NoSpaceError):
                self._counters.refusals += 1
                raise
            finally:
                codec.done()
            return Descriptor(
                edge_number(self.scope, self.name, edge.route.dest, raw),
                self._member.instance,
                ring.name.serial,
                publication.mark,
                frame.nbytes,
            )

    def cancel(self, dest: str | int, key: str) -> bool:
        """Retire the unclaimed message under exactly ``key``; True when it is certain that nobody got it."""
        raw = names.key_bytes(key)
        with self._lock:
            edge = self._existing(dest)
            return edge is not None and edge.cancel(raw)

    def cancel_prefix(self, dest: str | int, prefix: str) -> int:
        """Retire all keys that are ``prefix`` followed by digits only; how many of them nobody got.

        ``cancel_prefix("talker", "req-1:")`` retires ``req-1:0``, ``req-1:17``, not ``req-1:x`` or ``req-10:0``. Takes
        time in proportion to the chunks of that request, not to what else is pending.
        """
        raw = names.key_bytes(prefix)
        with self._lock:
            edge = self._existing(dest)
            return 0 if edge is None else edge.cancel_prefix(raw)

    # -- receiving

    def get(self, source: str | int, key: str, descriptor: Descriptor | bytes | None = None) -> Received | None:
        """Take the message under ``key`` from stage ``source``; None when there is none (yet). Never waits.

        Args:
            source: The sending stage.
            key: The key it was put under.
            descriptor: Take this publication or nothing.

        Raises:
            DecodeError: the message does not decode; names the path. It is gone, its space returned.
            DamagedError: the channel is damaged and has been set aside.
            DescriptorError: malformed, or of another edge, key or scope.
            InvalidArgumentError, ClosedError, ForkedError
        """
        raw = names.key_bytes(key)
        with self._receiving:
            inbound = self._inbound.get(source) or self._source(source)
            if forks.generation != self._forks:
                self._check()
            try:
                if descriptor is None:
                    taken = inbound.take(raw)
                else:
                    taken = self._take_exact(inbound, source, raw, descriptor)
                if taken is not None:
                    return self._received(taken)
            except DamagedError:
                self._counters.damaged += 1
                raise
        self._chores()
        return None

    def wait(self, source: str | int, key: str, timeout_s: float | None = None) -> Received | None:
        """Like :meth:`get`, sleeping until the message is there; None when ``timeout_s`` seconds passed without it."""
        deadline = _deadline(timeout_s)
        while True:
            got = self.get(source, key)
            if got is not None:
                return got
            inbox = self._member.inbox
            with self._receiving:
                self._check()
                ticket = inbox.arm()
            got = self.get(source, key)
            if got is not None:
                return got
            left = RECHECK_S if deadline is None else min(deadline - time.monotonic(), RECHECK_S)
            if left <= 0:
                return None
            self._member.sleep(ticket, left)

    async def wait_async(self, source: str | int, key: str, timeout_s: float | None = None) -> Received | None:
        """Like :meth:`wait`, in an event loop and without a thread.

        Cancelling the awaiting task ends it at once; the message is then still there for whoever asks next.
        """
        deadline = _deadline(timeout_s)
        raw = names.key_bytes(key)
        stage = names.stage_name(source)
        try:
            while True:
                got = self.get(source, key)
                if got is not None:
                    return got
                with self._receiving:
                    self._check()
                    self._waiters.enter()
                    self._member.inbox.arm()
                got = self.get(source, key)
                if got is not None:
                    return got
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                await self._waiters.changed(stage, raw, left)
        finally:
            if not self._closed:
                self._waiters.leave()

    def lease(self, source: str | int, key: str) -> Lease | None:
        """Look at the message under ``key`` where it lies, read-only; None when there is none (yet).

        Use it as a context manager; its space returns to the producer when it closes.

        Raises:
            As :meth:`get`.
        """
        raw = names.key_bytes(key)
        with self._receiving:
            inbound = self._inbound.get(source) or self._source(source)
            self._check()
            held = inbound.hold(raw)
            if held is None:
                return None

            def end() -> None:
                with self._receiving:
                    if forks.generation == self._forks:
                        inbound.release(held)

            try:
                payload = self._reader_codec.decode(look_at(held.view))
            except BaseException as error:
                inbound.release(held)
                if isinstance(error, DecodeError):
                    self._counters.decode_errors += 1
                raise
            counters = self._counters
            counters.gets += 1
            counters.get_bytes += held.claim.nbytes
            return Lease(payload, held.claim.nbytes, end)

    # -- the rest

    def stats(self) -> Stats:
        """Totals since the transport was opened, and what is pending now."""
        with self._lock:
            self._check()
            edges: tuple[EdgeStats, ...] = tuple(edge.stats() for edge in self._edges())
            return Stats(
                **dataclasses.asdict(self._counters),
                pending=sum(edge.pending for edge in edges),
                pending_bytes=sum(edge.pending_bytes for edge in edges),
                edges=edges,
            )

    def close(self, linger_s: float | None = None) -> int:
        """Leave the scope; how many messages nobody took in time. They are logged as well, and counted as dropped.

        Args:
            linger_s: How long to wait for receivers to take what is pending; the configuration's where None.
        """
        if self._closed:
            return 0
        if forks.generation != self._forks:
            self._let_go()
            return 0
        limit = self.config.linger_s if linger_s is None else linger_s
        if not isinstance(limit, int | float) or not limit >= 0:
            raise InvalidArgumentError(f"linger_s is {linger_s!r}; it must be a number of seconds >= 0")
        self._linger(limit)
        with self._lock, self._receiving:
            if self._was_closed():
                return 0
            self._closed = True
            dropped = sum([edge.close() for edge in self._edges()])
            self._counters.dropped += dropped
            for inbound in {id(i): i for i in self._inbound.values()}.values():
                inbound.let_go()
            self._outbound.clear()
            self._inbound.clear()
            self._waiters.close()
            self._member.close()
        if dropped:
            log.warning(
                "transport %s of scope %s closed with %d messages that nobody took", self.name, self.scope, dropped
            )
        return dropped

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Transport {self.name!r} of scope {self.scope!r}, {state}>"

    # -- within

    def _check(self) -> None:
        if forks.generation != self._forks:
            raise ForkedError(
                f"transport {self.name!r} was opened before a fork; the child (pid {os.getpid()}) must open its own"
            )
        if self._closed:
            raise ClosedError(f"transport {self.name!r} of scope {self.scope!r} has been closed")

    def _was_closed(self) -> bool:
        """Whether another thread closed it since it was last looked at."""
        return self._closed

    def _edge(self, dest: str | int) -> Outbound:
        self._check()
        stage = names.stage_name(dest)
        edge = self._outbound.get(stage)
        if edge is None:
            route = Route(self.name, stage, self._digest, names.digest(stage))
            member = self._member
            edge = Outbound(
                member.directory, route, member.instance, self.config.ring_bytes, member.lives, self._counters
            )
            self._outbound[stage] = edge
        self._outbound[dest] = edge
        return edge

    def _edges(self) -> list[Outbound]:
        return list({id(edge): edge for edge in self._outbound.values()}.values())

    def _existing(self, dest: str | int) -> Outbound | None:
        self._check()
        return self._outbound.get(names.stage_name(dest))

    def _source(self, source: str | int) -> Inbound:
        self._check()
        stage = names.stage_name(source)
        inbound = self._inbound.get(stage)
        if inbound is None:
            inbound = Inbound(self._home, stage, self._digest, f"{stage} -> {self.name}")
            self._inbound[stage] = inbound
        self._inbound[source] = inbound
        return inbound

    def _take_exact(self, inbound: Inbound, source: str | int, raw: bytes, given: Descriptor | bytes) -> Taken | None:
        descriptor = Descriptor.from_bytes(given) if not isinstance(given, Descriptor) else check(given)
        if descriptor.edge != edge_number(self.scope, names.stage_name(source), self.name, raw):
            raise DescriptorError(
                f"descriptor names another scope, edge or key than {self.scope}: {source} -> {self.name}, {raw[:80]!r}"
            )
        return inbound.take_exact(raw, descriptor.producer, descriptor.ring, descriptor.mark)

    def _received(self, taken: Taken) -> Received:
        counters = self._counters
        counters.gets += 1
        counters.get_bytes += taken.nbytes
        if taken.outside:
            counters.segment_gets += 1
        else:
            counters.ring_gets += 1
        try:
            return Received(self._reader_codec.decode(taken.parts), taken.nbytes)
        except DecodeError:
            counters.decode_errors += 1
            raise

    def _weigh(self, edge: Outbound, raw: bytes, nbytes: int) -> None:
        """Hold a put to ``max_pending_bytes``, by what is really pending."""
        edges = self._edges()
        for each in edges:
            each.sweep()
        pending = sum(each.pending_bytes for each in edges)
        self._ceiling = after = pending + nbytes + len(raw)
        if after - edge.pending_bytes_under(raw) > self.config.max_pending_bytes:
            self._ceiling = pending
            count = sum(each.pending for each in edges)
            raise BacklogError(str(edge.route), nbytes, pending, self.config.max_pending_bytes, count)

    def _may_be_there(self, source: str, raw: bytes) -> bool:
        with self._receiving:
            if self._closed:
                return True
            try:
                return self._source(source).has(raw)
            except DamagedError:
                return True  # the wait that looks next reports it

    def _found_dead(self) -> None:
        self._next_chores_s = 0.0

    def _chores(self) -> None:
        now = time.monotonic()
        if now >= self._next_chores_s:
            self._next_chores_s = now + HOUSEKEEPING_S
            if forks.generation == self._forks and not self._closed:
                self._counters.reaped += self._member.reap()

    def _linger(self, linger_s: float) -> None:
        deadline = time.monotonic() + linger_s
        while True:
            with self._lock:
                waiting = None
                for edge in self._edges():
                    edge.linger(True)
                    address, value = edge.drained_address()
                    edge.sweep()
                    if edge.pending and waiting is None:
                        waiting = (address, value)
            left = deadline - time.monotonic()
            if waiting is None or left <= 0:
                return
            futex.wait(*waiting, min(left, 0.02))

    def _let_go(self) -> None:
        """In a forked child: unmap, close descriptors, unlink nothing."""
        self._closed = True
        for edge in self._edges():
            edge.let_go()
        for inbound in {id(i): i for i in self._inbound.values()}.values():
            inbound.let_go()
        self._member.let_go()


def _deadline(timeout_s: float | None) -> float | None:
    if timeout_s is None:
        return None
    if not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool) or not timeout_s >= 0:
        raise InvalidArgumentError(f"timeout_s is {timeout_s!r}; it must be a number of seconds >= 0, or None")
    return time.monotonic() + timeout_s
