"""What stands in the scopes of this user, for people to read: who owns it, how full it is, what it holds."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field

from omni_shmring import layout, names
from omni_shmring.errors import DamagedError
from omni_shmring.liveness import Pulse, is_own
from omni_shmring.mapping import attach
from omni_shmring.reader import RingReader
from omni_shmring.scope import ScopeDirectory, open_existing, scopes_of_user


@dataclass(frozen=True, slots=True)
class Owner:
    """One instance: a transport, open or dead."""

    instance: int
    stage: str
    scope: str
    pid: int
    age_s: float
    alive: bool


@dataclass(frozen=True, slots=True)
class RingInfo:
    """One ring: from which owner to which stage, how much of it is taken, and which keys are unclaimed."""

    owner: Owner
    dest: str
    ring_bytes: int
    pending: int
    pending_bytes: int
    keys: tuple[str, ...]
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class ScopeInfo:
    """One scope directory."""

    path: str
    scope: str
    nbytes: int
    owners: tuple[Owner, ...]
    rings: tuple[RingInfo, ...]
    leftovers: tuple[str, ...] = field(default=())


def survey(root: str, keys: int = 3) -> list[ScopeInfo]:
    """Look at every scope of this user below a root, disturbing nobody.

    Args:
        root: The directory that holds the scopes.
        keys: How many pending keys of each ring to name.

    Raises:
        ScopeError: a scope's directory cannot be trusted.
    """
    found = []
    for path in scopes_of_user(root):
        scope = open_existing(path)
        if scope is None:
            continue
        try:
            found.append(_scope(scope, keys))
        finally:
            scope.close()
    return found


def _scope(scope: ScopeDirectory, keys: int) -> ScopeInfo:
    listing = sorted(scope.listing())
    owners = {owner.instance: owner for owner in (_owner(scope, name) for name in listing) if owner is not None}
    stages = {names.digest(owner.stage): owner.stage for owner in owners.values()}
    rings = []
    for name in listing:
        ring = names.parse_ring(name)
        if ring is not None:
            stranger = Owner(ring.instance, stages.get(ring.source, "?"), "?", 0, 0.0, alive=False)
            owner = owners.get(ring.instance, stranger)
            rings.append(_ring(scope, name, ring, owner, stages.get(ring.dest, f"?{ring.dest[:8]}"), keys))
    nbytes = 0
    for name in listing:
        try:
            nbytes += os.stat(name, dir_fd=scope.fd, follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue  # it left while we looked
    title = next((owner.scope for owner in owners.values()), "?")
    return ScopeInfo(scope.path, title, nbytes, tuple(owners.values()), tuple(rings), tuple(scope.leftovers()))


def _owner(scope: ScopeDirectory, name: str) -> Owner | None:
    parsed = names.parse_life(name)
    if parsed is None or is_own(parsed[1]):
        # One's own life file is never opened: closing it would end the lock on it.
        return None
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=scope.fd)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        raw = file.read(1 << 20)
    try:
        note = json.loads(raw)
        stage, title = str(note["stage"]), str(note["scope"])
        pid, opened = int(note["pid"]), float(note["opened"])
    except (ValueError, KeyError, TypeError):
        stage, title, pid, opened = "?", "?", 0, time.time()
    with Pulse(scope.fd, parsed[0], parsed[1]) as pulse:
        return Owner(parsed[1], stage, title, pid, max(time.time() - opened, 0.0), pulse.beats())


def _ring(scope: ScopeDirectory, file_name: str, name: names.RingName, owner: Owner, dest: str, keys: int) -> RingInfo:
    mapping = attach(scope.fd, file_name)
    if mapping is None:
        return RingInfo(owner, dest, 0, 0, 0, (), "gone while we looked")
    chunks = []

    def chunk(number: int) -> memoryview | None:
        more = attach(scope.fd, name.chunk(number))
        if more is None or more.nbytes != layout.CHUNK_BYTES:
            return None
        chunks.append(more)
        return more.view

    reader = None
    try:
        reader = RingReader(
            mapping.view,
            f"{owner.stage} -> {dest}",
            entry=None,
            receivers=memoryview(bytes(8)).cast("Q"),
            chunk=chunk,
            segment_key=lambda number, nbytes: b"?" * nbytes,
            receiver_lives=lambda entry: True,
            instance_lives=lambda instance: True,
        )
        pending = reader.standing()
        shown = tuple(key.decode(errors="replace") for key, _ in pending[:keys])
        total = sum(nbytes for _, nbytes in pending)
        return RingInfo(owner, dest, reader.geometry.data_bytes, len(pending), total, shown)
    except DamagedError as error:
        return RingInfo(owner, dest, 0, 0, 0, (), error.reason)
    finally:
        if reader is not None:
            reader.close_views()
        for each in (*chunks, mapping):
            each.close()


def reap(root: str, really: bool) -> list[str]:
    """Paths of everything that dead processes left in the scopes of this user; removed when ``really``."""
    found = []
    for path in scopes_of_user(root):
        scope = open_existing(path)
        if scope is None:
            continue
        try:
            with scope.locked():
                alive = any(scope.instances().values())
                removed = scope.reap() if really else scope.leftovers()
            found += [os.path.join(path, name) for name in sorted(removed)]
            if not alive:
                found.append(path)
        finally:
            scope.close()
    return found
