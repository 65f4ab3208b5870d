"""Samples of the latest requests to one target, weighted by age, censored ones included.

A request that was closed before its first token (it lost a race, a deadline passed) shows only that
the token would have come later. Such samples are censored, and quantiles are those of a weighted
survival curve.

Old samples mislead, but a target without requests for ten minutes is not unknown. The weight of a
sample halves every two minutes, down to a floor: together, old samples count for little, unless
there are no others.

A mean over minutes shows a change only after minutes. So runs are detected: `RUN` samples in a row
above the upper quartile (by chance one time in four thousand), or below the lower one, mean that
the level has changed, and the weight of all samples before the run falls to the floor at once.
Requests in flight that are late count as such samples, unless other requests are answered in the
usual time meanwhile: then they are only the tail of the distribution.

Adding a sample is cheap, because it happens for each request. The curve takes a tenth of a
millisecond, so it is computed on demand and at most every `REFRESH_NS`.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from msgspec import Struct

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.timing.survival import SurvivalCurve

REMEMBERED = 128
"""How many samples are kept. With far fewer, the 95th percentile would be the maximum."""
HALF_LIFE_NS = 120 * NS_PER_S
FLOOR = 1 / 64
"""The weight of an old sample: all samples that are kept count together for two fresh ones."""
RUN = 6
"""Samples in a row beyond a quartile; by chance with a probability of ¼ to the sixth, 0.0002."""
REFRESH_NS = 250 * NS_PER_MS
SLOPE_EVERY_NS = 5 * NS_PER_S
MAX_RECEIVED = 6.0
"""The most that the samples of other workers count for together; one fresh sample counts for 1."""
MAX_LATE = 32
"""How many of the requests in flight are examined, those that wait longest."""
MIN_PAIRS = 10
MIN_LOADED = 30
"""Samples from which on the effect of our own requests is estimated."""
LOAD_SURE = 2.0
"""Standard errors beyond which it is not chance."""
MIN_APART = 200
"""Least difference in input tokens; the time to read fewer is a few milliseconds."""
NEVER_NS = -(1 << 62)


Weighted = tuple[float, bool, float]
"""A value, whether the true value is greater, and the weight."""


class Sample(Struct, frozen=True, gc=False):
    at_ns: int
    value: float
    censored: bool = False
    size: int | None = None
    load: int | None = None


class Samples:
    """The latest samples of one quantity.

    `waiting`: since when (ns) each request in flight waits, the oldest first.
    """

    __slots__ = (
        "_above",
        "_added",
        "_below",
        "_curve",
        "_high",
        "_last_usual_ns",
        "_level_since",
        "_low",
        "_received",
        "_refreshed_ns",
        "_samples",
        "_seen",
        "_sloped_ns",
        "_waiting",
        "load_slope",
        "most_load",
        "slope",
        "typical_load",
        "typical_size",
    )  # fmt: skip

    def __init__(self, waiting: Mapping[str, int] | None = None) -> None:
        self._samples: deque[Sample] = deque(maxlen=REMEMBERED)
        self._waiting: Mapping[str, int] = waiting if waiting is not None else {}
        self._received: Sequence[Weighted] = []
        self._added = 0
        self._level_since = 0  # number of the first sample since the level changed
        self._above = self._below = 0
        self._high = self._low = 0.0  # the quartiles
        self._last_usual_ns = NEVER_NS  # when a request last got its token in the usual time
        self._curve: SurvivalCurve | None = None
        self._refreshed_ns = NEVER_NS
        self._seen = 0
        self._sloped_ns = NEVER_NS
        self.slope = 0.0
        self.typical_size = 0.0
        self.load_slope = 0.0
        self.typical_load = 0.0
        self.most_load = 0

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def latest_ns(self) -> int:
        return self._samples[-1].at_ns

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)
        self._added += 1
        if self._curve is None:
            return
        level = self._level(sample) if self.slope else sample.value
        if level > self._high:
            self._above += 1
            self._below = 0
        elif sample.censored:
            return  # its level is unknown
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

    def stop_waiting(self, ns: int, now_ns: int) -> None:
        if ns <= self._high:
            self._last_usual_ns = now_ns

    def seed(self, samples: Iterable[Sample]) -> None:
        older = sorted(samples, key=lambda sample: sample.at_ns)
        self._samples = deque([*older, *self._samples], maxlen=REMEMBERED)
        self._added += len(older)
        if self._level_since:
            self._level_since += len(older)
        self._refreshed_ns = NEVER_NS

    def receive(self, received: Sequence[Weighted]) -> None:
        if received != self._received:
            self._received = received
            self._seen = -1

    def weighted(self, now_ns: int) -> list[Weighted]:
        return [
            (each.value, each.censored, weight)
            for each, weight in self._weighted(now_ns, moved=False)
        ]

    def curve(self, now_ns: int) -> SurvivalCurve | None:
        if not self._samples and not self._received:
            self._curve = None
            return None
        if not self._stale(now_ns):
            return self._curve
        if now_ns - self._sloped_ns >= SLOPE_EVERY_NS:
            self._fit(now_ns)
        late = self._late(now_ns)
        weighted = self._weighted(now_ns, moved=self._is_moving(late, now_ns))
        pairs = [(self._level(each), each.censored, weight) for each, weight in weighted]
        pairs += self._received_pairs(sum(weight for _, weight in weighted))
        self._curve = SurvivalCurve([*pairs, *((waited_ns, True, 1.0) for waited_ns in late)])
        self._refreshed_ns, self._seen = now_ns, self._added
        # a run must not change its own thresholds
        if not self._above and not self._below and not late:
            self._high, self._low = self._curve.quantile(0.75), self._curve.quantile(0.25)
        return self._curve

    def fresh(self, now_ns: int) -> float:
        return sum(math.exp2((sample.at_ns - now_ns) / HALF_LIFE_NS) for sample in self._samples)

    def mean(self, now_ns: int) -> float | None:
        pairs = [(value, weight) for value, _, weight in self.weighted(now_ns)]
        pairs += [
            (value, weight)
            for value, _, weight in self._received_pairs(sum(weight for _, weight in pairs))
        ]
        return (
            sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs)
            if pairs
            else None
        )

    def _received_pairs(self, own: float) -> list[Weighted]:
        total = sum(weight for _, _, weight in self._received)
        most = min(MAX_RECEIVED - own, total)
        if most <= 0:
            return []
        return [
            (value, censored, weight * most / total) for value, censored, weight in self._received
        ]

    def _stale(self, now_ns: int) -> bool:
        since_ns = now_ns - self._refreshed_ns
        news = self._seen != self._added or self._waiting or since_ns >= HALF_LIFE_NS // 8
        return since_ns >= REFRESH_NS and bool(news)

    def _weighted(self, now_ns: int, moved: bool) -> list[tuple[Sample, float]]:
        level_since = self._added if moved else self._level_since
        return [
            (
                sample,
                max(2.0 ** ((sample.at_ns - now_ns) / HALF_LIFE_NS), FLOOR)
                if number >= level_since
                else FLOOR,
            )
            for number, sample in enumerate(self._samples, self._added - len(self._samples))
        ]

    def _late(self, now_ns: int) -> list[int]:
        waited = (now_ns - since_ns for since_ns in islice(self._waiting.values(), MAX_LATE))
        return sorted((waited_ns for waited_ns in waited if waited_ns > self._high), reverse=True)

    def _is_moving(self, late: Sequence[int], now_ns: int) -> bool:
        missing = max(RUN - self._above, 1)
        if self._curve is None or len(late) < missing:
            return False
        return self._last_usual_ns < now_ns - (late[missing - 1] - self._high)

    def load_factor(self, load: int) -> float:
        return (
            math.exp(self.load_slope * (min(load, self.most_load) - self.typical_load))
            if self.load_slope
            else 1.0
        )

    def _level(self, sample: Sample) -> float:
        return (
            sample.value
            if sample.size is None
            else sample.value - self.slope * (sample.size - self.typical_size)
        )

    def _fit(self, now_ns: int) -> None:
        sizes = sorted(sample.size for sample in self._samples if sample.size is not None)
        self.typical_size = float(sizes[len(sizes) // 2]) if sizes else 0.0
        self.slope = slope(self._samples)
        self.load_slope, self.typical_load, self.most_load = load_slope(self._samples)
        self._sloped_ns = now_ns


def slope(samples: Iterable[Sample]) -> float:
    """Return the increase of the value per input token; 0.0 if the samples do not show one.

    It is the median of the slopes between pairs of samples that are half the samples apart by size
    (the Theil-Sen estimator, with n / 2 pairs instead of all), so that single slow requests do not
    tilt it. It counts only if the sizes differ enough and three pairs in four agree on its sign.
    """
    points = [
        (sample.size, sample.value)
        for sample in samples
        if sample.size is not None and not sample.censored
    ]
    points.sort(key=itemgetter(0))  # by size only: samples of equal size must be paired at random
    half = len(points) // 2
    if half < MIN_PAIRS:
        return 0.0
    pairs = [(points[place], points[place + half]) for place in range(half)]
    slopes = sorted(
        (b[1] - a[1]) / (b[0] - a[0])
        for a, b in pairs
        if b[0] >= 2 * a[0] and b[0] - a[0] >= MIN_APART
    )
    if len(slopes) < MIN_PAIRS or slopes[len(slopes) // 4] <= 0:
        return 0.0
    return slopes[len(slopes) // 2]


def load_slope(samples: Iterable[Sample]) -> tuple[float, float, int]:
    """Return the increase of the logarithm of the value per request of ours in flight, their mean
    and largest number.

    It is the least-squares line; 0.0 unless it rises by more than `LOAD_SURE` standard errors.
    """
    points = [
        (each.load, math.log(each.value))
        for each in samples
        if each.load is not None and not each.censored and each.value > 0
    ]
    n = len(points)
    if n < MIN_LOADED:
        return 0.0, 0.0, 0
    mean, level = sum(load for load, _ in points) / n, sum(log for _, log in points) / n
    loads = sum((load - mean) ** 2 for load, _ in points)
    if not loads:
        return 0.0, mean, points[0][0]
    rise = sum((load - mean) * (log - level) for load, log in points) / loads
    rest = sum((log - level - rise * (load - mean)) ** 2 for load, log in points)
    sure = rise > LOAD_SURE * math.sqrt(rest / (n - 2) / loads)
    return rise if sure else 0.0, mean, max(load for load, _ in points)
