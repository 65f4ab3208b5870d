"""Steady windows: the time during which the load was at its target, and the tokens that arrived in
it.

Throughput from the first request to the last includes the start, when requests are still joining,
and the end, when the last ones finish alone. Steady windows leave both out:

- In a closed loop, a window opens when the requests in flight first reach 95% of the concurrency,
  and closes when they do so for the last time. Dips in between are part of such a load;
  `mean_in_flight` shows whether they were too large.
- In an open loop, a window runs from the due time of the first measured request to that of the last
  one.

A condition is measured in rounds, each with its own window. Observations without the number of
their round are divided by the readings of the instrument, one for each block.

Warm-up and cool-down requests in flight in a window count as load and with their tokens: to the
server they are the same. In a closed loop a request is in flight from its call on, connecting
included: the slot that sends it has no other.

The tokens of an event are its share of the response's N: by the provider's running count;
otherwise, if there are more tokens than events, by characters; otherwise equally.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.log.statistics.summary import Floats

Moments = npt.NDArray[np.int64]

STEADY_PERCENT = 95
DIP_PERMILLE = 2
"""Longest dip of the load at the end of a window that is part of it, in thousandths of the
window."""


class LoadCurve(Struct, frozen=True):
    at: Moments
    level: Moments


class TimeWindows(Struct, frozen=True):
    """Spans of time in order, disjoint: the i-th is (begin[i], end[i]], in monotonic
    nanoseconds."""

    begin: Moments
    end: Moments

    @property
    def length_ns(self) -> int:
        return int((self.end - self.begin).sum())


class MeasuredLoad(Struct, frozen=True):
    """Load of one condition.

    `whole`: each stretch from the first measured request to the last token. `sending`: to the last
    request. `steady`: where the load was at its target. `starts`: when the first request of each
    round was sent.
    """

    curve: LoadCurve
    whole: TimeWindows
    sending: TimeWindows
    steady: TimeWindows
    starts: Moments


def begin_ns(o: Observation) -> int:
    """Return when the request was sent, or if it never was, when its call started."""
    return o.start_ns if o.sent_ns is None else o.sent_ns


def due_ns(o: Observation) -> int:
    """Return when the request was due, or without a schedule, when it was sent."""
    return o.due_ns or begin_ns(o)


def measured_load(
    observations: Sequence[Observation],
    concurrency: int | None,
    readings: Sequence[InstrumentReading] = (),
) -> MeasuredLoad:
    """Return the load that `observations` (measured, warm-up, cool-down) made. `concurrency` None:
    an open loop."""
    open_loop = concurrency is None
    curve = in_flight(observations, open_loop=open_loop)
    starts = round_starts(observations, open_loop=open_loop)
    if not len(starts):
        starts = np.union1d(curve.at[:1], _block_starts(readings))
    measured = [o for o in observations if o.role == "measured"]
    begun = _moments([_begin_ns(o, open_loop=open_loop) for o in measured])
    done = _moments([done_ns(o) for o in measured])
    stretch = _stretch_of(begun, starts)
    whole = _windows(*_bounds(stretch, begun, done, len(starts)))
    sending = _windows(*_bounds(stretch, begun, begun, len(starts)))
    if concurrency is not None:
        return MeasuredLoad(
            curve, whole, sending, reaching(curve, concurrency, starts, whole), starts
        )
    due = _moments([due_ns(o) for o in measured])
    return MeasuredLoad(
        curve, whole, sending, _windows(*_bounds(stretch, due, due, len(starts))), starts
    )


def done_ns(o: Observation) -> int:
    """Return when the response of `o` was complete, or if it had no token, when the request
    ended."""
    return o.end_ns if o.last_token_ns is None else o.last_token_ns


def in_flight(observations: Sequence[Observation], *, open_loop: bool) -> LoadCurve:
    """Return how many were in flight over time; in a closed loop from their calls on.

    A request that only kept the load up is closed when the last measured one of its round has
    ended. The two ends are stamped in different places, so it counts until the later one.
    """
    begin = _moments([_begin_ns(o, open_loop=open_loop) for o in observations])
    last: dict[int, int] = {}
    for o in observations:
        if o.role == "measured":
            last[o.round] = max(last.get(o.round, 0), o.end_ns)
    closed = [o.role != "measured" and o.outcome == "cancelled" for o in observations]
    end = _moments(
        [
            max(o.end_ns, last.get(o.round, 0)) if cut else o.end_ns
            for o, cut in zip(observations, closed, strict=True)
        ]
    )
    end = np.maximum(end, begin)
    at, which = np.unique(np.concatenate((begin, end)), return_inverse=True)
    steps = np.bincount(which, weights=np.repeat((1.0, -1.0), len(begin)), minlength=len(at))
    return LoadCurve(at, np.cumsum(steps.astype(np.int64)))


def _begin_ns(o: Observation, *, open_loop: bool) -> int:
    return begin_ns(o) if open_loop else o.start_ns


def _moments(values: Sequence[int]) -> Moments:
    return np.array(values, dtype=np.int64)


def round_starts(observations: Sequence[Observation], *, open_loop: bool) -> Moments:
    starts: dict[int, int] = {}
    for o in observations:
        if o.round:
            begin = _begin_ns(o, open_loop=open_loop)
            starts[o.round] = min(starts.get(o.round, begin), begin)
    return _moments(sorted(starts.values()))


def _block_starts(readings: Sequence[InstrumentReading]) -> Moments:
    """Return when each block began; what several workers send at once is one block."""
    starts: list[int] = []
    busy_until = -1
    for reading in sorted(readings, key=lambda r: r.begin_ns):
        if reading.begin_ns > busy_until:
            starts.append(reading.begin_ns)
        busy_until = max(busy_until, reading.end_ns)
    return np.array(starts, dtype=np.int64)


def reaching(
    curve: LoadCurve, concurrency: int, starts: Moments, whole: TimeWindows
) -> TimeWindows:
    reached = np.flatnonzero(curve.level * 100 >= concurrency * STEADY_PERCENT)
    begin, end = _bounds(
        _stretch_of(curve.at[reached], starts),
        curve.at[reached],
        curve.at[reached + 1],
        len(starts),
    )
    span = _stretch_of(whole.begin, starts)
    opens, closes = np.maximum(begin[span], whole.begin), np.minimum(end[span], whole.end)
    # Slots that were about to send their next request when the last measured one ended do not cut
    # it off.
    full = (closes > opens) & (
        (whole.end - opens) * DIP_PERMILLE >= (whole.end - np.maximum(closes, opens)) * 1000
    )
    return _windows(opens, np.where(full, whole.end, closes))


def _stretch_of(at: Moments, starts: Moments) -> npt.NDArray[np.intp]:
    """Return the stretch of each moment; moments before the first stretch belong to it."""
    return np.maximum(np.searchsorted(starts, at, side="right") - 1, 0)


def _bounds(
    group: npt.NDArray[np.intp], begin: Moments, end: Moments, groups: int
) -> tuple[Moments, Moments]:
    """Return the least `begin` and the greatest `end` of each group, crossed if a group is
    empty."""
    limits = np.iinfo(np.int64)
    first = np.full(groups, limits.max, dtype=np.int64)
    last = np.full(groups, limits.min, dtype=np.int64)
    np.minimum.at(first, group, begin)
    np.maximum.at(last, group, end)
    return first, last


def _windows(begin: Moments, end: Moments) -> TimeWindows:
    some = end > begin
    return TimeWindows(begin[some], end[some])


def mean_in_flight(curve: LoadCurve, windows: TimeWindows) -> float | None:
    if windows.length_ns == 0:
        return None
    # The integral of a step curve is linear between its steps, so interpolating it is exact.
    origin = curve.at[0]
    area = np.concatenate(
        ([0.0], np.cumsum(curve.level[:-1].astype(np.float64) * np.diff(curve.at)))
    )
    at = (curve.at - origin).astype(np.float64)
    return float(
        (
            np.interp(windows.end - origin, at, area) - np.interp(windows.begin - origin, at, area)
        ).sum()
        / windows.length_ns
    )


def event_tokens(o: Observation) -> Floats:
    """Return the tokens of each content event of `o`. They add up to N if N is known, otherwise
    each counts 1."""
    events, n = len(o.token_at), o.streamed_tokens
    if n is None or events == 0:
        return np.ones(events)
    shares = np.ones(events)
    if len(o.tokens_so_far) == events:
        shares = np.array(o.tokens_so_far, dtype=np.float64)
        shares[1:] = np.maximum(shares[1:] - shares[:-1], 0.0)
    elif len(o.token_lengths) == events and n > events:
        shares = np.array(o.token_lengths, dtype=np.float64)
    total = float(shares.sum())
    return shares * (n / total) if total else np.full(events, n / events)


def tokens_in(observations: Sequence[Observation], windows: TimeWindows) -> float:
    streamed = [o for o in observations if o.token_at]
    first = _window_of(np.array([o.token_at[0] for o in streamed], dtype=np.int64), windows)
    last = _window_of(np.array([o.token_at[-1] for o in streamed], dtype=np.int64), windows)
    tokens = 0.0
    for o, whole in zip(streamed, (first == last) & (first >= 0), strict=True):
        if whole:
            tokens += len(o.token_at) if o.streamed_tokens is None else o.streamed_tokens
        else:
            inside = _window_of(np.array(o.token_at, dtype=np.int64), windows) >= 0
            tokens += float(event_tokens(o)[inside].sum())
    return tokens


def _window_of(at: Moments, windows: TimeWindows) -> npt.NDArray[np.intp]:
    if not len(windows.begin):
        return np.full(len(at), -1)
    indices = np.searchsorted(windows.begin, at, side="left") - 1
    return np.where((indices >= 0) & (at <= windows.end[indices]), indices, -1)


def ended_in(observations: Sequence[Observation], windows: TimeWindows) -> int:
    return int((_window_of(_moments([done_ns(o) for o in observations]), windows) >= 0).sum())
