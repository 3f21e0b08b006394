"""What msgpack would change, kept as it is: a look at the containers before encoding, a hook while decoding.

msgspec writes tuples, sets, bytearrays, UUIDs, Decimals, Enums and float subclasses in its own way without asking a
hook, and refuses integers past 64 bits. So every container is looked at first, a flat one in one C pass over the types
of its items, and what would not come back as it was becomes a msgpack extension.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from omni_shmring.codec.arrays import Unsupported, decode_scalar, encode_scalar
from omni_shmring.codec.registry import Registry

ARRAY, TENSOR, LONG = 1, 2, 3
TUPLE, SET, FROZENSET, PAIRS, OBJECT, ENUM = 10, 11, 12, 13, 14, 15
BYTEARRAY, BIG_INT, COMPLEX, SURROGATES = 20, 21, 22, 23
DATETIME, DATE, TIME, TIMEDELTA, UUID, DECIMAL = 30, 31, 32, 33, 34, 35
NUMPY_SCALAR, IMAGE = 40, 41

MAX_DEPTH = 100
LONG_BYTES = 32 << 10
"""bytes and bytearrays longer than this travel as a raw region."""
LONG_LIST = 32

Ext = msgspec.msgpack.Ext
_STR = frozenset({str})
_KEYS = frozenset({str, int, bytes, type(None)})
PLAIN_TYPES = frozenset({type(None), bool, int, float, str, np.ndarray})


class TooDeep(Exception):  # noqa: N818 (a signal inside the codec; it becomes an EncodeError with a path)
    """Containers nested past the limit."""


class ExactWriter:
    """Rewrites a payload into what msgpack brings back exactly.

    Args:
        encode: Encodes an already rewritten value.
        plain: The types that need no look (scalars, arrays; torch.Tensor once it has been met). Shared, may grow.
        registry: The classes that may travel.
        other: Handles a leaf of a type that is not known here: an extension, or Unsupported.
        long: Takes a long buffer, gives its extension.
    """

    def __init__(
        self,
        encode: Callable[[Any], bytes],
        plain: set[type],
        registry: Registry,
        other: Callable[[Any], Any],
        long: Callable[[bytes | bytearray], Any],
    ) -> None:
        self._encode = encode
        self._plain = plain
        self._registry = registry
        self._other = other
        self._long = long
        self._leaves: dict[type, Callable[[Any], Any]] = dict(_LEAVES)

    def rewrite(self, value: Any, careful: bool, depth: int = 0) -> Any:
        """The value, or what stands for it.

        Args:
            value: Any node of the payload.
            careful: Look at every integer and text as well: msgpack has refused one of them.
            depth: How deep the node is nested.

        Raises:
            Unsupported: a leaf cannot travel.
            TooDeep: nested deeper than 100 containers.
        """
        kind = type(value)
        if kind in self._plain:
            return _careful(value) if careful and (kind is int or kind is str) else value
        if depth > MAX_DEPTH:
            raise TooDeep
        if kind is dict:
            return self._dict(value, careful, depth + 1)
        if kind is list:
            return self._items(value, careful, depth + 1)
        if kind is tuple:
            return Ext(TUPLE, self._encode(self._items(value, careful, depth + 1)))
        if kind is bytes:
            return value if len(value) <= LONG_BYTES else self._long(value)
        if kind is bytearray:
            return Ext(BYTEARRAY, bytes(value)) if len(value) <= LONG_BYTES else self._long(value)
        if kind is set or kind is frozenset:
            return Ext(SET if kind is set else FROZENSET, self._encode(self._items(list(value), careful, depth + 1)))
        leaf = self._leaves.get(kind)
        if leaf is not None:
            return leaf(value)
        name = self._registry.name_of(kind)
        if name is not None:
            if self._registry.is_enum(kind):
                return Ext(ENUM, self._encode([name, value.name]))
            fields = [[f, self.rewrite(v, careful, depth + 1)] for f, v in self._registry.fields(value)]
            return Ext(OBJECT, self._encode([name, fields]))
        if isinstance(value, np.generic):
            return Ext(NUMPY_SCALAR, encode_scalar(value))
        return self._other(value)

    def _items(self, items: Any, careful: bool, depth: int) -> Any:
        plain = self._plain
        if not careful:
            if len(items) > LONG_LIST:
                # One type throughout is the usual long list; comparing identities takes two thirds of hashing them.
                kinds = list(map(type, items))
                if kinds[0] in plain and kinds.count(kinds[0]) == len(kinds):
                    return items
            if plain.issuperset(map(type, items)):
                return items
        if depth > MAX_DEPTH:
            raise TooDeep
        if careful:
            return [self.rewrite(item, True, depth) for item in items]
        return [item if type(item) in plain else self.rewrite(item, False, depth) for item in items]

    def _dict(self, value: dict[Any, Any], careful: bool, depth: int) -> Any:
        plain = self._plain
        if not careful:
            if _STR.issuperset(map(type, value)) or _KEYS.issuperset(map(type, value)):
                if plain.issuperset(map(type, value.values())):
                    return value
                if depth > MAX_DEPTH:
                    raise TooDeep
                return {k: v if type(v) in plain else self.rewrite(v, False, depth) for k, v in value.items()}
        elif _STR.issuperset(map(type, value)) and all(k.isascii() for k in value):
            return {k: self.rewrite(v, True, depth) for k, v in value.items()}
        flat = [item for pair in value.items() for item in pair]
        return Ext(PAIRS, self._encode(self._items(flat, careful, depth)))


def _careful(value: Any) -> Any:
    if type(value) is int:
        if -(1 << 63) <= value < 1 << 64:
            return value
        return Ext(BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    try:
        value.encode()
    except UnicodeEncodeError:
        return Ext(SURROGATES, value.encode("utf-8", "surrogatepass"))
    return value


def _zone(zone: dt.tzinfo | None, leaf: object) -> str | int | None:
    """None; a ZoneInfo's key; or the microseconds of a fixed offset."""
    if zone is None:
        return None
    if type(zone) is dt.timezone:
        offset = zone.utcoffset(None)
        name = zone.tzname(None)
        if name == dt.timezone(offset).tzname(None):
            return offset // dt.timedelta(microseconds=1)
    if type(zone) is zoneinfo.ZoneInfo and zone.key:
        return zone.key
    raise Unsupported(leaf, f"{type(leaf).__name__} with tzinfo {zone!r}; use a fixed offset or a named ZoneInfo")


