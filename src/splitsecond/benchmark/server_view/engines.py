"""Pages of metrics in Prometheus' text format: whose page it is, and its values in our `TERMS`.

Each engine and each exporter of GPUs is a file in `engines/`. Only the lines of the metrics that it
names are parsed, by Prometheus' own parser: vLLM's page has 650 lines, and 20 of them are read.
"""

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Annotated

import msgspec

from splitsecond.benchmark.server_view.terms import TERMS

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

Text = Annotated[str, msgspec.Meta(min_length=1)]


class EngineMetric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A metric of an engine that gives one of our terms. Of several with one term, the first that a
    page has counts.

    `name` is that of its samples, of a histogram without the suffix. `labels`: only series with
    these. `over`: divide by the series of the same metric with these labels instead. `scale` makes
    our unit of its unit. `bits`: the value is a bit mask, and the term is 1 if one of these is set.
    `since`: the oldest version that is known to have it; "": not known.
    """

    term: Text
    name: Text
    labels: Mapping[str, str] = {}
    over: Mapping[str, str] = {}
    scale: float = 1.0
    bits: int = 0
    since: str = ""

    def __post_init__(self) -> None:
        if self.term not in TERMS:
            raise ValueError(f"unknown term {self.term!r}")


class Engine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An engine, or an exporter of GPUs, as its file describes it.

    `places`: where its page is, as a path on the server of the target, or ``:PORT/PATH`` on its
    host; without places, a user gives its address. `prefixes`: a page with a metric that begins so
    is its page. `source`: where its metrics are documented, or who recorded them.
    """

    title: Text
    places: tuple[Text, ...]
    prefixes: tuple[Text, ...]
    source: Text
    note: str = ""
    metrics: tuple[EngineMetric, ...]


@cache
def engines() -> dict[str, Engine]:
    """Return all engines by the names of their files."""
    folder = resources.files(__package__) / "engines"
    files = sorted(
        (each for each in folder.iterdir() if each.name.endswith(".toml")),
        key=lambda each: each.name,
    )
    return {
        each.name.removesuffix(".toml"): msgspec.convert(
            tomllib.loads(each.read_text("utf-8")), Engine
        )
        for each in files
    }


def engines_of(page: str) -> tuple[str, ...]:
    """Return the names of the engines whose metrics a page has, and then those of exporters of
    GPUs."""
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    names = [
        name
        for name, engine in engines().items()
        if any(line.startswith(engine.prefixes) for line in lines)
    ]
    return tuple(sorted(names, key=lambda name: not engines()[name].places))


def values_of(page: str, engine: Engine) -> dict[str, float]:
    """Return the values of a page by term. Raises `ValueError` for a page that Prometheus could not
    read."""
    samples = _samples(page, engine)
    values: dict[str, float] = {}
    for metric in engine.metrics:
        term = TERMS[metric.term]
        parts = ("_sum", "_count") if term.kind == "histogram" else ("",)
        for part in parts:
            value = _value(samples.get(metric.name + part, ()), metric)
            if value is not None:
                scale = 1.0 if part == "_count" else metric.scale
                values.setdefault(metric.term + part, value * scale)
    return values


def _samples(page: str, engine: Engine) -> "dict[str, list[Sample]]":
    # which only the reading process loads
    from prometheus_client.parser import text_string_to_metric_families

    names = {metric.name + part for metric in engine.metrics for part in ("", "_sum", "_count")}
    begins = tuple(name + end for name in names for end in "{ ")
    lines = [line for line in page.splitlines() if line.startswith(begins)]
    by_name: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            by_name.setdefault(sample.name, []).append(sample)
    return by_name


def _value(samples: "Iterable[Sample]", metric: EngineMetric) -> float | None:
    values = [sample.value for sample in samples if metric.labels.items() <= sample.labels.items()]
    values = [float(bool(int(value) & metric.bits)) if metric.bits else value for value in values]
    # NaN: the engine has not measured it yet
    if not values or any(value != value for value in values):
        return None
    if metric.over:
        whole = [sample.value for sample in samples if metric.over.items() <= sample.labels.items()]
        return sum(values) / sum(whole) if sum(whole) else None
    return combined(metric.term, values)


def combined(term: str, values: list[float]) -> float:
    match TERMS[term].combine:
        case "mean":
            return sum(values) / len(values)
        case "max":
            return max(values)
        case "min":
            return min(values)
        case _:
            return sum(values)
