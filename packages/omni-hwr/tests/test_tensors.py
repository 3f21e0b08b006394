"""Tied, shared, expanded and non-contiguous tensors come back with their sharing and strides."""

from __future__ import annotations

import pytest
import torch

from omni_hwr import WeightKey, WeightStore
from omni_hwr.errors import TensorError
from omni_hwr.tensors import TO_TORCH, raw_bytes, split

Weights = dict[str, torch.Tensor]


def samples() -> dict[str, Weights]:
    torch.manual_seed(1)
    base = torch.randn(12, 8)
    flat = torch.arange(64, dtype=torch.uint8)
    return {
        "tied": {"a": base, "b": base},
        "tied, other shape": {"a": base, "b": base.view(96)},
        "rows of one": {"all": base, "top": base[:4], "bottom": base[8:]},
        "disjoint rows": {"top": base[:4], "bottom": base[8:]},
        "transposed": {"t": base.t()},
        "transposed and its base": {"t": base.t(), "base": base},
        "columns": {"left": base[:, :4], "right": base[:, 4:]},
        "a column alone": {"left": base[:, 2]},
        "steps": {"s": base[::3, 1::2]},
        "expanded": {"e": base[0].expand(5, 8)},
        "expanded scalar": {"e": torch.tensor(3.5).expand(4, 2)},
        "sliding window": {"w": base.view(-1).as_strided((10, 4), (2, 1))},
        "overlapping slices": {"a": base.view(-1)[:50], "b": base.view(-1)[40:]},
        "two types on one storage": {"bytes": flat, "words": flat[8:40].view(torch.int32)},
        "three types": {"w": flat[8:40].view(torch.int32), "b": flat[:50], "h": flat[4:12].view(torch.float16)},
        "odd bytes under words": {"words": flat[:32].view(torch.int64)[1:], "bytes": flat[7:33]},
        "channels last": {"c": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)},
        "scalar": {"s": torch.tensor(1.5, dtype=torch.float64)},
        "empty": {"e": torch.empty(3, 0, 2), "f": torch.empty(0)},
        "conjugate": {"z": torch.randn(3, dtype=torch.complex64).conj()},
        **{f"dtype {name}": {"x": torch.ones(5, 3).to(dtype)} for name, dtype in TO_TORCH.items()},
    }  # fmt: skip


def overlap(left: torch.Tensor, right: torch.Tensor) -> int | None:
    """Distance of two tensors' first items where they share a storage, else None."""
    if not left.numel() or left.untyped_storage().data_ptr() != right.untyped_storage().data_ptr():
        return None
    return left.data_ptr() - right.data_ptr()


@pytest.mark.parametrize("name", sorted(samples()))
def test_sharing_and_strides_round_trip(name: str, store: WeightStore, key: WeightKey) -> None:
    weights = samples()[name]
    store.publish(key, weights)
    with store.lease(key, verify="full") as lease:
        found = dict(lease.tensors)
    assert list(found) == list(weights)
    for label, tensor in weights.items():
        assert found[label].dtype == tensor.dtype
        assert found[label].stride() == tensor.stride()
        assert found[label].shape == tensor.shape
        assert raw_bytes(found[label]) == raw_bytes(tensor)
        assert found[label].data_ptr() % tensor.element_size() == 0
    if name != "disjoint rows":
        for one in weights:
            for two in weights:
                assert overlap(found[one], found[two]) == overlap(weights[one], weights[two])


def test_shared_bytes_are_stored_once() -> None:
    base = torch.randn(100, 100)
    blobs, views = split({"a": base, "b": base, "c": base[10:20], "d": base.t()}, {})
    assert [blob.name for blob in blobs] == ["a"]
    assert [view.blob for view in views] == [0, 0, 0, 0]
    assert views[2].offset == 4000


def test_a_slice_of_a_large_storage_stores_only_itself() -> None:
    (blob,), (view,) = split({"row": torch.randn(1000, 10)[500]}, {})
    assert blob.spec.nbytes == 40
    assert view.offset == 0


def test_gaps_between_strides_are_zero_so_that_content_is_reproducible(store: WeightStore, key: WeightKey) -> None:
    first = torch.full((6, 4), 7.0)
    second = torch.full((6, 4), 9.0)
    for base in (first, second):
        base[:, :2] = 1.0
    assert store.publish(key, {"x": first[:, :2]}) == store.publish(key, {"x": second[:, :2]})


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.eye(3).to_sparse(), "dense"),
        (torch.empty(2, device="meta"), "meta"),
        (torch.ones(2, dtype=torch.complex128), "no safetensors name"),
    ],
)
def test_what_cannot_be_kept_is_named(tensor: torch.Tensor, words: str) -> None:
    with pytest.raises(TensorError, match=words) as caught:
        split({"block.weight": tensor}, {})
    assert caught.value.tensor == "block.weight"


def test_parameters_that_require_gradients_are_published(store: WeightStore, key: WeightKey) -> None:
    store.publish(key, {"p": torch.nn.Parameter(torch.ones(3)), "v": torch.ones(3, requires_grad=True)[1:]})
    with store.lease(key) as lease:
        assert not lease.tensors["p"].requires_grad


def test_any_views_of_any_storage_round_trip(tmp_path_factory: pytest.TempPathFactory, key: WeightKey) -> None:
    hypothesis = pytest.importorskip("hypothesis", reason="property tests need hypothesis")
    st = pytest.importorskip("hypothesis.strategies")
    root = tmp_path_factory.mktemp("views")
    view = st.tuples(
        st.sampled_from([torch.uint8, torch.int16, torch.float32]),
        st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), max_size=3),
        st.integers(0, 20),
    )
    counter = iter(range(10**6))

    @hypothesis.settings(max_examples=60, derandomize=True, deadline=None)
    @hypothesis.given(st.lists(view, min_size=1, max_size=5))
    def check(drawn: list[tuple[torch.dtype, list[tuple[int, int]], int]]) -> None:
        raw = torch.randint(0, 255, (512,), dtype=torch.uint8)
        weights = {
            f"v{index}": raw.view(dtype).as_strided([n for n, _ in dims], [s for _, s in dims], offset)
            for index, (dtype, dims, offset) in enumerate(drawn)
        }
        with WeightStore(root / str(next(counter))) as store:
            store.publish(key, weights)
            with store.lease(key) as lease:
                for name, tensor in weights.items():
                    assert lease.tensors[name].stride() == tensor.stride()
                    assert raw_bytes(lease.tensors[name]) == raw_bytes(tensor)

    check()