def _unzone(packed: str | int | None) -> dt.tzinfo | None:
    if packed is None:
        return None
    if isinstance(packed, str):
        return zoneinfo.ZoneInfo(packed)
    return dt.timezone(dt.timedelta(microseconds=packed))


_plain_encode = msgspec.msgpack.Encoder().encode
_plain_decode = msgspec.msgpack.Decoder().decode


def _datetime(value: dt.datetime) -> Any:
    day = value.replace(tzinfo=None, fold=0)
    return Ext(DATETIME, _plain_encode([day.isoformat(), value.fold, _zone(value.tzinfo, value)]))


def _time(value: dt.time) -> Any:
    bare = value.replace(tzinfo=None, fold=0)
    return Ext(TIME, _plain_encode([bare.isoformat(), value.fold, _zone(value.tzinfo, value)]))


_SAFETY = list(uuid.SafeUUID)

_LEAVES: dict[type, Callable[[Any], Any]] = {
    complex: lambda v: Ext(COMPLEX, _plain_encode([v.real, v.imag])),
    uuid.UUID: lambda v: Ext(UUID, v.bytes + bytes([_SAFETY.index(v.is_safe)])),
    decimal.Decimal: lambda v: Ext(DECIMAL, _decimal(v)),
    dt.datetime: _datetime,
    dt.date: lambda v: Ext(DATE, v.isoformat().encode()),
    dt.time: _time,
    dt.timedelta: lambda v: Ext(TIMEDELTA, _plain_encode([v.days, v.seconds, v.microseconds])),
}


def _decimal(value: decimal.Decimal) -> bytes:
    return str(value).encode()


def _read_datetime(data: memoryview) -> dt.datetime:
    text, fold, zone = _plain_decode(data)
    return dt.datetime.fromisoformat(text).replace(fold=fold, tzinfo=_unzone(zone))


def _read_time(data: memoryview) -> dt.time:
    text, fold, zone = _plain_decode(data)
    return dt.time.fromisoformat(text).replace(fold=fold, tzinfo=_unzone(zone))


LEAF_READERS: dict[int, Callable[[memoryview], Any]] = {
    BYTEARRAY: bytearray,
    BIG_INT: lambda d: int.from_bytes(d, "little", signed=True),
    COMPLEX: lambda d: complex(*_plain_decode(d)),
    SURROGATES: lambda d: bytes(d).decode("utf-8", "surrogatepass"),
    UUID: lambda d: uuid.UUID(bytes=bytes(d[:16]), is_safe=_SAFETY[d[16]]),
    DECIMAL: lambda d: decimal.Decimal(bytes(d).decode()),
    DATETIME: _read_datetime,
    DATE: lambda d: dt.date.fromisoformat(bytes(d).decode()),
    TIME: _read_time,
    TIMEDELTA: lambda d: dt.timedelta(*_plain_decode(d)),
    NUMPY_SCALAR: decode_scalar,
}
"""Extensions that hold one value and no other."""
