"""`/metrics` in Prometheus' text format, from the descriptions of the metrics' fields."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, get_type_hints

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from splitsecond.gateway.records.metric_fields import (
    BUCKETS_S,
    Family,
    MetricCounts,
    ProcessMetrics,
)
from splitsecond.gateway.records.metrics import Metrics, WorkerMetrics

CONTENT_TYPE = CONTENT_TYPE_LATEST.encode()
_BOUNDS = [*map(str, BUCKETS_S), "+Inf"]


def exposed(metrics: Metrics, others: Iterable[WorkerMetrics] = ()) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics, others))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, metrics: Metrics, others: Iterable[WorkerMetrics]) -> None:
        self._metrics = metrics
        self._others = others

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the metrics are known only when they are read."""
        return ()

    def collect(self) -> Iterator[Metric]:
        counts, processes = self._metrics.collected(self._others)
        for name, family in families(MetricCounts):
            yield _shown(family, getattr(counts, name))
        for name, family in families(ProcessMetrics):
            yield _shown(
                family, _together(family, [(each.pid, getattr(each, name)) for each in processes])
            )


def families(of: type) -> Iterator[tuple[str, Family]]:
    for name, hint in get_type_hints(of, include_extras=True).items():
        for family in getattr(hint, "__metadata__", ()):
            yield name, family


def _together(family: Family, values: list[tuple[int, Any]]) -> dict[Any, float]:
    if not family.labels:
        return {(): sum(value for _, value in values)}
    if family.labels == ("pid",):
        return dict(values)
    by_label: dict[str, list[float]] = {}
    for _, value in values:
        for label, number in value.items():
            by_label.setdefault(label, []).append(number)
    return {label: sum(numbers) / len(numbers) for label, numbers in by_label.items()}


def _shown(family: Family, values: dict[Any, Any]) -> Metric:
    name, labels = f"splitsecond_{family.name}", [label for label in family.labels if label]
    if family.kind == "histogram":
        histograms = HistogramMetricFamily(name, family.help, labels=labels)
        for key, histogram in values.items():
            buckets = list(zip(_BOUNDS, accumulate(histogram.counts), strict=True))
            histograms.add_metric([key], buckets=buckets, sum_value=histogram.total_s)
        return histograms
    metric = (CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily)(
        name, family.help, labels=labels
    )
    totals: dict[tuple[str, ...], float] = {}
    for key, value in values.items():
        parts = key if isinstance(key, tuple) else (key,)
        visible = tuple(
            str(part) for part, label in zip(parts, family.labels, strict=True) if label
        )
        totals[visible] = totals.get(visible, 0) + value
    for texts, total in totals.items():
        metric.add_metric(texts, total)
    return metric
