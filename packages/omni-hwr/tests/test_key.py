"""Identity: one text per key, and the same digest for the same content only."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from omni_hwr import WeightKey
from omni_hwr.errors import KeyFormatError
from omni_hwr.key import canonical_json, is_digest

MakeKey = Callable[..., WeightKey]


def test_the_canonical_text_is_as_documented(make_key: MakeKey) -> None:
    key = make_key("Größe", layout={"tp_size": 2, "tp_rank": 0, "axes": ("h", 1.0, True, None)})
    assert key.canonical == (
        '{"adaptation":"base","component":"transformer","dtype":"","fingerprint":"",'
        '"layout":{"axes":["h",1.0,true,null],"tp_rank":0,"tp_size":2},"model":"Gr\\u00f6\\u00dfe",'
        '"producer":"test/1","representation":"bf16-final","revision":"","schema":"omni-hwr/key/1"}'
    )
    assert key.digest == hashlib.sha256(key.canonical.encode("ascii")).hexdigest()
    assert is_digest(key.digest)


def test_order_and_tuples_do_not_matter_values_do(make_key: MakeKey) -> None:
    one = make_key(layout={"a": [1, 2], "b": 1})
    assert one == make_key(layout={"b": 1, "a": (1, 2)})
    assert hash(one) == hash(make_key(layout={"b": 1, "a": (1, 2)}))
    others = [{"a": [1, 2], "b": 1.0}, {"a": [1, 2], "b": True}, {"a": [2, 1], "b": 1}, {"a": [1, 2], "b": "1"}]
    assert len({one.digest, *(make_key(layout=other).digest for other in others)}) == 5


def test_every_field_counts(make_key: MakeKey) -> None:
    changes = {
        "component": "vae", "representation": "fp8", "producer": "test/2", "revision": "r", "fingerprint": "f",
        "dtype": "BF16", "layout": {"sp_size": 2}, "adaptation": "lora:3fa9",
    }  # fmt: skip
    digests = {make_key().digest, make_key("other").digest}
    digests |= {make_key(**{name: value}).digest for name, value in changes.items()}
    assert len(digests) == len(changes) + 2


def test_a_digest_is_the_same_in_another_process_with_another_hash_seed(make_key: MakeKey) -> None:
    key = make_key(layout={"z": 1, "a": {"y": 2, "b": [3]}})
    code = "import json,sys; from omni_hwr.key import WeightKey; print(WeightKey.parse(json.load(sys.stdin)).digest)"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], input=json.dumps(key.content), capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
        assert done.stdout.strip() == key.digest


def test_parse_reads_content_back_and_refuses_all_else(make_key: MakeKey) -> None:
    key = make_key(layout={"tp_size": 2, "tp_rank": 1})
    assert WeightKey.parse(json.loads(json.dumps(key.content))) == key
    for broken in (
        None,
        {**key.content, "transport": "rdma"},
        {name: value for name, value in key.content.items() if name != "revision"},
        {**key.content, "schema": "omni-hwr/key/2"},
        {**key.content, "model": 3},
    ):
        with pytest.raises(KeyFormatError):
            WeightKey.parse(broken)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": " "}, "model is empty"),
        ({"component": ""}, "component is empty"),
        ({"producer": "loader"}, "name/version"),
        ({"adaptation": "lora"}, "kind:fingerprint"),
        ({"revision": 3}, "revision is int"),
        ({"layout": [1]}, "not a table"),
        ({"layout": {"x": float("nan")}}, "nan"),
        ({"layout": {"x": float("inf")}}, "inf"),
        ({"layout": {3: "x"}}, "not text"),
        ({"layout": {"x": b"y"}}, "bytes"),
        ({"layout": {"x": "\ud800"}}, "surrogate"),
        ({"model": "\udcff"}, "surrogate"),
        ({"layout": {"tp_size": 2, "tp_rank": 2}}, "tp_rank"),
        ({"layout": {"tp_rank": 0}}, "tp_size"),
        ({"layout": {"tp_size": True}}, "tp_size"),
        ({"layout": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}}}}, "deeper"),
    ],
)
def test_what_is_no_key_is_refused_in_words(make_key: MakeKey, fields: dict[str, object], words: str) -> None:
    with pytest.raises(KeyFormatError, match=words) as caught:
        make_key(**fields)
    assert isinstance(caught.value, ValueError)


def test_a_layout_cannot_change_under_its_key(make_key: MakeKey) -> None:
    layout = {"axes": [1]}
    key = make_key(layout=layout)
    digest = key.digest
    layout["axes"].append(2)
    with pytest.raises(TypeError):
        key.layout["axes"] = 1  # type: ignore[index]
    assert key.digest == digest == make_key(layout={"axes": [1]}).digest


def test_canonical_json_round_trips_for_any_value() -> None:
    hypothesis = pytest.importorskip("hypothesis", reason="property tests need hypothesis")
    st = pytest.importorskip("hypothesis.strategies")
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"]))
    )
    values = st.recursive(
        scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(), v, max_size=3), max_leaves=6
    )

    @hypothesis.settings(max_examples=150, derandomize=True, deadline=None)
    @hypothesis.given(values)
    def check(value: object) -> None:
        try:
            text = canonical_json(value)
        except KeyFormatError:
            return
        assert json.loads(text) == value
        assert canonical_json(json.loads(text)) == text
        assert text.isascii()

    check()
