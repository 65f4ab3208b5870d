"""From observations to the points of a plot, few enough to carry in a page.

A page must open on a phone, so nothing here grows with the number of tokens, and only up to a bound with the number of
requests: distributions are thinned to `ECDF_POINTS` per curve, single requests to a typical and a slow one for each
condition. Everything is in milliseconds, or tokens per second, and refers to the requests that succeeded, as the
tables do.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from splitsecond.analysis.figures import FIGURES, answered, ttft_figure
from splitsecond.analysis.findings import ConditionFindings, Run
from splitsecond.analysis.spread import Floats
from splitsecond.clock import NS_PER_MS
from splitsecond.report import rows
from splitsecond.timing.observation import Observation

ECDF_POINTS = 400
BAND = (5, 95)

STAGES = {
    "dns": "DNS",
    "tcp": "TCP",
    "tls": "TLS",
    "network": "network",
    "provider": "provider",
    "streaming": "streaming",
}
"""The stages of `ConditionFindings.phases_ms`, in order, and their names in a report."""

STEPS = ("waiting to leave", "connecting", "until the response head", "until the first token", "streaming")
"""What a single request does, in order. Read backwards, steps and stages of the same place take the same colour."""

Samples = Mapping[str, Sequence[Observation]]


class Segment(Struct, frozen=True, kw_only=True):
    """One bar of a waterfall: from `begin_ms` to `end_ms` after the request was due, the request was doing `step`."""

    target: str
    which: str
    step: str
    begin_ms: float
    end_ms: float


def samples(run: Run, observations: Iterable[Observation]) -> dict[str, list[Observation]]:
    """The measured requests that succeeded, by condition; a condition without any has an empty list."""
    found: dict[str, list[Observation]] = {condition.condition: [] for condition in run.conditions}
    for observation in answered(observations):
        if observation.condition in found:
            found[observation.condition].append(observation)
    return found


def ttft_values(condition: ConditionFindings, observed: Sequence[Observation]) -> Floats:
    """TTFT of each request, ms, counted from the same moment as `rows.ttft`."""
    return ttft_figure(open_loop=rows.open_loop(condition)).values(observed)


def tps_values(observed: Sequence[Observation]) -> Floats:
    """TPS of each request that has one."""
    return FIGURES["tps"].values(observed)


def ecdf(values: Floats) -> list[tuple[float, float]]:
    """(value, share of the values that are not above it): a staircase of at most `ECDF_POINTS` points."""
    n = len(values)
    if n == 0:
        return []
    ordered = np.sort(values)
    kept = np.arange(n) if n < ECDF_POINTS else np.linspace(0, n - 1, ECDF_POINTS - 1).round().astype(int)
    return [(float(ordered[0]), 0.0), *((float(ordered[i]), (i + 1) / n) for i in kept.tolist())]


def band(values: Floats) -> tuple[float, float] | None:
    """Between which two values nine of ten requests lie; None without values."""
    if not len(values):
        return None
    low, high = np.percentile(values, BAND)
    return float(low), float(high)


def waterfall(target: str, observed: Sequence[Observation]) -> list[Segment]:
    """The steps of a typical request (the one nearest the median duration) and of the slowest one."""
    whole = sorted((o for o in observed if o.last_token_ns is not None and o.sent_ns is not None), key=_duration)
    if not whole:
        return []
    chosen = {"typical": whole[(len(whole) - 1) // 2], "slowest": whole[-1]}
    if len(whole) == 1:
        del chosen["slowest"]
    return [segment for which, one in chosen.items() for segment in _segments(target, which, one)]


def _begin(observation: Observation) -> int:
    """When the wait began for whoever wanted the answer."""
    assert observation.sent_ns is not None
    return observation.due_ns or observation.start_ns or observation.sent_ns


def _duration(observation: Observation) -> int:
    assert observation.last_token_ns is not None
    return observation.last_token_ns - _begin(observation)


def _segments(target: str, which: str, one: Observation) -> list[Segment]:
    begin, sent = _begin(one), one.sent_ns or 0
    connecting = min(one.dns_ns + one.tcp_ns + one.tls_ns, max(sent - begin, 0))
    ends = (sent - connecting, sent, one.head_ns or sent, one.first_token_ns, one.last_token_ns)
    segments, at = [], begin
    for step, end in zip(STEPS, ends, strict=True):
        if end is not None and end > at:
            span = {"begin_ms": (at - begin) / NS_PER_MS, "end_ms": (end - begin) / NS_PER_MS}
            segments.append(Segment(target=target, which=which, step=step, **span))
            at = end
    return segments
