"""Placement: aligned, without gaps, and read by the safetensors library itself."""

from __future__ import annotations

import pytest
from safetensors import deserialize

from omni_hwr.dtypes import ITEM_BYTES
from omni_hwr.errors import TensorError
from omni_hwr.layout import LINE_BYTES, PAGE_BYTES, TensorSpec, build_header, file_name, nbytes_of, plan_layout


def check_plan(tensors: dict[str, TensorSpec], shard_bytes: int) -> None:
    plan = plan_layout(tensors, shard_bytes)
    assert sorted(item.name for item in plan.placements) == sorted(tensors)
    for index, file in enumerate(plan.files):
        own = [item for item in plan.placements if item.file == index]
        position = len(file.header)
        assert position % PAGE_BYTES == 0
        for item in own:
            assert item.offset == position
            assert item.offset % ITEM_BYTES[item.spec.dtype] == 0
            if item.spec.nbytes % LINE_BYTES == 0:
                assert item.offset % LINE_BYTES == 0
            position = item.end
        assert position == file.nbytes
        assert len(own) <= 1 or sum(item.spec.nbytes for item in own) <= shard_bytes
        data = dict(deserialize(file.header + bytes(file.nbytes - len(file.header))))
        assert {name: tuple(found["shape"]) for name, found in data.items()} == {i.name: i.spec.shape for i in own}
    assert plan_layout(tensors, shard_bytes) == plan


def test_any_mixture_is_aligned_and_readable() -> None:
    hypothesis = pytest.importorskip("hypothesis", reason="property tests need hypothesis")
    st = pytest.importorskip("hypothesis.strategies")
    readable = sorted(set(ITEM_BYTES) - {"C64", "F8_E8M0"})
    specs = st.builds(TensorSpec, st.sampled_from(readable), st.lists(st.integers(0, 70), max_size=2).map(tuple))
    names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
        lambda n: n != "__metadata__"
    )

    @hypothesis.settings(max_examples=120, derandomize=True, deadline=None)
    @hypothesis.given(st.dictionaries(names, specs, max_size=8), st.sampled_from([1, 64, 4096, 1 << 30]))
    def check(tensors: dict[str, TensorSpec], shard_bytes: int) -> None:
        check_plan(tensors, shard_bytes)

    check()


def test_tensors_stay_in_the_order_given_across_files() -> None:
    plan = plan_layout({f"t{index}": TensorSpec("F32", (1024,)) for index in range(6)}, 8192)
    assert [item.name for item in plan.placements] == [f"t{index}" for index in range(6)]
    assert [item.file for item in plan.placements] == [0, 0, 1, 1, 2, 2]
    assert [item.name for item in plan.files] == [file_name(index, 3) for index in range(3)]
    assert plan.files[0].name == "model-00001-of-00003.safetensors"
    assert plan.nbytes == 3 * (PAGE_BYTES + 8192)


def test_a_header_states_its_length_and_fills_pages() -> None:
    header = build_header([("ä", "F32", (2, 2), 16)])
    assert int.from_bytes(header[:8], "little") == len(header) - 8
    assert header[8:9] == b"{"
    assert header.endswith(b" ")


def test_no_tensor_at_all_gives_one_empty_file() -> None:
    plan = plan_layout({}, 4096)
    assert len(plan.files) == 1
    assert plan.nbytes == len(plan.files[0].header)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("", TensorSpec("F32", ())),
        ("__metadata__", TensorSpec("F32", ())),
        ("x", TensorSpec("F4", (2,))),
        ("x", TensorSpec("F32", (-1,))),
    ],
)
def test_what_the_format_cannot_hold_is_refused(name: str, spec: TensorSpec) -> None:
    with pytest.raises(TensorError):
        plan_layout({name: spec}, 4096)


def test_sizes_of_nonsense_are_negative() -> None:
    assert nbytes_of("F32", (2, 3)) == 24
    assert nbytes_of("F32", ()) == 4
    assert nbytes_of("F33", (2,)) == -1
    assert nbytes_of("F33", (0,)) == -1
    assert nbytes_of("F32", (-2, -3)) == -1
