"""What the engine counts, as Prometheus metrics in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from omni_serve.contract import Health
from omni_shmring import Stats

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0)


class EngineMetrics:
    """One server's metrics."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.sessions = Gauge("omni_sessions", "Open realtime sessions.", registry=registry)
        self.sessions_opened = Counter("omni_sessions_opened", "Realtime sessions opened.", registry=registry)
        self.turns = Counter("omni_turns", "User turns written down.", registry=registry)
        self.replies = Counter("omni_replies", "Replies by their end.", ["status"], registry=registry)
        self.requests = Counter("omni_requests", "Requests by kind and end.", ["kind", "outcome"], registry=registry)
        self.refused = Counter(
            "omni_refused", "Sessions and requests refused at admission.", ["kind"], registry=registry
        )
        self.queue = Gauge("omni_requests_in_flight", "Admitted requests by kind.", ["kind"], registry=registry)
        self.request_seconds = _histogram(registry, "omni_request_seconds", "Life of a request.", ["kind"])
        self.transcribe_seconds = _histogram(registry, "omni_transcribe_seconds", "Writing a turn down.")
        self.first_text = _histogram(registry, "omni_first_text_seconds", "Reply accepted to first text.")
        self.first_audio = _histogram(registry, "omni_first_audio_seconds", "Reply accepted to first audio.")
        self.barge_in = _histogram(registry, "omni_barge_in_seconds", "Decision of the detector to reply stopped.")

    def observe_engine(self, health: Callable[[], Health], stats: Callable[[], Stats | None]) -> None:
        """Also show the stages' state and the transport's counters, read when asked for."""
        self.registry.register(_EngineCollector(health, stats))

    def text(self) -> bytes:
        """Exposition text."""
        return generate_latest(self.registry)


def _histogram(registry: CollectorRegistry, name: str, words: str, labels: Iterable[str] = ()) -> Histogram:
    return Histogram(name, words, labels, buckets=_SECONDS, registry=registry)


class _EngineCollector(Collector):
    """Reads what is kept elsewhere at the time of asking, so that nothing is counted twice or late."""

    def __init__(self, health: Callable[[], Health], stats: Callable[[], Stats | None]) -> None:
        self._health = health
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """The stages, then the transport of the API's process."""
        health = self._health()
        live = GaugeMetricFamily("omni_stage_live", "Live replicas of a stage.", labels=["stage"])
        wanted = GaugeMetricFamily("omni_stage_wanted", "Wanted replicas of a stage.", labels=["stage"])
        restarts = CounterMetricFamily("omni_stage_restarts", "Ends of a stage's processes.", labels=["stage"])
        asleep = GaugeMetricFamily("omni_stage_asleep", "1 while a stage sleeps.", labels=["stage"])
        for stage in health.stages:
            live.add_metric([stage.stage], stage.live)
            wanted.add_metric([stage.stage], stage.wanted)
            restarts.add_metric([stage.stage], stage.restarts)
            asleep.add_metric([stage.stage], int(stage.asleep))
        yield from (live, wanted, restarts, asleep)
        stats = self._stats()
        if stats is None:
            return
        for name in ("puts", "gets", "put_bytes", "get_bytes", "ring_puts", "segment_puts", "refusals", "dropped"):
            family = CounterMetricFamily(f"omni_connector_{name}", f"Transport of the API process: {name}.")
            family.add_metric([], getattr(stats, name))
            yield family
        pending = GaugeMetricFamily("omni_connector_pending_bytes", "Bytes put and not yet taken.", labels=["edge"])
        for edge in stats.edges:
            pending.add_metric([edge.dest], edge.pending_bytes)
        yield pending
