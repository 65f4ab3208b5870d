"""Lateness of the instrument, and how much of it may be part of a request's figures.

Lag is how long arrived bytes waited until we read them. By our own clock, all of it is part of the
figures. By kernel receive timestamps none is, except that a read of several packets carries the
time of the last one. A first token was dated back (`first_merged_ns`). For later tokens, a merge
counts as ours only if we were late by more than the time per token, because servers also put
several events into one packet. In streams that were read sparsely, what counts is `last_merged_ns`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from splitsecond.benchmark.rows.row_fields import Instrument
from splitsecond.benchmark.statistics.steady import MeasuredLoad, mean_in_flight
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading, packet_counts
from splitsecond.log.statistics.summary import Floats, percentile

MIN_TOKENS = MIN_TOKENS_PER_S = 1_000
"""Tokens in all, and per second of a measuring process, from which processor time is divided by
them. With fewer, most of it goes into waking up, once for each token, and little into the tokens:
the quotient says nothing about other loads.
"""


def exposed_lag_ns(o: Observation) -> int:
    """Return by how much single tokens of `o` may be too late: its worst lag, if that can be part
    of its figures.

    Of a stream that was read sparsely, only the first and the last token are part of figures.
    """
    if o.packet_time or o.sparse:
        return o.last_merged_ns
    if not o.kernel_time:
        return o.lag_max_ns
    merged = o.max_read_tokens > 1 and (o.tpot_ns is None or o.lag_max_ns > o.tpot_ns)
    return o.lag_max_ns if merged else 0


def first_token_range_ns(o: Observation) -> tuple[int, int]:
    """Return the range of the arrival of the first token of `o`, relative to its recorded one.

    By our own clock it can have come earlier. One that was dated back can have come as late as its
    read says.
    """
    return (0, o.first_merged_ns) if o.kernel_time else (-o.lag_max_ns, 0)


def dispatch_late_ns(o: Observation) -> int | None:
    """Return how late `o` was sent for a reason of ours: after it was due, without the time its
    connection took."""
    late = o.late_ns
    return None if late is None else max(late - o.dns_ns - o.tcp_ns - o.tls_ns, 0)


def instrument_of(
    measured: Sequence[Observation],
    readings: Sequence[InstrumentReading],
    load: MeasuredLoad,
    tokens: float,
) -> Instrument:
    read = [o for o in measured if o.reads]
    late = ordered_ms([o.late_ns for o in measured if o.late_ns is not None])
    return Instrument(
        **_reads(read),
        late_p50_ms=_at(late, 0.5),
        late_p99_ms=_at(late, 0.99),
        in_flight=mean_in_flight(load.curve, load.steady),
        **_processes(readings, tokens),
    )


def _reads(read: Sequence[Observation]) -> dict[str, Any]:
    worst_lag = ordered_ms([o.lag_max_ns for o in read])
    return {
        "kernel_time": bool(read) and all(o.kernel_time for o in read),
        "packet_time": bool(read) and all(o.packet_time for o in read),
        "first_tokens_merged": sum(o.first_merged_ns > 0 for o in read),
        "first_merged_max_ms": _at(ordered_ms([o.first_merged_ns for o in read]), 1.0),
        "sparse": sum(o.sparse for o in read),
        "last_tokens_merged": sum(o.last_merged_ns > 0 for o in read),
        "last_merged_max_ms": _at(ordered_ms([o.last_merged_ns for o in read]), 1.0),
        "lag_p50_ms": _at(ordered_ms([o.lag_sum_ns / o.reads for o in read]), 0.5),
        "lag_p99_ms": _at(worst_lag, 0.99),
        "lag_max_ms": _at(worst_lag, 1.0),
    }


def _processes(readings: Sequence[InstrumentReading], tokens: float) -> dict[str, Any]:
    cpu_ns = sum(r.cpu_ns for r in readings)
    length_ns = sum(r.end_ns - r.begin_ns for r in readings)
    token_bound = tokens >= MIN_TOKENS and tokens >= MIN_TOKENS_PER_S * length_ns / NS_PER_S
    return {
        "packets": packet_counts(readings)
        if any(r.packets is not None for r in readings)
        else None,
        "priority": ", ".join(dict.fromkeys(r.priority for r in readings if r.priority)),
        "runqueue_wait_share": _runqueue_wait_share(readings),
        "cpu_share": cpu_ns / length_ns if cpu_ns and length_ns else None,
        "cpu_ms_per_1000_tokens": cpu_ns / NS_PER_MS / tokens * 1000
        if cpu_ns and token_bound
        else None,
        "collections": sum(r.collections for r in readings),
    }


def _runqueue_wait_share(readings: Sequence[InstrumentReading]) -> float | None:
    waits = [
        (r.runqueue_wait_ns, r.end_ns - r.begin_ns)
        for r in readings
        if r.runqueue_wait_ns is not None
    ]
    length = sum(length for _, length in waits)
    return sum(wait for wait, _ in waits) / length if length > 0 else None


def ordered_ms(values_ns: Sequence[float]) -> Floats:
    return np.sort(np.array(values_ns, dtype=np.float64)) / NS_PER_MS


def _at(ordered: Floats, q: float) -> float | None:
    return percentile(ordered, q) if len(ordered) else None
