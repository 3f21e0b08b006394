"""Everything a transport receives: the sources it has asked for, one codec, one lock."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from omni_shmring import names
from omni_shmring.codec import Codec
from omni_shmring.codec.frame import look_at
from omni_shmring.config import TransportConfig
from omni_shmring.descriptor import Descriptor, check, edge_number, edge_seed
from omni_shmring.errors import DamagedError, DecodeError, DescriptorError
from omni_shmring.gate import Gate
from omni_shmring.inbound import Inbound, Taken
from omni_shmring.inring import Home
from omni_shmring.lease import Lease
from omni_shmring.member import Member
from omni_shmring.stats import Counters


class Received(msgspec.Struct, frozen=True):
    """A message, owned by the receiver: writable, independent of the ring and of every other message.

    Attributes:
        payload: The value that was put.
        nbytes: Size of the frame it came in, in bytes.
    """

    payload: Any
    nbytes: int


class Receiver:
    """The receiving half of a transport. Thread-safe."""

    def __init__(self, gate: Gate, member: Member, config: TransportConfig, counters: Counters, home: Home) -> None:
        self.lock = threading.Lock()
        self._gate = gate
        self._member = member
        self._counters = counters
        self._home = home
        self._codec = Codec(config.types, config.exact)
        self._sources: dict[str | int, Inbound] = {}

    def get(self, source: str | int, raw: bytes, descriptor: Descriptor | bytes | None) -> Received | None:
        """See Transport.get."""
        with self.lock:
            inbound = self._sources.get(source) or self._source(source)
            self._gate.pass_through()
            try:
                if descriptor is None:
                    taken = inbound.take(raw)
                else:
                    taken = self._take_exact(inbound, source, raw, descriptor)
            except DamagedError:
                self._counters.damaged += 1
                raise
            if taken is None:
                return None
            nbytes = taken.nbytes
            counters = self._counters
            counters.gets += 1
            counters.get_bytes += nbytes
            if taken.outside:
                counters.segment_gets += 1
            else:
                counters.ring_gets += 1
            try:
                return Received(self._codec.decode(taken.parts), nbytes)
            except DecodeError:
                counters.decode_errors += 1
                raise

    def lease(self, source: str | int, raw: bytes) -> Lease | None:
        """See Transport.lease."""
        with self.lock:
            inbound = self._sources.get(source) or self._source(source)
            self._gate.pass_through()
            try:
                held = inbound.hold(raw)
            except DamagedError:
                self._counters.damaged += 1
                raise
            if held is None:
                return None
            try:
                payload = self._codec.decode(look_at(held.view))
            except DecodeError:
                self._counters.decode_errors += 1
                inbound.release(held)
                raise
            except BaseException:
                inbound.release(held)
                raise
            nbytes = held.claim.nbytes
            self._counters.gets += 1
            self._counters.get_bytes += nbytes
            self._counters.leases += 1

        def end() -> None:
            with self.lock:
                if self._gate.same_process:
                    inbound.release(held)

        return Lease(payload, nbytes, end)

    def arm(self) -> int:
        """Ask to be woken by the next publication; what to sleep on."""
        with self.lock:
            self._gate.pass_through()
            return self._member.inbox.arm()

    def may_be_there(self, source: str, raw: bytes) -> bool:
        """Whether asking for a message may bring something: it, or an error."""
        with self.lock:
            if self._gate.closed:
                return True
            try:
                return (self._sources.get(source) or self._source(source)).has(raw)
            except DamagedError as error:
                # Kept for whoever waits: the channel is set aside by now, and would fall silent otherwise.
                self._sources[source].report_later(error)
                return True

    def let_go(self) -> None:
        """Unmap everything. With the lock held, or in a forked child."""
        for inbound in {id(each): each for each in self._sources.values()}.values():
            inbound.let_go()
        self._sources.clear()

    def _source(self, source: str | int) -> Inbound:
        self._gate.pass_through()
        stage = names.stage_name(source)
        inbound = self._sources.get(stage)
        if inbound is None:
            member = self._member
            seed = edge_seed(member.scope, stage, member.stage)
            inbound = Inbound(self._home, stage, member.stage_digest, f"{stage} -> {member.stage}", seed)
            self._sources[stage] = inbound
        if type(source) is int:
            self._sources[source] = inbound
        return inbound

    def _take_exact(self, inbound: Inbound, source: str | int, raw: bytes, given: Descriptor | bytes) -> Taken | None:
        descriptor = check(given) if isinstance(given, Descriptor) else Descriptor.from_bytes(given)
        if descriptor.edge != edge_number(inbound.seed, raw):
            edge = f"{source} -> {self._member.stage}"
            raise DescriptorError(f"descriptor names another scope, edge or key than {edge}, {raw[:80]!r}")
        return inbound.take_exact(raw, descriptor.producer, descriptor.ring, descriptor.mark)
