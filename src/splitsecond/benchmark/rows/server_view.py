"""What a server and its GPUs told about themselves while a row was measured.

States (requests that wait, KV cache, power) are those of the readings while the load was up: in
each round from the first measured request to the last token of one. Counts and mean times are
differences between the readings at the edges of the row's blocks, so they cover all of its
requests, warm-up and cool-down included. A server that answers others too counts their requests as
well; then TTFT is not split.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.row_fields import ServerView, TtftCheck
from splitsecond.benchmark.server_view.samples import ServerSample, ServerSeries, source_with
from splitsecond.benchmark.statistics.steady import TimeWindows, measured_load, tokens_in
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import LOAD_ROLES, Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.log.statistics.summary import Floats

MS = 1000
J_PER_KWH = 3.6e6
MILLION = 1_000_000
MAX_OTHERS = 0.02
"""Share of requests by which the counts of the server and of the run may differ."""

_STATES: Sequence[tuple[str, Callable[[Floats], Any], Sequence[str]]] = (
    ("", np.median, ("running", "waiting", "kv_use")),
    ("_max", np.max, ("running", "waiting", "kv_use")),
    ("", np.max, ("gpus", "gpu_memory_bytes")),
    ("", np.mean, ("gpu_use", "clock_mhz", "power_capped", "heat_capped")),
)
"""The end of the names of fields, a statistic of the readings, and terms that have it."""
_TIMES = ("ttft", "queue", "prefill", "decode", "e2e")

Samples = Sequence[ServerSample]
Spans = Sequence[tuple[int, int]]


def add_server_views(
    rows: Sequence[ConditionFindings],
    observations: Sequence[Observation],
    readings: Sequence[InstrumentReading],
    series: ServerSeries,
    usd_per_kwh: float | None = None,
) -> None:
    """Set `server` of each row whose server, or whose GPUs, were read while it was measured."""
    observed = grouped(observations, lambda o: o.condition)
    read = grouped(readings, lambda reading: reading.condition)
    first_ns = min((o.start_ns for o in observations if o.start_ns), default=0)
    for row in rows:
        sent = [o for o in observed[row.condition] if o.role in LOAD_ROLES]
        sources = [samples for samples in series.of_target(row.target) if samples]
        if sent and sources:
            load = measured_load(sent, row.concurrency, read[row.condition])
            blocks = joined((each.begin_ns, each.end_ns) for each in read[row.condition])
            server_row = _Row(sources, load.whole, blocks, sent)
            row.server = server_row.view(series.title(row.target), first_ns, usd_per_kwh)


class _Row:
    def __init__(
        self,
        sources: Sequence[Samples],
        load: TimeWindows,
        blocks: Spans,
        sent: Sequence[Observation],
    ) -> None:
        self._sources = sources
        self._load = load
        self._blocks = blocks
        self._sent = sent

    def view(self, title: str, first_ns: int, usd_per_kwh: float | None) -> ServerView:
        power, idle, joules = self._power_w(), self._idle_w(first_ns), None
        tokens = tokens_in(self._sent, self._load)
        if power is not None and tokens:
            joules = power * self._load.length_ns / NS_PER_S / tokens
        drafted, accepted = self._counted("drafted_tokens"), self._counted("accepted_tokens")
        return ServerView(
            title=title,
            samples=max(len(self._values(term)) for term in ("running", "power_w")),
            **{
                term + end: self._over(term, statistic)
                for end, statistic, terms in _STATES
                for term in terms
            },
            **{f"{each}_ms": self._mean_ms(f"{each}_s") for each in _TIMES},
            preemptions=self._counted("preemptions"),
            cached_share=self._cached_share(),
            accepted_share=accepted / drafted if accepted is not None and drafted else None,
            check=self._check(),
            power_w=power,
            idle_power_w=idle,
            joules_per_token=joules,
            tokens_per_kwh=J_PER_KWH / joules if joules else None,
            electricity_usd_per_million=None
            if joules is None or usd_per_kwh is None
            else joules * MILLION / J_PER_KWH * usd_per_kwh,
        )

    def _samples(self, term: str) -> Samples:
        """Return the samples that have the term, of the first source that has it."""
        return [s for s in source_with(term, self._sources) if term in s.values]

    def _values(self, term: str) -> Floats:
        spans = list(zip(self._load.begin.tolist(), self._load.end.tolist(), strict=True))
        samples = self._samples(term)
        values = [
            s.values[term] for s in samples if any(begin <= s.at_ns <= end for begin, end in spans)
        ]
        return np.array(values, dtype=np.float64)

    def _over(self, term: str, statistic: Callable[[Floats], Any]) -> float | None:
        """Return a statistic of the readings while the load was up."""
        values = self._values(term)
        return float(statistic(values)) if len(values) else None

    def _counted(self, term: str) -> float | None:
        """Return by how much a counter grew in the blocks of the row; None if it was not read
        around each.

        A labelled counter appears on a page with its first count, so it was 0 before.
        """
        source = source_with(term, self._sources)
        if not source or not self._blocks:
            return None
        grown = 0.0
        for begin, end in self._blocks:
            before = next((s for s in reversed(source) if s.at_ns <= begin), None)
            after = next((s for s in source if s.at_ns >= end), None)
            if before is None or after is None:
                return None
            difference = after.values.get(term, 0.0) - before.values.get(term, 0.0)
            if difference < 0:  # the server was started again
                return None
            grown += difference
        return grown

    def _mean_ms(self, term: str) -> float | None:
        total_s, count = self._counted(f"{term}_sum"), self._counted(f"{term}_count")
        return total_s / count * MS if total_s is not None and count else None

    def _cached_share(self) -> float | None:
        cached = self._counted("cached_tokens")
        if cached is None:
            return None
        computed = self._counted("computed_tokens")
        looked_up = self._counted("looked_up_tokens")
        whole = looked_up if looked_up is not None else self._counted("prompt_tokens")
        whole = cached + computed if whole is None and computed is not None else whole
        return cached / whole if whole else None

    def _check(self) -> TtftCheck | None:
        server_ms, requests = self._mean_ms("ttft_s"), self._counted("ttft_s_count")
        begun = [o for o in self._sent if o.ttft_ns is not None]
        if server_ms is None or requests is None or not begun:
            return None
        network = [min(o.rtt_ns, o.ttft_ns or 0) for o in begun if o.rtt_ns is not None]
        measured_ms = float(np.mean([o.ttft_ns or 0 for o in begun])) / NS_PER_MS
        return TtftCheck(
            server_requests=round(requests),
            requests=len(begun),
            server_ms=server_ms,
            network_ms=float(np.mean(network)) / NS_PER_MS if network else None,
            measured_ms=measured_ms,
            others=abs(requests - len(begun)) > max(1, MAX_OTHERS * len(begun)),
        )

    def _power_w(self) -> float | None:
        """Return the mean power while the load was up, from the GPUs' counter of energy if they
        have one."""
        if not self._load.length_ns:
            return None
        energy = self._samples("energy_j")
        if len(energy) > 1:
            at = np.array([s.at_ns for s in energy], dtype=np.float64)
            joules = np.array([s.values["energy_j"] for s in energy])
            inside = at[0] <= self._load.begin.min() and self._load.end.max() <= at[-1]
            if inside and (np.diff(joules) >= 0).all():
                used = np.interp(self._load.end, at, joules) - np.interp(
                    self._load.begin, at, joules
                )
                return float(used.sum()) / (self._load.length_ns / NS_PER_S)
        return self._over("power_w", np.mean)

    def _idle_w(self, first_ns: int) -> float | None:
        values = [s.values["power_w"] for s in self._samples("power_w") if s.at_ns < first_ns]
        return float(np.mean(values)) if values else None


def joined(spans: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of time in order, those that overlap as one: the processes of a block measure at
    the same time."""
    blocks: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if blocks and begin <= blocks[-1][1]:
            blocks[-1] = blocks[-1][0], max(end, blocks[-1][1])
        else:
            blocks.append((begin, end))
    return blocks
