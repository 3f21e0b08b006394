"""Every byte of every tensor exactly once, in any order, and the digests of what was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch

from omni_hwr import TensorSink, TensorSpec, WeightKey, WeightStore
from omni_hwr.errors import CoverageError

Writes = list[tuple[str, torch.Tensor | memoryview, int]]


class Writer:
    """A streaming producer of a fixed script."""

    def __init__(self, specs: Mapping[str, TensorSpec], writes: Writes) -> None:
        self.specs = specs
        self.writes = writes

    def declare(self) -> Mapping[str, TensorSpec]:
        return self.specs

    def write(self, sink: TensorSink) -> None:
        for name, rows, first in self.writes:
            sink.write(name, rows, first)


SPECS = {"x": TensorSpec("F32", (4, 3)), "s": TensorSpec("I64", ()), "e": TensorSpec("F16", (0, 2))}
X = torch.arange(12, dtype=torch.float32).view(4, 3)
S = torch.tensor(5)


@pytest.mark.parametrize(
    "writes",
    [
        [("x", X, 0), ("s", S, 0)],
        [("x", X, 0), ("s", S, 0), ("e", torch.empty(0, 2, dtype=torch.float16), 0)],
        [("s", S, 0), ("x", X[:2], 0), ("x", X[2:], 2)],
        [("x", X[3:], 3), ("s", S, 0), ("x", X[:1], 0), ("x", X[1:3], 1)],
        [("x", memoryview(X.numpy()), 0), ("s", S, 0)],
        [("x", X.t().contiguous().t(), 0), ("s", S, 0)],
    ],
)
def test_any_order_gives_the_same_artifact(
    writes: Writes, store: WeightStore, make_key: Callable[..., WeightKey]
) -> None:
    plain = store.publish(make_key("plain"), {"x": X, "s": S, "e": torch.empty(0, 2, dtype=torch.float16)})
    with store.get_or_build(make_key("stream"), Writer(SPECS, writes), verify="full") as lease:
        assert lease.content_digest == plain.content_digest
    with store.lease(make_key("stream"), verify="full") as lease:
        assert torch.equal(lease.tensors["x"], X)
        assert lease.tensors["s"] == 5


@pytest.mark.parametrize(
    ("writes", "tensor", "words"),
    [
        ([("x", X, 0)], "s", "only 0 of 8"),
        ([("x", X[:3], 0), ("s", S, 0)], "x", "only 36 of 48"),
        ([("x", X[:1], 0), ("x", X[2:], 2), ("s", S, 0)], "x", "only 36 of 48"),
        ([("x", X, 0), ("x", X[1:2], 1), ("s", S, 0)], "x", "twice"),
        ([("x", X[1:3], 1), ("x", X[:2], 0)], "x", "twice"),
        ([("x", X[1:2], 1), ("x", X, 0)], "x", "twice"),
        ([("x", X[:2], 3)], "x", "of a tensor of 48"),
        ([("x", X[:1], -1)], "x", "of a tensor of 48"),
        ([("y", X, 0)], "y", "not declared"),
        ([("x", X.double(), 0)], "x", "F64"),
        ([("x", X[:, :2], 0)], "x", "declared F32|declared I64"),
        ([("s", S.view(1), 0)], "s", "declared F32|declared I64"),
        ([("x", memoryview(b"12345"), 0)], "x", "whole number of rows"),
    ],
)
def test_what_is_not_exactly_once_is_refused_and_named(
    writes: Writes, tensor: str, words: str, store: WeightStore, key: WeightKey, leftovers: Callable[[], list[str]]
) -> None:
    with pytest.raises(CoverageError, match=words) as caught:
        store.get_or_build(key, Writer(SPECS, writes))
    assert caught.value.tensor == tensor
    assert leftovers() == []
    assert store.entries() == []


def test_a_buffer_may_be_reused_at_once(store: WeightStore, key: WeightKey) -> None:
    rows, width = 6, 1 << 20

    class Reusing(Writer):
        def write(self, sink: TensorSink) -> None:
            buffer = torch.empty(1, width)
            for row in range(rows):
                buffer.fill_(row)
                sink.write("x", buffer, row)

    with store.get_or_build(key, Reusing({"x": TensorSpec("F32", (rows, width))}, []), verify="full") as lease:
        assert [lease.tensors["x"][row].unique().tolist() for row in range(rows)] == [[row] for row in range(rows)]
    store.verify(key)


def test_any_cut_and_order_is_accepted_and_any_overlap_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    hypothesis = pytest.importorskip("hypothesis", reason="property tests need hypothesis")
    st = pytest.importorskip("hypothesis.strategies")
    from omni_hwr.layout import Placement
    from omni_hwr.payload import _Coverage

    @hypothesis.settings(max_examples=200, derandomize=True, deadline=None)
    @hypothesis.given(st.lists(st.tuples(st.integers(-2, 22), st.integers(0, 9)), max_size=12))
    def check(pieces: list[tuple[int, int]]) -> None:
        cover = _Coverage(Placement("x", TensorSpec("U8", (20,)), 0, 0), None)
        model: set[int] = set()
        for start, size in pieces:
            span = set(range(start, start + size))
            legal = span <= set(range(20)) and not span & model and start >= 0 and start + size <= 20
            if size == 0:
                continue
            if legal:
                cover.add(start, start + size)
                model |= span
            else:
                with pytest.raises(CoverageError):
                    cover.add(start, start + size)
            assert cover.is_complete == (len(model) == 20)
            prefix = next(at for at in range(21) if at not in model)
            assert cover.position == prefix

    check()
