"""The facade: one transport per process and stage."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import Any, Self

from omni_shmring import names
from omni_shmring.config import TransportConfig
from omni_shmring.descriptor import Descriptor
from omni_shmring.errors import InvalidArgumentError
from omni_shmring.gate import Gate
from omni_shmring.inring import Home
from omni_shmring.lease import Lease
from omni_shmring.member import Member
from omni_shmring.receiver import Received, Receiver
from omni_shmring.sender import Sender
from omni_shmring.stats import Counters, Stats
from omni_shmring.waiting import RECHECK_S, LoopWaiters

log = logging.getLogger("omni_shmring")
_monotonic = time.monotonic

NUDGE_S = 0.0001
"""How long a woken wait looks for the message before it sleeps again."""
HOUSEKEEPING_S = 1.0
"""How often a transport in use looks for what dead processes left in its scope."""


class Transport:
    """Sends trees of Python values and CPU tensors to other stages of the same host, and receives theirs.

    Thread-safe. Not usable in a forked child (it raises ForkedError there): open another one instead.
    """

    def __init__(self, name: str | int, *, scope: str | int = "default", config: TransportConfig | None = None) -> None:
        """Join a scope as a stage.

        Args:
            name: The stage; any non-empty text or integer (an integer is the stage of its decimal digits). Several
                processes may open the same stage and compete for its messages.
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
        self._gate = Gate(f"transport {self.name!r} of scope {self.scope!r}")
        self._counters = Counters()
        self._next_chores_s = time.monotonic() + HOUSEKEEPING_S
        self._member = member = Member(self.config.root, self.scope, self.name)
        home = Home(member.directory, member.inbox, member.entry, member.instance, member.lives, self._hurry_chores)
        try:
            self._sender = Sender(self._gate, member, self.config, self._counters)
            self._receiver = Receiver(self._gate, member, self.config, self._counters, home)
        except BaseException:  # a type that cannot be registered
            member.close()
            raise
        self._waiters = LoopWaiters(
            member.directory, member.instance, member.inbox, member.entry, self._receiver.may_be_there
        )

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
        descriptor = self._sender.put(dest, names.key_bytes(key), payload)
        if _monotonic() >= self._next_chores_s:
            self._chores()
        return descriptor

    def cancel(self, dest: str | int, key: str) -> bool:
        """Retire the unclaimed message under exactly ``key``; True when it is certain that nobody got it."""
        return self._sender.cancel(dest, names.key_bytes(key))

    def cancel_prefix(self, dest: str | int, prefix: str) -> int:
        """Retire all keys that are ``prefix`` followed by digits only; how many of them nobody got.

        ``cancel_prefix("talker", "req-1:")`` retires ``req-1:0``, ``req-1:17``, not ``req-1:x`` or ``req-10:0``. Takes
        time in proportion to the chunks of that request, not to what else is pending.
        """
        return self._sender.cancel_prefix(dest, names.key_bytes(prefix))

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
        got = self._receiver.get(source, names.key_bytes(key), descriptor)
        if got is None and _monotonic() >= self._next_chores_s:
            self._chores()
        return got

    def wait(self, source: str | int, key: str, timeout_s: float | None = None) -> Received | None:
        """Like :meth:`get`, sleeping until the message is there; None when ``timeout_s`` seconds passed without it."""
        deadline = _deadline(timeout_s)
        while True:
            got = self.get(source, key)
            if got is not None:
                return got
            ticket = self._receiver.arm()
            got = self.get(source, key)
            if got is not None:
                return got
            left = RECHECK_S if deadline is None else min(deadline - time.monotonic(), RECHECK_S)
            if left <= 0:
                return None
            if self._member.sleep(ticket, left):
                # A producer wakes us as it begins to write. Look for that long, and sleep again if it was not for us.
                until = _monotonic() + NUDGE_S
                while _monotonic() < until:
                    got = self.get(source, key)
                    if got is not None:
                        return got

    async def wait_async(self, source: str | int, key: str, timeout_s: float | None = None) -> Received | None:
        """Like :meth:`wait`, in an event loop and without a thread.

        Cancelling the awaiting task ends it at once; the message is then still there for whoever asks next.
        """
        deadline = _deadline(timeout_s)
        raw, stage = names.key_bytes(key), names.stage_name(source)
        got = self.get(source, key)
        if got is not None:
            return got
        try:
            while True:
                self._gate.pass_through()
                future = self._waiters.enter(stage, raw)
                try:
                    self._receiver.arm()
                    got = self.get(source, key)
                    left = None if deadline is None else deadline - time.monotonic()
                    if got is not None or (left is not None and left <= 0):
                        return got
                    await self._waiters.changed(future, left)
                finally:
                    self._waiters.forget(future)
                got = self.get(source, key)
                if got is not None:
                    return got
        finally:
            self._waiters.leave()

    def lease(self, source: str | int, key: str) -> Lease | None:
        """Look at the message under ``key`` where it lies, read-only; None when there is none (yet).

        Use it as a context manager; its space returns to the producer when it closes.

        Raises:
            As :meth:`get`.
        """
        return self._receiver.lease(source, names.key_bytes(key))

    # -- the rest

    def stats(self) -> Stats:
        """Totals since the transport was opened, and what is pending now."""
        edges = self._sender.stats()
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
        gate = self._gate
        limit = self.config.linger_s if linger_s is None else linger_s
        if not isinstance(limit, int | float) or not 0 <= limit < float("inf"):
            raise InvalidArgumentError(f"linger_s is {linger_s!r}; it must be a finite number of seconds >= 0")
        if gate.closed:
            return 0
        if not gate.same_process:
            # A forked child: its locks may be held for ever by a thread that does not exist here.
            gate.closed = True
            self._sender.let_go()
            self._receiver.let_go()
            self._member.let_go()
            return 0
        self._sender.linger(limit)
        with self._sender.lock, self._receiver.lock:
            if self.closed:  # by another thread, meanwhile
                return 0
            gate.closed = True
            dropped = self._sender.close()
            self._counters.dropped += dropped
            self._receiver.let_go()
            self._waiters.close()
            self._member.close()
        if dropped:
            log.warning(
                "transport %s of scope %s closed with %d messages that nobody took", self.name, self.scope, dropped
            )
        return dropped

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._gate.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Transport {self.name!r} of scope {self.scope!r}, {'closed' if self.closed else 'open'}>"

    def _hurry_chores(self) -> None:
        """A dead producer was met: look for what it left at the next opportunity."""
        self._next_chores_s = 0.0

    def _chores(self) -> None:
        self._next_chores_s = time.monotonic() + HOUSEKEEPING_S
        with self._receiver.lock:
            if not self.closed and self._gate.same_process:
                self._counters.reaped += self._member.reap()


def _deadline(timeout_s: float | None) -> float | None:
    if timeout_s is None:
        return None
    if not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool) or not timeout_s >= 0:
        raise InvalidArgumentError(f"timeout_s is {timeout_s!r}; it must be a number of seconds >= 0, or None")
    return time.monotonic() + timeout_s
