"""The receiving side of all edges from one stage: the rings its producers fill, found as they appear."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass

import msgspec

from omni_shmring import layout, names
from omni_shmring.codec import Parts
from omni_shmring.codec.frame import copy_out
from omni_shmring.errors import DamagedError, DecodeError
from omni_shmring.inring import Home, InRing
from omni_shmring.mapping import attach
from omni_shmring.reader import Claim
from omni_shmring.segments import Segment

_monotonic = time.monotonic
FRESH_S = 0.0002
"""How long a producer seen alive counts as alive when one of its frames is about to be taken."""
MISS_S = 0.05
"""How often a miss asks whether the producers still live."""


class Taken(msgspec.Struct):
    """A frame that now belongs to this receiver."""

    parts: Parts
    nbytes: int
    outside: bool


@dataclass(slots=True)
class Held:
    """A frame under lease: where it is and how to end it."""

    ring: InRing
    claim: Claim
    view: memoryview
    segment: Segment | None


class Inbound:
    """Gets from one source. The caller holds the transport's receiving lock."""

    def __init__(self, home: Home, source: str, dest_digest: str, channel: str, seed: int) -> None:
        self.seed = seed
        self._home = home
        self._source_digest = names.digest(source)
        self._dest_digest = dest_digest
        self._channel = channel
        self._rings: list[InRing] = []
        self._aside: set[str] = set()
        self._seen_rings = 0
        self._rings_word = home.inbox.rings_word
        self._next_check_s = 0.0
        self._report: DamagedError | None = None

    def take(self, key: bytes) -> Taken | None:
        """The message under ``key``, copied out; None when it is not there (yet).

        Raises:
            DamagedError: a ring or frame is damaged; it has been set aside.
        """
        while (found := self._find(key)) is not None:
            taken = self._copy(*found)
            if taken is not None:
                return taken
        return None

    def take_exact(self, key: bytes, instance: int, serial: int, mark: int) -> Taken | None:
        """One exact publication; None when it is gone."""
        found = self._find_exact(key, instance, serial, mark)
        return None if found is None else self._copy(*found)

    def hold(self, key: bytes) -> Held | None:
        """Lease the message under ``key``; None when it is not there (yet)."""
        while (found := self._find(key)) is not None:
            ring, claim = found
            try:
                view, segment = ring.frame(claim)
            except DamagedError as error:
                ring.reader.finish(claim)
                self._judge(ring, error)
                continue
            except BaseException:
                ring.reader.step_back()
                raise
            ring.reader.hold(claim, self._home.instance)
            return Held(ring, claim, view, segment)
        return None

    def release(self, held: Held) -> None:
        """End a lease: its space goes back to the producer."""
        with contextlib.suppress(BufferError):
            held.view.release()  # unless the user still has an array of it, which the rules of a lease forbid to use
        if held.ring in self._rings:
            held.ring.finish(held.claim)
        if held.segment is not None:
            held.segment.close()

    def has(self, key: bytes) -> bool:
        """Whether a message under ``key`` may be there, without claiming it."""
        self._look_for_rings()
        for ring in list(self._rings):
            try:
                ring.reader.poll()
            except DamagedError as error:
                self._judge(ring, error)
                continue
            if key in ring.reader.index:
                return True
        return False

    def report_later(self, error: DamagedError) -> None:
        """Raise this to whoever asks next: it was met where nobody could be told."""
        self._report = error

    def let_go(self) -> None:
        """Unmap everything."""
        for ring in self._rings:
            ring.let_go()
        self._rings.clear()

    def _find(self, key: bytes) -> tuple[InRing, Claim] | None:
        if self._report is not None:
            error, self._report = self._report, None
            raise error
        while True:
            for ring in self._rings:
                reader = ring.reader
                try:
                    reader.poll()
                    if key in reader.index:
                        if not self._deliverable(ring):
                            self._drop(ring)
                            break
                        claim = reader.claim(key)
                        if claim is not None:
                            return ring, claim
                except DamagedError as error:
                    self._judge(ring, error)
                    break
            else:
                if self._rings_word[0] != self._seen_rings and self._look_for_rings():
                    continue
                now = _monotonic()
                if now >= self._next_check_s:
                    self._next_check_s = now + MISS_S
                    self._drop_dead()
                return None

    def _drop_dead(self) -> None:
        for ring in list(self._rings):
            if not ring.reader.open or not ring.pulse.beats():
                self._drop(ring)

    def _find_exact(self, key: bytes, instance: int, serial: int, mark: int) -> tuple[InRing, Claim] | None:
        self._look_for_rings()
        for ring in self._rings:
            if ring.name.instance == instance and ring.name.serial == serial:
                if not self._deliverable(ring):
                    self._drop(ring)
                    return None
                try:
                    ring.reader.poll()
                    claim = ring.reader.claim_exact(key, mark)
                except DamagedError as error:
                    self._judge(ring, error)
                    return None
                return None if claim is None else (ring, claim)
        return None

    def _deliverable(self, ring: InRing) -> bool:
        """Whether the producer of a frame that is about to be taken still answers for it."""
        if ring.reader.words[layout.W_STATE] != layout.STATE_OPEN:
            return False
        now = _monotonic()
        if now - ring.verified_s < FRESH_S:
            return True
        ring.verified_s = now
        return ring.pulse.beats()

    def _copy(self, ring: InRing, claim: Claim) -> Taken | None:
        reader = ring.reader
        segment = None
        try:
            view, segment = ring.frame(claim)
            parts = copy_out(view)
        except (DamagedError, DecodeError) as error:
            reader.finish(claim)
            damage = error if isinstance(error, DamagedError) else DamagedError(self._channel, error.reason)
            self._judge(ring, damage)
            return None
        except BaseException:
            reader.step_back()  # no memory for the copy, or an interrupt: the frame stays
            raise
        finally:
            if segment is not None:
                view.release()
                segment.close()
        ring.finish(claim)
        return Taken(parts, claim.nbytes, claim.kind != layout.IN_RING)

    def _look_for_rings(self) -> bool:
        """Attach to rings that have appeared since the last look; True when there was reason to look."""
        rings = self._rings_word[0]
        if rings == self._seen_rings:
            return False
        attached = {str(ring.name): ring for ring in self._rings}
        for file_name in sorted(os.listdir(self._home.directory)):
            name = names.parse_ring(file_name)
            if name is None or name.dest != self._dest_digest or name.source != self._source_digest:
                continue
            if file_name not in attached and file_name not in self._aside:
                self._attach(name)
        for ring in attached.values():
            if not ring.reader.open:
                self._drop(ring, reap=False)
        self._seen_rings = rings
        return True

    def _attach(self, name: names.RingName) -> None:
        mapping = attach(self._home.directory, str(name))
        if mapping is None:
            return
        try:
            ring = InRing(self._home, name, mapping, self._channel)
        except DamagedError:
            self._aside.add(str(name))
            if mapping.nbytes >= layout.HEADER_BYTES:
                words = mapping.view.cast("Q")
                words[layout.W_STATE] = layout.STATE_CONDEMNED
                words.release()
            mapping.close()
            raise
        if ring.reader.open and ring.pulse.beats():
            self._rings.append(ring)
        else:
            ring.let_go()

    def _drop(self, ring: InRing, reap: bool = True) -> None:
        """Let go of a ring whose producer has closed it or died."""
        dead = ring.reader.open
        self._rings.remove(ring)
        ring.let_go()
        if dead and reap:
            self._home.found_dead()

    def _judge(self, ring: InRing, error: DamagedError) -> None:
        """Raise the error of a ring that is damaged; let go of one whose files went because its producer did."""
        if not ring.reader.open or not ring.pulse.beats():
            self._drop(ring)
            return
        self._set_aside(ring)
        raise error

    def _set_aside(self, ring: InRing) -> None:
        """Never look at a damaged ring again, and tell its producer to start a fresh one."""
        self._aside.add(str(ring.name))
        ring.reader.condemn()
        self._rings.remove(ring)
        ring.let_go()
