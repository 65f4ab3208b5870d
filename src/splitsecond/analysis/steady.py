"""When the load was what was asked for, and how many tokens arrived while it was.

Throughput taken from first request to last counts the start, when requests are still joining, and the end, when the
last ones finish alone. The steady windows leave both out:

- In a closed loop a window opens when the requests under way first reach 95 % of the concurrency, and closes when
  they do so for the last time. Dips between (one request has ended, the next is not yet sent) are part of it: they are
  part of such a load, and `mean_in_flight` shows whether they were too large.
- In an open loop a window runs from the first measured request's due time to the last one's.

Targets of one run take turns, so a condition may consist of several stretches of load with pauses between, each with
its own window. The instrument's readings, one for each block that was sent, say where a stretch begins; in a closed
loop also a pause tells, should a reading be lost.

No window opens before the first measured request or closes after the last one's last token. Warm-up requests that are
still running then do count, as load and with their tokens: the server cannot tell them apart.

Tokens count when they arrive. Those of an event are its share of the answer's N: by the provider's running count,
else, where there are more tokens than events, by characters; else each event counts the same.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from splitsecond.analysis.spread import Floats
from splitsecond.clock import NS_PER_S
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation

Moments = npt.NDArray[np.int64]

STEADY_PERCENT = 95
PAUSE_SHARE = 0.25
"""Nothing under way for longer than this share of a typical request ends a stretch of load."""


class Curve(Struct, frozen=True):
    """Requests under way: `level[i]` of them from `at[i]` on. The last level is 0."""

    at: Moments
    level: Moments


class Windows(Struct, frozen=True):
    """Spans of time in order, disjoint: the i-th is (begin[i], end[i]], in monotonic nanoseconds."""

    begin: Moments
    end: Moments

    @property
    def length_ns(self) -> int:
        """The length of all of them together."""
        return int((self.end - self.begin).sum())


class Load(Struct, frozen=True):
    """What one condition's load looked like. Of each stretch `whole` runs from the first measured request sent to the
    last token, `sending` to the last request sent, and `steady` is where the load was as asked."""

    curve: Curve
    whole: Windows
    sending: Windows
    steady: Windows


def begin_ns(o: Observation) -> int:
    """When the target had the request: sent, or for one that never was, when it came in."""
    return o.start_ns if o.sent_ns is None else o.sent_ns


def due_ns(o: Observation) -> int:
    """When the schedule wanted the request to leave, or where there is no schedule, when it did."""
    return o.due_ns or begin_ns(o)


def load_of(
    observations: Sequence[Observation], concurrency: int | None, readings: Sequence[InstrumentReading] = ()
) -> Load:
    """The load that `observations` (measured and warm-up) made. `concurrency` None: an open loop."""
    curve = in_flight(observations)
    starts = np.union1d(curve.at[:1], _block_starts(readings))
    if concurrency is not None:
        starts = np.union1d(starts, _after_pauses(curve, observations))
    measured = [o for o in observations if o.role == "measured"]
    sent = np.array([begin_ns(o) for o in measured], dtype=np.int64)
    done = np.array([o.end_ns if o.last_token_ns is None else o.last_token_ns for o in measured], dtype=np.int64)
    stretch = _stretch_of(sent, starts)
    whole = _windows(*_bounds(stretch, sent, done, len(starts)))
    sending = _windows(*_bounds(stretch, sent, sent, len(starts)))
    if concurrency is not None:
        return Load(curve, whole, sending, _reaching(curve, concurrency, starts, whole))
    due = np.array([due_ns(o) for o in measured], dtype=np.int64)
    return Load(curve, whole, sending, _windows(*_bounds(stretch, due, due, len(starts))))


def in_flight(observations: Sequence[Observation]) -> Curve:
    """How many of `observations` were under way, from sent to end."""
    begin = np.array([begin_ns(o) for o in observations], dtype=np.int64)
    end = np.maximum(np.array([o.end_ns for o in observations], dtype=np.int64), begin)
    at, which = np.unique(np.concatenate((begin, end)), return_inverse=True)
    steps = np.bincount(which, weights=np.repeat((1.0, -1.0), len(begin)), minlength=len(at))
    return Curve(at, np.cumsum(steps.astype(np.int64)))


def _block_starts(readings: Sequence[InstrumentReading]) -> Moments:
    """When each block began; what several workers sent at the same time is one block."""
    starts: list[int] = []
    busy_until = -1
    for reading in sorted(readings, key=lambda r: r.begin_ns):
        if reading.begin_ns > busy_until:
            starts.append(reading.begin_ns)
        busy_until = max(busy_until, reading.end_ns)
    return np.array(starts, dtype=np.int64)


def _after_pauses(curve: Curve, observations: Sequence[Observation]) -> Moments:
    if not len(curve.at):
        return curve.at
    typical = float(np.median([o.end_ns - begin_ns(o) for o in observations]))
    pause = (curve.level[:-1] == 0) & (np.diff(curve.at) > PAUSE_SHARE * typical)
    return np.compress(pause, curve.at[1:])


def _reaching(curve: Curve, concurrency: int, starts: Moments, whole: Windows) -> Windows:
    reached = np.flatnonzero(curve.level * 100 >= concurrency * STEADY_PERCENT)
    begin, end = _bounds(_stretch_of(curve.at[reached], starts), curve.at[reached], curve.at[reached + 1], len(starts))
    span = _stretch_of(whole.begin, starts)
    return _windows(np.maximum(begin[span], whole.begin), np.minimum(end[span], whole.end))


def _stretch_of(at: Moments, starts: Moments) -> npt.NDArray[np.intp]:
    """The stretch that each moment lies in; what came before the first one is part of it."""
    return np.maximum(np.searchsorted(starts, at, side="right") - 1, 0)


def _bounds(group: npt.NDArray[np.intp], begin: Moments, end: Moments, groups: int) -> tuple[Moments, Moments]:
    """The least `begin` and the greatest `end` of each group; crossed where a group is empty."""
    limits = np.iinfo(np.int64)
    first = np.full(groups, limits.max, dtype=np.int64)
    last = np.full(groups, limits.min, dtype=np.int64)
    np.minimum.at(first, group, begin)
    np.maximum.at(last, group, end)
    return first, last


def _windows(begin: Moments, end: Moments) -> Windows:
    some = end > begin
    return Windows(begin[some], end[some])


def mean_in_flight(curve: Curve, windows: Windows) -> float | None:
    """The mean number of requests under way in `windows`, weighted by time. None where there are none."""
    if windows.length_ns == 0:
        return None
    # The integral of a step curve is linear between its steps, so interpolating it is exact.
    origin = curve.at[0]
    area = np.concatenate(([0.0], np.cumsum(curve.level[:-1] * np.diff(curve.at))))
    at = (curve.at - origin).astype(np.float64)
    return float(
        (np.interp(windows.end - origin, at, area) - np.interp(windows.begin - origin, at, area)).sum()
        / windows.length_ns
    )


def event_tokens(o: Observation) -> Floats:
    """How many tokens each content event of `o` carried. They add up to N where N is known, else each counts 1."""
    events, n = len(o.token_at), o.streamed_tokens
    if n is None or events == 0:
        return np.ones(events)
    shares = np.ones(events)
    if len(o.tokens_so_far) == events:
        shares = np.maximum(np.diff(np.array(o.tokens_so_far, dtype=np.float64), prepend=0.0), 0.0)
    elif len(o.token_lengths) == events and n > events:
        shares = np.array(o.token_lengths, dtype=np.float64)
    total = float(shares.sum())
    return shares * (n / total) if total else np.full(events, n / events)


def tokens_in(observations: Sequence[Observation], windows: Windows) -> float:
    """Tokens that arrived in `windows`."""
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


def _window_of(at: Moments, windows: Windows) -> npt.NDArray[np.intp]:
    """The index of the window that holds each moment, −1 where none does."""
    if not len(windows.begin):
        return np.full(len(at), -1)
    found = np.searchsorted(windows.begin, at, side="left") - 1
    return np.where((found >= 0) & (at <= windows.end[found]), found, -1)


def per_second(amount: float, windows: Windows) -> float | None:
    """`amount` per second of `windows`. None where they have no length."""
    length = windows.length_ns
    return amount * NS_PER_S / length if length else None
