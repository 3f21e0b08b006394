"""The graph cache over a fake recorder whose replays overwrite their own memory, as a device's do."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs omni-serve[transformers]")

from omni_serve.graphs import GraphCache, GraphCacheConfig, GraphCaptureError  # noqa: E402


class FakeGraph:
    def __init__(self, run: Callable[[Any], Any], inputs: Any) -> None:
        self.inputs = tuple(t.clone() for t in inputs)
        self._run = run
        self.output = run(self.inputs)
        _poison(self.output)

    def replay(self) -> None:
        _write(self.output, self._run(self.inputs))


def _poison(output: Any) -> None:
    for tensor in output if isinstance(output, tuple) else (output,):
        tensor.fill_(float("nan"))


def _write(into: Any, new: Any) -> None:
    for held, value in zip(into if isinstance(into, tuple) else (into,), new if isinstance(new, tuple) else (new,)):
        held.copy_(value)


class FakeBackend:
    def __init__(self) -> None:
        self.on: Hashable = 1
        self.free = 10 << 30
        self.pools: list[Any] = []
        self.used: list[Any] = []
        self.fails = False
        self.able = True

    def handles(self, device: Any) -> bool:
        return self.able

    def stream(self, device: Any) -> Hashable:
        return self.on

    def free_bytes(self, device: Any) -> int:
        return self.free

    def new_pool(self, device: Any) -> Any:
        self.pools.append(object())
        return self.pools[-1]

    def capture(self, run: Any, inputs: Any, pool: Any) -> FakeGraph:
        if self.fails:
            raise RuntimeError("the driver said no")
        self.used.append(pool)
        return FakeGraph(run, inputs)


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


def double(x: Any, *, times: int = 2) -> Any:
    return x * times


def run(cache: GraphCache, size: int, value: float = 1.0, **more: Any) -> Any:
    with torch.inference_mode():
        return cache(torch.full((size,), float(value)), **more)


@pytest.mark.parametrize("nth", [2, 3, 5])
def test_the_nth_call_of_the_same_shapes_records_and_later_ones_replay(backend: FakeBackend, nth: int) -> None:
    cache = GraphCache(double, GraphCacheConfig(capture_on_call=nth), backend)
    for call in range(1, nth + 4):
        assert run(cache, 4, call).tolist() == [2.0 * call] * 4
        assert len(cache) == int(call >= nth)
    assert (cache.counters.warm_up, cache.counters.captures, cache.counters.hits) == (nth - 1, 1, 3)


def test_results_are_clones_that_later_replays_leave_alone(backend: FakeBackend) -> None:
    cache = GraphCache(lambda x: (x + 1, x + 2), GraphCacheConfig(), backend)
    results = [run(cache, 2, value) for value in range(6)]
    assert [r[0].tolist() for r in results] == [[v + 1.0] * 2 for v in range(6)]
    assert all(isinstance(r, tuple) for r in results)


def test_shapes_dtypes_strides_values_and_streams_are_told_apart(backend: FakeBackend) -> None:
    cache = GraphCache(double, GraphCacheConfig(), backend)
    with torch.inference_mode():
        square = torch.arange(4.0).reshape(2, 2)
        for given in (square, square.T, square.double(), torch.arange(4.0)):
            for _ in range(2):
                assert torch.equal(cache(given), given * 2)
            assert torch.equal(cache(given, times=3), given * 3)
            assert torch.equal(cache(given, times=3), given * 3)
    assert len(cache) == 8
    backend.on = 2
    run(cache, 4)
    run(cache, 4)
    assert len(cache) == 9


def test_keyword_tensors_keep_their_places_in_any_order(backend: FakeBackend) -> None:
    cache = GraphCache(lambda *, a, b, scale: a - b * scale, GraphCacheConfig(), backend)
    a, b = torch.full((2,), 5.0), torch.full((2,), 3.0)
    with torch.inference_mode():
        results = [cache(a=a, b=b, scale=0.0), cache(b=b, a=a, scale=0.0), cache(a=a, b=b, scale=0.0)]
        assert [r.tolist() for r in results] == [[5.0, 5.0]] * 3
        assert cache.counters.hits == 1
        cache(a=a, b=b, scale=-0.0)
        assert cache.counters.hits == 1


def test_graphs_of_one_device_and_stream_share_a_pool(backend: FakeBackend) -> None:
    cache = GraphCache(double, GraphCacheConfig(), backend)
    for stream in (1, 2):
        backend.on = stream
        for size in (1, 2, 3):
            run(cache, size)
            run(cache, size)
    assert len(backend.pools) == 2
    assert backend.used == [backend.pools[0]] * 3 + [backend.pools[1]] * 3


def test_at_most_n_graphs_and_none_is_ever_evicted(backend: FakeBackend) -> None:
    cache = GraphCache(double, GraphCacheConfig(max_graphs=2), backend)
    for size in (1, 2, 3, 4):
        for _ in range(3):
            assert run(cache, size).tolist() == [2.0] * size
    assert len(cache) == 2
    assert cache.counters.capacity == 4
    before = cache.counters.hits
    run(cache, 1)
    run(cache, 2)
    assert cache.counters.hits == before + 2


def test_zero_graphs_means_never(backend: FakeBackend) -> None:
    cache = GraphCache(double, GraphCacheConfig(max_graphs=0), backend)
    for _ in range(5):
        assert run(cache, 2).tolist() == [2.0, 2.0]
    assert (len(cache), cache.counters.ineligible, len(backend.used)) == (0, 5, 0)


def test_the_history_of_admission_is_bounded_and_forgets_the_oldest(backend: FakeBackend) -> None:
    cache = GraphCache(double, GraphCacheConfig(max_history=2), backend)
    for size in (1, 2, 3, 1):
        run(cache, size)
    assert len(cache) == 0, "1 was forgotten when 3 came"
    run(cache, 3)
    run(cache, 1)
    assert len(cache) == 2


def test_too_little_free_memory_runs_eagerly_until_there_is_more(backend: FakeBackend) -> None:
    cache = GraphCache(double, GraphCacheConfig(min_free_bytes=100), backend)
    backend.free = 99
    for _ in range(3):
        run(cache, 2)
    assert (len(cache), cache.counters.memory) == (0, 2)
    backend.free = 100
    run(cache, 2)
    assert len(cache) == 1


def test_grad_autocast_other_devices_and_unhashable_arguments_run_eagerly(backend: FakeBackend) -> None:
    cache = GraphCache(lambda x, options=None: x * 2, GraphCacheConfig(), backend)
    x = torch.ones(2)
    for _ in range(3):
        cache(x)
    with torch.inference_mode():
        for _ in range(3):
            with torch.autocast("cpu"):
                cache(x)
            cache(x, options=[1])
        backend.able = False
        for _ in range(3):
            cache(x)
    assert (cache.counters.ineligible, len(cache)) == (12, 0)


def test_a_failed_recording_is_fatal_for_that_instance_only(backend: FakeBackend) -> None:
    cache = GraphCache(double, GraphCacheConfig(), backend)
    run(cache, 2)
    backend.fails = True
    with pytest.raises(GraphCaptureError, match="the driver said no"):
        run(cache, 2)
    backend.fails = False
    with pytest.raises(GraphCaptureError, match="make a new instance"):
        run(cache, 3)
    fresh = GraphCache(double, GraphCacheConfig(), backend)
    assert run(fresh, 2).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "wrong", [{"capture_on_call": 1}, {"max_graphs": -1}, {"max_history": 0}, {"min_free_bytes": -1}]
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        GraphCacheConfig(**wrong)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_replays_equal_eager_calls() -> None:
    from omni_serve.graphs.cuda import CudaCaptureBackend

    layer = torch.nn.Linear(64, 64, device="cuda")
    cache = GraphCache(layer, GraphCacheConfig(min_free_bytes=0), CudaCaptureBackend())
    with torch.inference_mode():
        for _ in range(5):
            x = torch.randn(8, 64, device="cuda")
            assert torch.equal(cache(x), layer(x))
    assert cache.counters.hits == 3
