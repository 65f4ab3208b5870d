"""Figures of the latest requests, and what they say of the next one: weighted by age, censored ones included.

Three things go wrong when speed is estimated live, and each has its rule here.

A request that was closed before its first token (a race lost, a deadline passed) tells only that the token would have
come later. To drop such samples makes a slow target look fast, since the slow requests are just those that are closed;
to count them as if the token had come does the same. So quantiles are those of the Kaplan-Meier estimate, with weights:
a censored sample counts among those that wait until its time, and never as an end.

Old samples mislead, but a target that nobody asked for ten minutes is not unknown. A sample's weight halves every two
minutes, down to a floor: old ones count together for little, and for all where nothing else is known.

A mean over minutes sees a change only after minutes. So runs are watched: `RUN` samples in a row above the upper
quartile (by chance one time in four thousand), or below the lower one, mean that the level has moved, and all samples
before the run fall to the floor at once. Requests that are under way and late count as such samples, unless others
are being answered in the usual time meanwhile: then they are a tail.

Adding is cheap, as it is done for each request. The curve is worked out when it is asked for, and at most every
`REFRESH_NS`, as it takes a tenth of a millisecond.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from operator import itemgetter

from msgspec import Struct

from splitsecond.clock import NS_PER_MS, NS_PER_S

REMEMBERED = 128
"""The latest samples. Of fewer, a 95th percentile would be the maximum."""
HALF_LIFE_NS = 120 * NS_PER_S
FLOOR = 1 / 64
"""The weight of an old sample: all that are remembered count together for two fresh ones."""
RUN = 6
"""In a row beyond a quartile: ¼ to the sixth is 0.0002."""
REFRESH_NS = 250 * NS_PER_MS
SLOPE_EVERY_NS = 5 * NS_PER_S
MOST_LATE = 32
"""Requests under way that are looked at, those that wait longest."""
LEAST_PAIRS = 10
LEAST_APART = 200
"""Input tokens. Reading fewer takes a few milliseconds."""
NEVER_NS = -(1 << 62)


class Sample(Struct, frozen=True, gc=False):
    """A figure (`value`, in ns or tokens), when it was taken, and whether the true one is greater (`censored`).

    `size`: how many input tokens the request had; None: not known.
    """

    at_ns: int
    value: float
    censored: bool = False
    size: int | None = None


class Curve:
    """What share of requests had ended by when. `values` ascend; `ended` is the share that had, at each."""

    __slots__ = ("ended", "least", "longest", "values", "weight")

    def __init__(self, pairs: Iterable[tuple[float, bool, float]]) -> None:
        """Of (value, censored, weight); at least one."""
        ordered = sorted(pairs)  # at equal values those that ended come before those that were closed
        self.weight = at_risk = sum(weight for _, _, weight in ordered)
        self.least, self.longest = ordered[0][0], ordered[-1][0]
        self.values: list[float] = []
        self.ended: list[float] = []
        waiting = 1.0
        for value, censored, weight in ordered:
            if not censored:
                waiting *= 1 - weight / at_risk if at_risk > weight else 0.0
                self.values.append(value)
                self.ended.append(1 - waiting)
            at_risk -= weight

    def quantile(self, at: float) -> float:
        """The least value by which the share `at` had ended; else the longest that was waited for: it is beyond."""
        place = bisect_left(self.ended, at - 1e-9)
        return self.values[place] if place < len(self.values) else self.longest

    def quantile_of_ended(self, at: float) -> float | None:
        """The same, but never beyond the longest that has ended. None: none has."""
        place = bisect_left(self.ended, at - 1e-9)
        return self.values[min(place, len(self.values) - 1)] if self.values else None

    def waiting(self, value: float) -> float:
        """The share that has not ended by `value`."""
        place = bisect_right(self.values, value)
        return 1 - self.ended[place - 1] if place else 1.0


class Samples:
    """The latest samples of one figure.

    `waiting`: since when (ns) each request that is under way waits, the first to begin first.
    """

    __slots__ = (
        "_above", "_added", "_below", "_curve", "_high", "_level_since", "_low", "_refreshed_ns", "_samples", "_seen",
        "_sloped_ns", "_usual_ns", "_waiting", "slope", "usual_size",
    )  # fmt: skip

    def __init__(self, waiting: Mapping[str, int] | None = None) -> None:
        self._samples: deque[Sample] = deque(maxlen=REMEMBERED)
        self._waiting: Mapping[str, int] = waiting if waiting is not None else {}
        self._added = 0
        self._level_since = 0  # the number of the first sample since the level moved
        self._above = self._below = 0
        self._high = self._low = 0.0  # the quartiles
        self._usual_ns = NEVER_NS  # when a request last took no longer than usual
        self._curve: Curve | None = None
        self._refreshed_ns = NEVER_NS
        self._seen = 0
        self._sloped_ns = NEVER_NS
        self.slope = 0.0
        self.usual_size = 0.0

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def latest_ns(self) -> int:
        """When the latest sample was taken; there must be one."""
        return self._samples[-1].at_ns

    def add(self, sample: Sample) -> None:
        """One more, just taken."""
        self._samples.append(sample)
        self._added += 1
        if self._curve is None:
            return
        level = self._level(sample) if self.slope else sample.value
        if level > self._high:
            self._above += 1
            self._below = 0
        elif sample.censored:
            return  # it tells nothing of the level
        elif level < self._low:
            self._below += 1
            self._above = 0
        else:
            self._above = self._below = 0
            return
        if self._above >= RUN or self._below >= RUN:
            self._level_since = self._added - RUN
            self._above = self._below = 0
            self._refreshed_ns = NEVER_NS

    def waited(self, ns: int, now_ns: int) -> None:
        """A request no longer waits, after `ns`; its sample comes later, when it has ended."""
        if ns <= self._high:
            self._usual_ns = now_ns

    def seed(self, samples: Iterable[Sample]) -> None:
        """Samples from elsewhere, older than all that are here."""
        older = sorted(samples, key=lambda sample: sample.at_ns)
        self._samples = deque([*older, *self._samples], maxlen=REMEMBERED)
        self._added += len(older)
        if self._level_since:
            self._level_since += len(older)
        self._refreshed_ns = NEVER_NS

    def curve(self, now_ns: int) -> Curve | None:
        """What the samples say of a request of the usual size. None: there are none."""
        if not self._samples or not self._stale(now_ns):
            return self._curve
        if now_ns - self._sloped_ns >= SLOPE_EVERY_NS:
            self._fit(now_ns)
        late = self._late(now_ns)
        weighted = self._weighted(now_ns, moved=self._is_moving(late, now_ns))
        pairs = [(self._level(each), each.censored, weight) for each, weight in weighted]
        self._curve = Curve([*pairs, *((waited_ns, True, 1.0) for waited_ns in late)])
        self._refreshed_ns, self._seen = now_ns, self._added
        if not self._above and not self._below and not late:  # else a run would move what it is measured by
            self._high, self._low = self._curve.quantile(0.75), self._curve.quantile(0.25)
        return self._curve

    def mean(self, now_ns: int) -> float | None:
        """The weighted mean. None: there are none."""
        if not self._samples:
            return None
        weighted = self._weighted(now_ns, moved=False)
        return sum(sample.value * weight for sample, weight in weighted) / sum(weight for _, weight in weighted)

    def _stale(self, now_ns: int) -> bool:
        since_ns = now_ns - self._refreshed_ns
        news = self._seen != self._added or self._waiting or since_ns >= HALF_LIFE_NS // 8
        return since_ns >= REFRESH_NS and bool(news)

    def _weighted(self, now_ns: int, moved: bool) -> list[tuple[Sample, float]]:
        """All samples with their weights. `moved`: the level has moved since, so all of them are old."""
        level_since = self._added if moved else self._level_since
        return [
            (sample, max(2.0 ** ((sample.at_ns - now_ns) / HALF_LIFE_NS), FLOOR) if number >= level_since else FLOOR)
            for number, sample in enumerate(self._samples, self._added - len(self._samples))
        ]

    def _late(self, now_ns: int) -> list[int]:
        """How long those have waited that wait longer than the upper quartile."""
        waited = (now_ns - since_ns for since_ns in islice(self._waiting.values(), MOST_LATE))
        return list(takewhile(lambda waited_ns: waited_ns > self._high, waited))

    def _is_moving(self, late: Sequence[int], now_ns: int) -> bool:
        """Whether those who are `late` complete a run: enough of them, and nobody answered as usual since."""
        missing = max(RUN - self._above, 1)
        if self._curve is None or len(late) < missing:
            return False
        return self._usual_ns < now_ns - (late[missing - 1] - self._high)

    def _level(self, sample: Sample) -> float:
        """What the value would be for a request of the usual size."""
        return sample.value if sample.size is None else sample.value - self.slope * (sample.size - self.usual_size)

    def _fit(self, now_ns: int) -> None:
        """Work out how the value grows with the size."""
        sizes = sorted(sample.size for sample in self._samples if sample.size is not None)
        self.usual_size = float(sizes[len(sizes) // 2]) if sizes else 0.0
        self.slope = slope(self._samples)
        self._sloped_ns = now_ns


def slope(samples: Iterable[Sample]) -> float:
    """How much greater the value is for each input token; 0.0 where the samples do not show it.

    The median of the slopes between pairs of samples that lie half the samples apart by size (Theil and Sen's way,
    with n / 2 pairs instead of all), so that single slow requests do not tilt it. It is believed where the sizes
    differ well, and three pairs in four agree on its sign.
    """
    known = [(sample.size, sample.value) for sample in samples if sample.size is not None and not sample.censored]
    known.sort(key=itemgetter(0))  # and by nothing else: pairs must be matched by chance
    half = len(known) // 2
    if half < LEAST_PAIRS:
        return 0.0
    pairs = [(known[place], known[place + half]) for place in range(half)]
    slopes = sorted((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] >= 2 * a[0] and b[0] - a[0] >= LEAST_APART)
    if len(slopes) < LEAST_PAIRS or slopes[len(slopes) // 4] <= 0:
        return 0.0
    return slopes[len(slopes) // 2]
