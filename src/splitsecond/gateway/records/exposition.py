"""`/metrics` in Prometheus' text format, from the descriptions of the metrics' fields."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, get_type_hints

from splitsecond.core.prometheus_text import MetricFamily, exposition
from splitsecond.gateway.records.metrics import (
    BUCKETS_S,
    Family,
    MetricCounts,
    Metrics,
    ProcessMetrics,
    WorkerMetrics,
)

_BOUNDS = [*map(str, BUCKETS_S), "+Inf"]


def exposed(metrics: Metrics, others: Iterable[WorkerMetrics] = ()) -> bytes:
    return exposition(_collected(metrics, others))


def _collected(metrics: Metrics, others: Iterable[WorkerMetrics]) -> Iterator[MetricFamily]:
    counts, processes = metrics.collected(others)
    for name, family in families(MetricCounts):
        yield _shown(family, getattr(counts, name))
    for name, family in families(ProcessMetrics):
        values = [(each.pid, getattr(each, name)) for each in processes]
        yield _shown(family, _together(family, values))


def families(of: type) -> Iterator[tuple[str, Family]]:
    for name, hint in get_type_hints(of, include_extras=True).items():
        for family in getattr(hint, "__metadata__", ()):
            yield name, family


def _together(family: Family, values: list[tuple[int, Any]]) -> dict[Any, float]:
    if not family.labels:
        return {(): sum(value for _, value in values)}
    if family.labels == ("pid",):
        return dict(values)
    found: dict[str, list[float]] = {}
    for _, value in values:
        for label, number in value.items():
            found.setdefault(label, []).append(number)
    return {label: sum(numbers) / len(numbers) for label, numbers in found.items()}


def _shown(family: Family, values: dict[Any, Any]) -> MetricFamily:
    labels = [label for label in family.labels if label]
    shown = MetricFamily(f"splitsecond_{family.name}", family.help, family.kind, labels)
    if family.kind == "histogram":
        for key, histogram in values.items():
            buckets = zip(_BOUNDS, accumulate(histogram.counts), strict=True)
            shown.add_histogram([key], buckets, histogram.total_s)
        return shown
    totals: dict[tuple[str, ...], float] = {}
    for key, value in values.items():
        parts = key if isinstance(key, tuple) else (key,)
        visible = tuple(
            str(part) for part, label in zip(parts, family.labels, strict=True) if label
        )
        totals[visible] = totals.get(visible, 0) + value
    for texts, total in totals.items():
        shown.add(texts, total)
    return shown
