"""Names: of stages, keys, instances, and of the files that stand for them. Pure.

Every file name is built from fixed words and hexadecimal digits, so no name a caller gives can leave the directory.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from omni_shmring.errors import InvalidArgumentError

MAX_KEY_BYTES = 65_535
DIGITS = b"0123456789"


def stage_name(name: object, what: str = "stage name") -> str:
    """Return the text of a stage or scope name; an integer names the same stage as its decimal digits.

    Raises:
        InvalidArgumentError: it is neither a non-empty text nor an integer, or not encodable as UTF-8.
    """
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(f"{what} is {name!r}; it must be a non-empty text or an integer")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{what} is {name!r}, which is not valid UTF-8: {error.reason}") from None
    return str(name)


def key_bytes(key: object) -> bytes:
    """Return a key in UTF-8.

    Raises:
        InvalidArgumentError: not a text, not encodable, or longer than 65,535 bytes.
    """
    try:
        raw: bytes = key.encode()  # type: ignore[attr-defined]
    except (AttributeError, UnicodeEncodeError):
        raw = _refuse_key(key)
    if type(raw) is not bytes or len(raw) > MAX_KEY_BYTES or not isinstance(key, str):
        _refuse_key(key)
    return raw


def _refuse_key(key: object) -> bytes:
    if not isinstance(key, str):
        raise InvalidArgumentError(f"key is {key!r}; it must be a text")
    try:
        nbytes = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"key is {key!r}, which is not valid UTF-8: {error.reason}") from None
    raise InvalidArgumentError(f"key {key[:40]!r}… has {nbytes:,} bytes; at most {MAX_KEY_BYTES:,} travel")


def digest(text: str) -> str:
    """16 hexadecimal digits that stand for a name in a file name."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def scope_directory(scope: str, uid: int) -> str:
    """The directory name of a user's scope: readable where the scope is, unique always."""
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", scope)[:40]
    return f"{user_prefix(uid)}{readable}.{digest(scope)}"


def user_prefix(uid: int) -> str:
    """What the names of all scope directories of one user begin with."""
    return f"omni-shmring.{uid}."


@dataclass(frozen=True, slots=True)
class RingName:
    """The identity of one ring: who fills it, for which stage, and the how-manieth of that edge."""

    dest: str
    source: str
    instance: int
    serial: int

    def __str__(self) -> str:
        return f"ring.{self.dest}.{self.source}.{self.instance:016x}.{self.serial:08x}"

    def chunk(self, number: int) -> str:
        """The file of one further part of the ring's index."""
        return f"more.{self.dest}.{self.source}.{self.instance:016x}.{self.serial:08x}.{number:04x}"

    def segment(self, number: int) -> str:
        """The file of one frame that travels outside the ring."""
        return f"frame.{self.dest}.{self.source}.{self.instance:016x}.{self.serial:08x}.{number:010x}"


_RING = re.compile(r"ring\.([0-9a-f]{16})\.([0-9a-f]{16})\.([0-9a-f]{16})\.([0-9a-f]{8})")
_OWNED = re.compile(r"(?:ring|more|frame)\.[0-9a-f]{16}\.[0-9a-f]{16}\.([0-9a-f]{16})\.[0-9a-f.]+")
_LIFE = re.compile(r"life\.([0-9a-f]{16})\.([0-9a-f]{16})")
_ALSO_OWNED = re.compile(r"(?:new|pipe)\.([0-9a-f]{16})(?:\.[0-9a-z.]+)?")


def parse_ring(file_name: str) -> RingName | None:
    """The ring a file stands for; None when the file is no ring."""
    found = _RING.fullmatch(file_name)
    if found is None:
        return None
    return RingName(found[1], found[2], int(found[3], 16), int(found[4], 16))


def life_file(stage: str, instance: int) -> str:
    """The file whose record lock says that an instance lives."""
    return f"life.{stage}.{instance:016x}"


def parse_life(file_name: str) -> tuple[str, int] | None:
    """(stage digest, instance) of a life file; None when it is no such file."""
    found = _LIFE.fullmatch(file_name)
    return (found[1], int(found[2], 16)) if found else None


def owner_of(file_name: str) -> int | None:
    """The instance that owns a file; None for files that belong to the scope as a whole."""
    life = parse_life(file_name)
    if life:
        return life[1]
    found = _OWNED.fullmatch(file_name) or _ALSO_OWNED.fullmatch(file_name)
    return int(found[1], 16) if found else None


def inbox_file(stage: str) -> str:
    """The file through which a stage is told about new rings and woken."""
    return f"inbox.{stage}"


def pipe_file(instance: int) -> str:
    """The FIFO that wakes the event loop of one instance."""
    return f"pipe.{instance:016x}"


def scratch_file(instance: int, purpose: str) -> str:
    """A file under construction, not yet under its own name."""
    return f"new.{instance:016x}.{purpose}"


def chunk_prefix(key: bytes) -> bytes:
    """A key without the digits it ends with: the request that a chunk belongs to."""
    return key.rstrip(DIGITS)
