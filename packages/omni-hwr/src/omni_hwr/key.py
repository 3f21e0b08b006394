"""What an artifact is: the content of a key, its canonical text and its digest. Pure, no I/O."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType

from omni_hwr.errors import KeyFormatError

KEY_SCHEMA = "omni-hwr/key/1"
"""Part of every key's canonical text: keys of another schema never collide with these."""

MAX_DEPTH = 8
"""How deeply a layout value may nest."""

_VERSIONED = re.compile(r"[^/\s][^\s]*/[^/\s]+")
_ADAPTATION = re.compile(r"base|[a-z0-9_.-]+:[^\s:]+")
_DIGEST = re.compile(r"[0-9a-f]{64}")

type_error = "is {kind}, not text, a finite number, true, false, null, a list or a table with text keys"


def canonical_json(value: object) -> str:
    """One text per value: sorted text keys, no blanks, ASCII escapes, finite numbers, tuples as lists.

    Integers and floats differ (``1`` and ``1.0``), and so do true and 1.

    Raises:
        KeyFormatError: ``value`` holds something that JSON has no exact text for.
    """
    return json.dumps(_plain(value, "value", 0), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _plain(value: object, where: str, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise KeyFormatError(f"{where} nests deeper than {MAX_DEPTH} levels")
    if value is None or type(value) in (bool, int):
        return value
    if type(value) is str:
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise KeyFormatError(f"{where} holds a lone surrogate, which is no text")
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise KeyFormatError(f"{where} is {value}, which has no JSON text")
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for name in value:
            if type(name) is not str:
                raise KeyFormatError(f"{where} has the key {name!r}, which is not text")
        return {name: _plain(item, f"{where}.{name}", depth + 1) for name, item in value.items()}
    raise KeyFormatError(f"{where} " + type_error.format(kind=type(value).__name__))


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return MappingProxyType({name: _frozen(item) for name, item in value.items()})
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value


@dataclass(frozen=True, eq=False)
class WeightKey:
    """Names one artifact by everything that its bytes depend on.

    Attributes:
        model: Where the weights come from, for example ``org/name``.
        component: The part of the model, for example ``transformer``.
        representation: What the bytes are, for example ``bf16-final``; a new layout gets a new name.
        producer: ``name/version`` of the code that makes the bytes.
        revision: The source's revision, empty where the source has none.
        fingerprint: Digest of the source files, see :meth:`WeightStore.fingerprint`; empty where the revision says all.
        dtype: The data type asked for, empty where the representation says it.
        layout: Table of what the layout depends on, for example ``{"tp_size": 2, "tp_rank": 0}``.
        adaptation: ``base``, or ``kind:fingerprint`` of what was merged in, for example ``lora:3fa9…``.

    How bytes will be moved to a device is not part of a key. Two keys are equal when their canonical texts are.

    Raises:
        KeyFormatError: A field is empty, of the wrong type or form.
    """

    model: str
    component: str
    representation: str
    producer: str
    revision: str = ""
    fingerprint: str = ""
    dtype: str = ""
    layout: Mapping[str, object] = field(default_factory=dict)
    adaptation: str = "base"

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "layout":
                if not isinstance(value, Mapping):
                    raise KeyFormatError(f"layout is {type(value).__name__}, not a table")
            elif type(value) is not str:
                raise KeyFormatError(f"{item.name} is {type(value).__name__}, not text")
        for name in ("model", "component", "representation", "producer"):
            if not getattr(self, name).strip():
                raise KeyFormatError(f"{name} is empty")
        if not _VERSIONED.fullmatch(self.producer):
            raise KeyFormatError(f"producer {self.producer!r} is not name/version, for example 'loader/1'")
        if not _ADAPTATION.fullmatch(self.adaptation):
            raise KeyFormatError(f"adaptation {self.adaptation!r} is neither 'base' nor 'kind:fingerprint'")
        object.__setattr__(self, "layout", _frozen(_plain(self.layout, "layout", 0)))
        for size, rank in (("tp_size", "tp_rank"), ("sp_size", "sp_rank")):
            self._check_rank(size, rank)
        canonical_json(self.content)

    def _check_rank(self, size_name: str, rank_name: str) -> None:
        size, rank = self.layout.get(size_name), self.layout.get(rank_name)
        for name, value, least in ((size_name, size, 1), (rank_name, rank, 0)):
            if value is not None and (type(value) is not int or value < least):
                raise KeyFormatError(f"layout.{name} is {value!r}, not an integer of at least {least}")
        if isinstance(rank, int) and (not isinstance(size, int) or rank >= size):
            raise KeyFormatError(f"layout.{rank_name} is {rank}, which needs layout.{size_name} above it")

    @property
    def content(self) -> dict[str, object]:
        """The key as a table, the form that :meth:`parse` reads."""
        table: dict[str, object] = {"schema": KEY_SCHEMA}
        table.update({item.name: getattr(self, item.name) for item in fields(self)})
        table["layout"] = _plain(self.layout, "layout", 0)
        return table

    @cached_property
    def canonical(self) -> str:
        """Canonical JSON of :attr:`content`; what the digest is taken over."""
        return canonical_json(self.content)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of :attr:`canonical` in hexadecimal: the artifact's name in the store."""
        return hashlib.sha256(self.canonical.encode("ascii")).hexdigest()

    @classmethod
    def parse(cls, content: object) -> WeightKey:
        """Read a key back from :attr:`content`.

        Raises:
            KeyFormatError: A field is missing, unknown or malformed, or the schema is another one.
        """
        if not isinstance(content, Mapping):
            raise KeyFormatError(f"a key is a table, not {type(content).__name__}")
        if content.get("schema") != KEY_SCHEMA:
            raise KeyFormatError(f"schema {content.get('schema')!r} is not {KEY_SCHEMA!r}")
        known = {item.name for item in fields(cls)}
        unknown = sorted(str(name) for name in set(content) - known - {"schema"})
        missing = sorted(known - set(content))
        if unknown or missing:
            raise KeyFormatError(f"key fields unknown: {unknown}, missing: {missing}")
        return cls(**{name: content[name] for name in known})

    def __eq__(self, other: object) -> bool:
        return self.canonical == other.canonical if isinstance(other, WeightKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.canonical)


def is_digest(text: str) -> bool:
    """Whether ``text`` is the hexadecimal form of a 256-bit digest."""
    return _DIGEST.fullmatch(text) is not None
