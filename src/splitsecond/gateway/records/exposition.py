"""`/metrics`: the counters in Prometheus' text format."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from splitsecond.gateway.records.metrics import BUCKETS_S, Histogram, Metrics

CONTENT_TYPE = CONTENT_TYPE_LATEST.encode()


def exposed(metrics: Metrics) -> bytes:
    """All of `metrics`, and of those who share the port."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is, is known when it is read."""
        return ()

    def collect(self) -> Iterator[Metric]:
        counts, processes = self._metrics.collected()
        yield _counter(
            "requests", "Requests answered, by the status told (499: the client left).",
            ("route", "client", "status"), counts.requests.items(),
        )  # fmt: skip
        yield _counter(
            "attempts", "Requests sent to targets, by how they ended.", ("target", "outcome", "fault"),
            _without_route(counts.attempts),
        )  # fmt: skip
        yield _counter(
            "attempts_lost", "Attempts closed because another brought its first token earlier.", ("target",),
            counts.lost.items(),
        )  # fmt: skip
        yield _counter(
            "lost_cost_usd", "What those cost, in US dollars: their prompts, by the winner's count, where nobody says.",
            ("target",), counts.lost_usd.items(),
        )  # fmt: skip
        yield _counter("cache", "Calls that a cache was asked for.", ("route", "result"), counts.cached.items())
        tokens = [((target, "input"), n) for target, n in counts.input_tokens.items()]
        tokens += [((target, "output"), n) for target, n in counts.output_tokens.items()]
        yield _counter("tokens", "Tokens, as targets count them.", ("target", "direction"), tokens)
        yield _counter(
            "cost_usd", "What attempts cost by the token, in US dollars, as far as prices are known; losers too.",
            ("client", "target"), counts.cost_usd.items(),
        )  # fmt: skip
        yield _histogram(
            "target_ttft_seconds", "From a request's first byte to a target to the first token.", "target",
            counts.target_ttft,
        )  # fmt: skip
        yield _histogram(
            "route_ttft_seconds", "From a request's arrival to the first token that could be handed on.", "route",
            counts.route_ttft,
        )  # fmt: skip
        yield _gauge(
            "target_available", "The share of workers that ask this target (0: none, 1: all).", ("target",),
            _means(process.available.items() for process in processes),
        )  # fmt: skip
        cascades = [process.cascades.items() for process in processes]
        yield _gauge(
            "cascade_escalated", "The share of the small model's answers that were not accepted lately.", ("policy",),
            _means([(policy, share) for policy, (share, _) in each] for each in cascades),
        )  # fmt: skip
        yield _gauge(
            "cascade_dearer", "The share of workers that ask the large model alone, as that is cheaper.", ("policy",),
            _means([(policy, dearer) for policy, (_, dearer) in each] for each in cascades),
        )  # fmt: skip
        yield _gauge(
            "requests_in_flight", "Requests under way.", (), [((), float(sum(each.in_flight for each in processes)))]
        )
        yield _counter("log_dropped", "Records that the log has lost.", (), [((), sum(p.dropped for p in processes))])
        own = [(str(process.pid),) for process in processes]
        yield _counter(
            "process_cpu_seconds", "Processor time used.", ("pid",),
            list(zip(own, (process.cpu_s for process in processes), strict=True)),
        )  # fmt: skip
        yield _gauge(
            "process_resident_memory_bytes", "Memory in use.", ("pid",),
            list(zip(own, (float(process.resident_bytes) for process in processes), strict=True)),
        )  # fmt: skip


def _counter(
    name: str, words: str, labels: tuple[str, ...], values: Iterable[tuple[object, float]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"splitsecond_{name}", words, labels=labels)
    for key, value in values:
        family.add_metric(_texts(key), value)
    return family


def _gauge(name: str, words: str, labels: tuple[str, ...], values: Iterable[tuple[object, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"splitsecond_{name}", words, labels=labels)
    for key, value in values:
        family.add_metric(_texts(key), value)
    return family


def _histogram(name: str, words: str, label: str, histograms: dict[str, Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"splitsecond_{name}", words, labels=(label,))
    bounds = [*map(str, BUCKETS_S), "+Inf"]
    for key, histogram in histograms.items():
        buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
        family.add_metric([key], buckets=buckets, sum_value=histogram.total_s)
    return family


def _without_route(attempts: Mapping[tuple[str, str, str, str], int]) -> Iterable[tuple[object, float]]:
    """Those of all routes together."""
    found: dict[tuple[str, str, str], int] = {}
    for (_, target, outcome, fault), number in attempts.items():
        found[target, outcome, fault] = found.get((target, outcome, fault), 0) + number
    return list(found.items())


def _means(processes: Iterable[Iterable[tuple[str, float]]]) -> list[tuple[object, float]]:
    """The mean over all processes that have a value, by name."""
    found: dict[str, list[float]] = {}
    for values in processes:
        for name, value in values:
            found.setdefault(name, []).append(value)
    return [(name, sum(each) / len(each)) for name, each in found.items()]


def _texts(key: object) -> list[str]:
    return [str(part) for part in key] if isinstance(key, tuple) else [str(key)]
