"""A descriptor names one publication, never a later one under the same key. Pure."""

from __future__ import annotations

import hashlib
import zlib

import msgspec

from omni_shmring import layout
from omni_shmring.errors import DescriptorError

_MAX_BYTES = 256
_FIELDS = ("edge", "producer", "ring", "mark")


class Descriptor(msgspec.Struct, frozen=True):
    """What ``put`` returns: small, plain, free to travel through any control plane.

    Attributes:
        edge: 64 bits that stand for scope, source, destination and key.
        producer: The instance that published it.
        ring: Which of that producer's rings to the destination.
        mark: Which publication of that ring.
        nbytes: Size of the frame.
    """

    edge: int
    producer: int
    ring: int
    mark: int
    nbytes: int

    def to_bytes(self) -> bytes:
        """The descriptor in msgpack, at most 64 bytes."""
        return _encode(self)

    @classmethod
    def from_bytes(cls, raw: bytes | bytearray | memoryview) -> Descriptor:
        """A descriptor from :meth:`to_bytes`.

        Raises:
            DescriptorError: these bytes are no descriptor.
        """
        if not isinstance(raw, bytes | bytearray | memoryview) or len(raw) > _MAX_BYTES:
            raise DescriptorError(f"a descriptor is at most {_MAX_BYTES} bytes of msgpack, not {type(raw).__name__}")
        try:
            return check(_decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DescriptorError(f"not a descriptor: {error}") from None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Descriptor).decode


def edge_seed(scope: str, source: str, dest: str) -> int:
    """64 bits that stand for scope, source and destination."""
    mixed = hashlib.blake2b(digest_size=8)
    for part in (scope.encode(), source.encode(), dest.encode()):
        mixed.update(len(part).to_bytes(4, "little") + part)
    return int.from_bytes(mixed.digest(), "little")


def edge_number(seed: int, key: bytes) -> int:
    """64 bits that stand for an edge and a key (a guard against mix-ups; the index compares the key itself)."""
    return seed ^ zlib.crc32(key)


def check(found: object) -> Descriptor:
    """A descriptor whose numbers are possible.

    Raises:
        DescriptorError: it is none, or they are not.
    """
    if not isinstance(found, Descriptor):
        raise DescriptorError(f"descriptor is {type(found).__name__}; pass what put() returned")
    for name in (*_FIELDS, "nbytes"):
        value = getattr(found, name)
        if type(value) is not int or not 0 <= value < 1 << 64:
            raise DescriptorError(f"descriptor field {name} is {value!r}, not an unsigned 64-bit integer")
    if found.ring >= 1 << 32 or not layout.mark_holds(found.mark) or layout.mark_number(found.mark) == 0:
        raise DescriptorError("descriptor names no publication")
    return found
