"""Swaps are whole or not at all, and never trample what somebody else put there."""

from __future__ import annotations

import torch

from omni_dlo.binding import Binding, bind, counts_versions, same_bytes, unbind


def table() -> tuple[dict[str, torch.Tensor], list[torch.Tensor], list[Binding]]:
    hosts = [torch.ones(2), torch.ones(3)]
    views = [torch.zeros(2), torch.zeros(3)]
    held, flat = {"a": hosts[0]}, [hosts[1]]
    return held, flat, [(held, "a", hosts[0], views[0]), (flat, 0, hosts[1], views[1])]


def test_there_and_back() -> None:
    held, flat, swaps = table()
    assert bind(swaps)
    assert held["a"] is swaps[0][3]
    assert flat[0] is swaps[1][3]
    assert not unbind(swaps)
    assert held["a"] is swaps[0][2]
    assert flat[0] is swaps[1][2]


def test_a_site_that_holds_something_else_undoes_the_rest() -> None:
    held, flat, swaps = table()
    other = flat[0] = torch.ones(1)
    assert not bind(swaps)
    assert held["a"] is swaps[0][2]
    assert flat[0] is other
    del held["a"]
    assert not bind(swaps)


def test_what_was_put_there_meanwhile_stays_and_is_told() -> None:
    held, _, swaps = table()
    bind(swaps)
    other = held["a"] = torch.ones(1)
    assert unbind(swaps)
    assert held["a"] is other


def test_same_bits_include_nan_and_any_stride() -> None:
    nan = torch.tensor([[float("nan"), 1.0], [2.0, 3.0]])
    assert same_bytes(nan, nan.clone())
    assert same_bytes(nan.t(), nan.t().contiguous())
    assert not same_bytes(nan, nan + 1)
    assert not same_bytes(torch.tensor([0.0]), torch.tensor([-0.0]))


def test_tensors_of_inference_mode_count_nothing() -> None:
    with torch.inference_mode():
        uncounted = torch.ones(1)
    assert counts_versions(torch.ones(1))
    assert not counts_versions(uncounted)
