"""The codec: everything comes back exactly as it was, or is refused with its place."""

from __future__ import annotations

import ctypes
import dataclasses
import datetime as dt
import decimal
import enum
import math
import uuid
import zoneinfo
from collections import OrderedDict
from typing import Any

import msgspec
import numpy as np
import pytest

from omni_shmring.codec import Codec
from omni_shmring.codec.frame import Frame, copy_out, look_at
from omni_shmring.errors import DecodeError, EncodeError, InvalidArgumentError


def lay_out(frame: Frame) -> bytearray:
    memory = bytearray(frame.nbytes)
    frame.write(memoryview(memory), 0, ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    assert b"".join(frame.buffers()) == memory  # a segment holds what the ring holds
    return memory


def through(payload: Any, codec: Codec | None = None) -> Any:
    codec = codec or Codec()
    memory = lay_out(codec.encode(payload))
    codec.done()
    return codec.decode(copy_out(memoryview(memory)))


def same(a: Any, b: Any) -> bool:
    """Equal in type and value, all the way down; NaN is NaN and zeros have signs."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, decimal.Decimal):
        return a.as_tuple() == b.as_tuple()
    if isinstance(a, dt.datetime | dt.time):
        return (
            a.replace(tzinfo=None) == b.replace(tzinfo=None) and a.fold == b.fold and repr(a.tzinfo) == repr(b.tzinfo)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) for p, q in zip(a.items(), b.items()) for x, y in zip(p, q))
    if isinstance(a, set | frozenset):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    return bool(a == b)


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
VALUES: list[Any] = [
    None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 2**70, -(2**700), 1.5, -0.0,
    float("nan"), float("inf"), float("-inf"), 1e-320, 1j, complex(-0.0, float("nan")), "", "text", "\ud800x", "é\0",
    b"", b"x" * 100, b"y" * 40_000, bytearray(b"z"), bytearray(70_000), [], (), {}, set(), frozenset(), [[]], ((),),
    (1, [2, (3,)], {4}, b"x", bytearray(b"y"), 2**70, -0.0), {1: 2, (1, 2): 3, None: 4, 1.5: 2, b"b": 1, "s": 0},
    {frozenset({1}): {2: {3: (4,)}}}, {True: 1, 2: "x"}, {2**70: 1}, {"\ud800": 1}, {-1: 2**70}, {"__ext__": 1, "$": 2},
    dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN), dt.datetime(1, 1, 1), dt.datetime.max,
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3.5))),
    dt.date(2024, 2, 29), dt.time(1, 2, 3, 4), dt.time(1, tzinfo=dt.UTC), dt.timedelta(days=-1, microseconds=3),
    uuid.UUID(int=5), decimal.Decimal("1.500"), decimal.Decimal("-0"), decimal.Decimal("NaN"), decimal.Decimal("1E+9"),
    np.float32(1.5), np.float64(-0.0), np.int8(-3), np.bool_(True), np.complex64(1j), np.datetime64("2024-01-01"),
    np.str_("x"), np.bytes_(b"y"), np.float16(2), np.longdouble(1.25),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{type(v).__name__}-{str(v)[:20]!r}")
def test_plain_values(value: Any) -> None:
    for payload in (value, [value, value], {"k": value}, (value,), {"deep": [({"x": (value,)},)]}):
        assert same(through(payload), payload)


ARRAYS = [
    np.arange(24).reshape(2, 3, 4), np.arange(24).reshape(2, 3, 4)[::1, :, ::2].transpose(0, 2, 1), np.arange(10)[::-1],
    np.empty((0, 3)), np.array(3.5), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array([True, False]),
    np.arange(5, dtype=">i4"), np.array(["a", "bc"]), np.array([b"a", b"bc"]), np.array(["2024-01-01"], dtype="M8[ns]"),
    np.zeros(3, dtype=[("a", "<i4"), ("b", "<f4", (2,))]), np.arange(3, dtype=np.float16), np.arange(40_000.0),
    np.arange(3, dtype=np.complex64), np.zeros((2, 0, 5), np.int8), np.array([np.nan, -0.0]),
    np.zeros(3, np.longdouble),
    np.lib.stride_tricks.sliding_window_view(np.arange(10), 3),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_arrays(array: np.ndarray[Any, Any]) -> None:
    got = through({"a": array, "b": [array]})
    assert same(got["a"], array)
    assert got["a"].flags.writeable
    assert got["a"] is got["b"][0]


def test_a_broadcast_array_is_not_materialised() -> None:
    array = np.broadcast_to(np.array([1.0]), (1000, 1000))
    assert Codec().encode(array).nbytes < 1000
    assert same(through(array), array)


def test_leaves_are_owned_and_a_small_one_keeps_no_large_one() -> None:
    source = {"large": np.zeros(1 << 20), **{f"small{n}": np.full(8, n) for n in range(50)}}
    got = through(source)
    source["small1"][:] = 99
    assert got["small1"].tolist() == [1] * 8
    got["small1"][:] = 5
    assert got["small2"].tolist() == [2] * 8
    base = got["small0"]
    while getattr(base, "base", None) is not None:
        base = base.base
    assert len(memoryview(base if not isinstance(base, memoryview) else base.obj)) < 300_000


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


class Point(msgspec.Struct, frozen=True):
    x: int
    y: Any = None


@dataclasses.dataclass
class Span:
    start: int
    end: Any = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        ran.append(self.start)


ran: list[int] = []


def test_registered_classes_travel_and_run_no_code() -> None:
    codec = Codec(types=(Color, Point, Span))
    payload = {"c": Color.BLUE, "p": Point(1, (2, np.arange(3))), "s": [Span(1, {2})]}
    ran.clear()
    got = through(payload, codec)
    assert got["c"] is Color.BLUE
    assert got["p"].y[1].tolist() == [0, 1, 2]
    assert got["s"] == payload["s"]
    assert ran == []
    memory = lay_out(codec.encode(payload))
    with pytest.raises(DecodeError, match=r"payload\['c'\].*Color.*registered"):
        Codec().decode(copy_out(memoryview(memory)))


def test_registering_what_cannot_be_is_refused() -> None:
    class Runs(msgspec.Struct):
        x: int

        def __post_init__(self) -> None:
            ran.append(self.x)

    with pytest.raises(InvalidArgumentError, match="int"):
        Codec(types=(int,))
    with pytest.raises(InvalidArgumentError, match="__post_init__"):
        Codec(types=(Runs,))


class MyDict(dict[str, int]):
    pass


BAD: list[tuple[Any, str, str]] = [
    ({"a": [1, {"x": object()}]}, r"payload['a'][1]['x']", "object"),
    ({"a": MyDict()}, "payload['a']", "subclass of dict"),
    ([OrderedDict()], "payload[0]", "subclass of dict"),
    ({"a": np.array([object()])}, "payload['a']", "object"),
    ((1, memoryview(b"x")), "payload[1]", "memoryview"),
    ({"a": np.ma.array([1])}, "payload['a']", "subclass of ndarray"),
    ({(1, Color.RED): 1}, "payload.keys()[(1, <Color.RED: 1>)][1]", "Color"),
    ([lambda: None], "payload[0]", "function"),
]


@pytest.mark.parametrize(("payload", "path", "reason"), BAD, ids=lambda v: str(v)[:30])
def test_what_cannot_travel_is_refused_with_its_place(payload: Any, path: str, reason: str) -> None:
    codec = Codec()
    with pytest.raises(EncodeError) as caught:
        codec.encode(payload)
    assert caught.value.path == path
    assert reason in caught.value.reason
    assert through("next", codec) == "next"


def test_nesting_has_a_limit() -> None:
    deep: Any = 1
    for _ in range(99):
        deep = [deep]
    assert same(through(deep), deep)
    for make in (lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: {(1,): v}):
        endless: Any = 1
        for _ in range(5000):
            endless = make(endless)
        with pytest.raises(EncodeError, match="nested"):
            Codec().encode(endless)
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(EncodeError, match="nested"):
        Codec().encode(itself)


def test_exact_false_is_msgpack() -> None:
    codec = Codec(exact=False)
    assert through({"t": (1, 2), "s": [1.5], "a": np.arange(3)}, codec)["t"] == [1, 2]
    assert through({"c": 1j}, codec) == {"c": 1j}
    with pytest.raises(EncodeError, match="64 bits"):
        codec.encode([2**70])


def test_every_damaged_byte_is_an_error_or_a_value() -> None:
    codec = Codec(types=(Point,))
    payload = {"x": np.arange(300.0), "y": [Point(1), (2, {3})], "z": np.arange(3000.0), "t": dt.datetime(2024, 1, 1)}
    memory = lay_out(codec.encode(payload))
    errors = 0
    for offset in [*range(min(400, len(memory))), *range(400, len(memory), 997)]:
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(memory)
            damaged[offset] ^= flip
            try:
                codec.decode(copy_out(memoryview(damaged)))
            except DecodeError:
                errors += 1
    assert errors > 400
    for length in range(0, len(memory), 61):
        with pytest.raises(DecodeError):
            copy_out(memoryview(memory)[:length])


def test_a_lease_view_is_read_only_and_uncopied() -> None:
    codec = Codec()
    memory = lay_out(codec.encode({"a": np.arange(5), "b": np.arange(9000.0)}))
    got = codec.decode(look_at(memoryview(memory)))
    assert not got["a"].flags.writeable
    assert not got["b"].flags.writeable
    assert np.shares_memory(got["b"], np.frombuffer(memory, np.uint8))


def test_random_trees() -> None:
    hypothesis = pytest.importorskip("hypothesis", reason="waits for hypothesis: pip install hypothesis")
    st = hypothesis.strategies
    scalars = (
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.binary().map(bytearray)
        | st.complex_numbers() | st.decimals() | st.uuids() | st.datetimes() | st.dates() | st.times() | st.timedeltas()
        | st.integers(-128, 127).map(np.int8) | st.floats(width=32).map(np.float32) | st.floats().map(np.float64)
        | st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda v: np.array(v, np.int64))
    )  # fmt: skip
    hashable = st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.uuids() | st.dates()
    keys = hashable | st.tuples(hashable, hashable)
    trees = st.recursive(
        scalars,
        lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys, inner) | st.sets(hashable),
        max_leaves=25,
    )

    @hypothesis.settings(max_examples=400, derandomize=True, deadline=None)
    @hypothesis.given(trees)
    def comes_back(tree: Any) -> None:
        assert same(through(tree), tree)

    comes_back()


def test_images() -> None:
    image_module = pytest.importorskip("PIL.Image", reason="waits for the image extra: pip install pillow")
    for mode in ("RGB", "L", "RGBA", "1", "F", "I;16"):
        image = image_module.new(mode, (7, 5), 1 if mode in ("1", "L", "F", "I;16") else (1, 2, 3, 4)[: len(mode)])
        got = through({"i": image})["i"]
        assert (got.mode, got.size, got.tobytes()) == (image.mode, image.size, image.tobytes())
    palette = image_module.new("P", (4, 4), 3)
    palette.putpalette(list(range(30)))
    assert through(palette).convert("RGB").tobytes() == palette.convert("RGB").tobytes()
