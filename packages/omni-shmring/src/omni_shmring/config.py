"""The one home of every default of a transport."""

from __future__ import annotations

from dataclasses import dataclass

from omni_shmring.errors import InvalidArgumentError

MIN_RING_BYTES = 4 << 10
MAX_RING_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportConfig:
    """What an engine may set; every field has a working default.

    Attributes:
        ring_bytes: Data capacity of each ring this process creates: 0 (no ring, every frame is a segment of its
            own) or 4 KiB to 64 MiB.
        max_pending_bytes: Bound on the unclaimed bytes of this producer over all its edges. Past it ``put`` raises
            :class:`~omni_shmring.BacklogError`.
        exact: Values come back with exactly the types they had. False leaves plain Python values to msgpack
            (tuples and sets become lists, bytearrays bytes, keys and numbers as msgpack has them) and saves a pass.
        linger_s: How long ``close()`` waits, in seconds, for receivers to take what is pending.
        types: Enum, dataclass and ``msgspec.Struct`` classes that may travel; both sides list the same ones.
        root: The directory on a shared-memory file system that holds the scopes. Containers share it by sharing
            the mount.
    """

    ring_bytes: int = 4 << 20
    max_pending_bytes: int = 1 << 30
    exact: bool = True
    linger_s: float = 1.0
    types: tuple[type, ...] = ()
    root: str = "/dev/shm"

    def __post_init__(self) -> None:
        """Refuse what no transport could honour."""
        ring = self.ring_bytes
        if type(ring) is not int or (ring != 0 and not MIN_RING_BYTES <= ring <= MAX_RING_BYTES):
            raise InvalidArgumentError(
                f"ring_bytes is {ring!r}; it must be 0 (no ring) or {MIN_RING_BYTES:,} to {MAX_RING_BYTES:,}"
            )
        if type(self.max_pending_bytes) is not int or self.max_pending_bytes < 1:
            raise InvalidArgumentError(
                f"max_pending_bytes is {self.max_pending_bytes!r}; it must be a positive integer"
            )
        if not isinstance(self.linger_s, int | float) or not 0 <= self.linger_s < float("inf"):
            raise InvalidArgumentError(f"linger_s is {self.linger_s!r}; it must be a finite number of seconds >= 0")
        if not isinstance(self.root, str) or not self.root.startswith("/") or "\0" in self.root:
            raise InvalidArgumentError(f"root is {self.root!r}; it must be an absolute path")
        if not isinstance(self.types, tuple) or not all(isinstance(t, type) for t in self.types):
            raise InvalidArgumentError(f"types is {self.types!r}; it must be a tuple of classes")
