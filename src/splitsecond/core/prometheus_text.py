"""Prometheus' text format, written.

The library `prometheus_client`, which reads it, brings an HTTP server and a client, so importing it
would be a tenth of the start of a gateway.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

CONTENT_TYPE = b"text/plain; version=1.0.0; charset=utf-8"


class MetricFamily:
    """A metric with its samples, one for each combination of the values of its labels."""

    def __init__(
        self,
        name: str,
        description: str,
        kind: Literal["counter", "gauge", "histogram"],
        labels: Sequence[str] = (),
    ) -> None:
        self._name = f"{name.removesuffix('_total')}_total" if kind == "counter" else name
        self._labels = labels
        text = description.replace("\\", r"\\").replace("\n", r"\n")
        self._lines = [f"# HELP {self._name} {text}\n", f"# TYPE {self._name} {kind}\n"]

    @property
    def text(self) -> str:
        return "".join(self._lines)

    def add(self, values: Sequence[str], number: float) -> None:
        """Add the sample with these values of the labels."""
        self._add(self._name, self._pairs(values), number)

    def add_histogram(
        self, values: Sequence[str], buckets: Iterable[tuple[str, int]], total: float
    ) -> None:
        """Add a histogram. `buckets`: upper bounds, of which the last is "+Inf", and how many
        values are not above each."""
        pairs, count = self._pairs(values), 0
        for bound, count in buckets:
            self._add(f"{self._name}_bucket", [*pairs, _pair("le", bound)], count)
        self._add(f"{self._name}_count", pairs, count)
        self._add(f"{self._name}_sum", pairs, total)

    def _pairs(self, values: Sequence[str]) -> list[str]:
        return [_pair(*each) for each in zip(self._labels, values, strict=True)]

    def _add(self, name: str, pairs: list[str], number: float) -> None:
        labels = f"{{{','.join(pairs)}}}" if pairs else ""
        self._lines.append(f"{name}{labels} {float(number)!r}\n")


def _pair(label: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{label}="{escaped}"'


def exposition(families: Iterable[MetricFamily]) -> bytes:
    return "".join(each.text for each in families).encode()
