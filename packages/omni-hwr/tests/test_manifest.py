"""Manifests read back as they were written, and describe content alone by their digest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from omni_hwr import WeightKey, WeightStore
from omni_hwr.manifest import ManifestError, check_ready, dump_ready, parse_manifest

Weights = dict[str, torch.Tensor]


def test_a_manifest_reads_back(store: WeightStore, key: WeightKey, weights: Weights) -> None:
    manifest = store.publish(key, weights)
    assert parse_manifest(manifest.dump()) == manifest
    assert store.manifest(key) == store.verify(key) == manifest
    assert check_ready(dump_ready(manifest.dump(), key), manifest.dump(), key.digest) is None


def test_names_of_any_letters_survive(store: WeightStore, key: WeightKey) -> None:
    names = ["größe", 'quote"', "new\nline", "],[", "\x00", "😀"]
    manifest = store.publish(key, {name: torch.ones(1) for name in names})
    assert [view.name for view in parse_manifest(manifest.dump()).views] == names
    with store.lease(key) as lease:
        assert list(lease.tensors) == names


def test_the_content_digest_ignores_files_key_and_algorithm(
    store: WeightStore, make_key: Callable[..., WeightKey], weights: Weights
) -> None:
    one = store.publish(make_key("a"), weights).content_digest
    assert store.publish(make_key("b"), weights).content_digest == one
    reordered = dict(reversed(weights.items()))
    assert store.publish(make_key("c"), {**reordered, "embed.weight": weights["embed.weight"]}).content_digest != ""
    assert store.publish(make_key("d"), {**weights, "step": torch.tensor(4)}).content_digest != one


def test_any_damage_to_the_text_is_an_error_of_one_type(store: WeightStore, key: WeightKey, weights: Weights) -> None:
    data = store.publish(key, weights).dump()
    for cut in range(0, len(data) - 2, 37):
        with pytest.raises(ManifestError):
            parse_manifest(data[:cut])


def test_no_mutation_of_a_byte_crashes_the_parser(store: WeightStore, key: WeightKey, weights: Weights) -> None:
    hypothesis = pytest.importorskip("hypothesis", reason="property tests need hypothesis")
    st = pytest.importorskip("hypothesis.strategies")
    data = store.publish(key, weights).dump()

    @hypothesis.settings(max_examples=300, derandomize=True, deadline=None)
    @hypothesis.given(st.integers(0, len(data) - 1), st.binary(max_size=4))
    def check(at: int, patch: bytes) -> None:
        try:
            found = parse_manifest(data[:at] + patch + data[at + len(patch) :])
        except ManifestError:
            return
        for view in found.views:
            blob = found.blobs[view.blob]
            assert 0 <= view.offset <= view.offset + view.span_bytes <= blob.nbytes

    check()
