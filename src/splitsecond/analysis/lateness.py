"""How late the instrument was: what it adds to `Instrument`, and how much of it may stand in a request's figures.

Lag is how long arrived bytes waited until we read them. Where arrivals are our own clock all of it is in the figures.
Where they are kernel receive timestamps none of it is, with one exception: a read that took several packets carries
the last one's time, so tokens that came apart look as one. Servers too put several events in one packet; so a merge
counts as ours only if we were late by more than a token's pace.
"""

from collections.abc import Sequence

import numpy as np

from splitsecond.analysis.findings import Instrument
from splitsecond.analysis.spread import Floats, percentile
from splitsecond.analysis.steady import Load, mean_in_flight
from splitsecond.clock import NS_PER_MS
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation


def exposed_lag_ns(o: Observation) -> int:
    """The most by which the moments of `o` may be too late: its worst lag, if that can stand in its figures."""
    if not o.kernel_time:
        return o.lag_max_ns
    merged = o.max_read_tokens > 1 and (o.tpot_ns is None or o.lag_max_ns > o.tpot_ns)
    return o.lag_max_ns if merged else 0


def dispatch_late_ns(o: Observation) -> int | None:
    """How late `o` left for a reason of ours: after it was due, without the time its connection took."""
    late = o.late_ns
    return None if late is None else max(late - o.dns_ns - o.tcp_ns - o.tls_ns, 0)


def instrument_of(
    measured: Sequence[Observation], readings: Sequence[InstrumentReading], load: Load, tokens: float
) -> Instrument:
    """The instrument in one condition. `tokens`: all that arrived, warm-ups included, to share the CPU time over."""
    read = [o for o in measured if o.reads]
    mean_lag = ordered_ms([o.lag_sum_ns / o.reads for o in read])
    worst_lag = ordered_ms([o.lag_max_ns for o in read])
    late = ordered_ms([o.late_ns for o in measured if o.late_ns is not None])
    cpu_ns = sum(r.cpu_ns for r in readings)
    return Instrument(
        kernel_time=bool(read) and all(o.kernel_time for o in read),
        lag_p50_ms=_at(mean_lag, 0.5),
        lag_p99_ms=_at(worst_lag, 0.99),
        lag_max_ms=_at(worst_lag, 1.0),
        late_p50_ms=_at(late, 0.5),
        late_p99_ms=_at(late, 0.99),
        in_flight=mean_in_flight(load.curve, load.steady),
        runqueue_wait_share=_runqueue_wait_share(readings),
        cpu_ms_per_1000_tokens=cpu_ns / NS_PER_MS / tokens * 1000 if cpu_ns and tokens else None,
        collections=sum(r.collections for r in readings),
    )


def _runqueue_wait_share(readings: Sequence[InstrumentReading]) -> float | None:
    known = [(r.runqueue_wait_ns, r.end_ns - r.begin_ns) for r in readings if r.runqueue_wait_ns is not None]
    length = sum(length for _, length in known)
    return sum(wait for wait, _ in known) / length if length > 0 else None


def ordered_ms(values_ns: Sequence[float]) -> Floats:
    """Durations in ascending order, in ms."""
    return np.sort(np.array(values_ns, dtype=np.float64)) / NS_PER_MS


def _at(ordered: Floats, q: float) -> float | None:
    return percentile(ordered, q) if len(ordered) else None
