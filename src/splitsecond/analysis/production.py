"""What the real requests of some days say of each target: its speed grade, its times, its cost, and whether it drifts.

The production figure is total TPS: output tokens divided by the whole time of the attempt, from where its connection
began to its end, of successful requests only. It holds everything that a user waits for, so a slow day shows. Its
median decides the grade (Straive, "How fast are LLMs in production?", September 2024: 1 from 100 tokens/s on, 2 from
70, 3 from 50, 4 from 30, else 5; there, too, models with fewer than 500 requests are left ungraded). Time that a call
spent on a target that failed before is that target's, not of the one that answered in the end.

Attempts are added one by one, in the order of time, and only their figures are kept, so that a fortnight of a busy
gateway fits into memory. The time to first token is that of streamed answers; attempts that were closed before it, by
a race or by who asked, count as censored (`censored`), those that timed out too.

Requests of one hour resemble each other, so the interval of a figure, which takes them as independent, is too narrow.
Whether a target has drifted is therefore judged by days: the daily medians of the later half of the days against those
of the earlier half.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from splitsecond.analysis.censored import censored_spread
from splitsecond.analysis.contrast import Contrast, contrast
from splitsecond.analysis.cost import cost_usd
from splitsecond.analysis.findings import Spread
from splitsecond.analysis.spread import Floats, spread
from splitsecond.catalog.price import MILLION, Price
from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.timing.observation import Observation

SCHEMA = "splitsecond.speed/1"
GRADES = ((100.0, 1), (70.0, 2), (50.0, 3), (30.0, 4))
SLOWEST = 5
LEAST = 500
"""Answered requests below which no grade is given."""
DAY_NEEDS = 10
"""Answers of a day below which its median is left out."""
HALF_NEEDS = 4
"""Days of each half. Of fewer no permutation of them is rare enough to tell a drift from chance."""

By = Literal["target", "model", "provider"]


def grade(total_tps: float) -> int:
    """The speed grade of so many total tokens per second: 1, the fastest, to 5."""
    return next((found for least, found in GRADES if total_tps >= least), SLOWEST)


class Drift(Struct, frozen=True, kw_only=True):
    """Total TPS of the later half of the days against the earlier: `ratio` with its 95 % interval, by daily medians.

    `real`: more than chance, by a permutation test of the days. `days`: how many there were in each half.
    """

    before: float
    after: float
    ratio: float | None
    ci95: tuple[float, float] | None
    p_value: float | None
    real: bool
    days: tuple[int, int]


class Speed(Struct, kw_only=True):
    """What is known of a target (or all targets of one model, or of one provider: `name`).

    `requests` are attempts: `answered`, `failed`, or `closed` before their end by us or by the client. `grade` goes by
    the median of `total_tps`, and `grades` are those that its 95 % interval allows, best first; None and empty where
    too few were answered (`needs` says how many it takes). `ttft_ms` counts those closed before their first token,
    `ttft_closed` of them, as longer than they were waited for. Tokens are means of an answer. `cost_usd` is of all
    attempts with a known cost; `unpriced` have none. `token_source`: how tokens were counted, by how often.
    """

    name: str
    requests: int
    answered: int
    failed: int
    closed: int
    grade: int | None
    grades: tuple[int, ...] = ()
    needs: int = 0
    total_tps: Spread
    tps: Spread
    ttft_ms: Spread
    ttft_closed: int = 0
    input_tokens: float | None = None
    output_tokens: float | None = None
    cost_usd: float | None = None
    usd_per_million: float | None = None
    unpriced: int = 0
    token_source: dict[str, int] = {}
    faults: dict[str, int] = {}
    drift: Drift | None = None

    @property
    def error_share(self) -> float:
        """Failed requests by those that had an end of their own; who left or lost a race is neither."""
        ended = self.answered + self.failed
        return self.failed / ended if ended else 0.0


class _Kept:
    """What is kept of the attempts of one name."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.sources: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.total_tps, self.tps, self.ttft_ms = array("d"), array("d"), array("d")
        self.days, self.closed = array("l"), array("b")
        self.tokens_in = self.tokens_out = 0
        self.usd, self.priced, self.unpriced, self.priced_tokens = 0.0, 0, 0, 0

    def add(self, day: int, o: Observation, usd: float | None) -> None:
        self.outcomes[o.outcome] += 1
        if o.fault is not None:
            self.faults[o.fault.kind] += 1
        if o.ok and (speed := total_tps(o)) is not None:
            self.total_tps.append(speed)
            self.days.append(day)
            self.sources[o.token_source] += 1
            self.tokens_in += o.input_tokens or 0
            self.tokens_out += o.output_tokens or 0
            if (tps := o.tps) is not None:
                self.tps.append(tps)
        if o.streamed:
            self._wait(o)
        if usd is None:
            self.unpriced += 1
        else:
            self.priced += 1
            self.usd += usd
            self.priced_tokens += (o.input_tokens or 0) + (o.output_tokens or 0)

    def _wait(self, o: Observation) -> None:
        """How long the first token was waited for, whether it came or not."""
        ttft_ns = o.ttft_ns
        timed_out = o.fault is not None and o.fault.type == "TimedOut"
        if ttft_ns is None and o.sent_ns is not None and (o.outcome == "cancelled" or timed_out):
            self.ttft_ms.append((o.end_ns - o.sent_ns) / NS_PER_MS)
            self.closed.append(1)
        elif ttft_ns is not None:
            self.ttft_ms.append(ttft_ns / NS_PER_MS)
            self.closed.append(0)


class Traffic:
    """The attempts of some days. `add` them in any order; `speeds` is what they come to.

    `price` gives what a target costs, None where nobody knows. `by`: what makes one row.
    """

    def __init__(self, price: Callable[[str], Price | None], by: By = "target") -> None:
        self._price = price
        self._name = NAMES[by]
        self._kept: defaultdict[str, _Kept] = defaultdict(_Kept)

    def add(self, moment: datetime, o: Observation) -> None:
        """An attempt of a call that came in at that moment."""
        self._kept[self._name(o.target)].add(moment.toordinal(), o, cost_usd(o, self._price(o.target)))

    def speeds(self, least: int = LEAST) -> list[Speed]:
        """One for each name, the fastest first, those without a grade last. `least`: see `LEAST`."""
        random = np.random.default_rng(0)
        found = [_speed(name, kept, least, random) for name, kept in self._kept.items()]
        return sorted(found, key=lambda s: (s.grade is None, -(s.total_tps.p50 or 0), s.name))


def total_tps(o: Observation) -> float | None:
    """Output tokens per second of all the time that an attempt took, connecting and waiting included.

    None where it did not send a request, or says no count.
    """
    if o.sent_ns is None or o.output_tokens is None:
        return None
    took_ns = o.end_ns - o.sent_ns + o.dns_ns + o.tcp_ns + o.tls_ns
    return o.output_tokens * NS_PER_S / took_ns if took_ns > 0 and o.output_tokens else None


def _speed(name: str, kept: _Kept, least: int, random: np.random.Generator) -> Speed:
    totals = np.frombuffer(kept.total_tps) if kept.total_tps else np.empty(0)
    found = spread(totals, fast_end=True)
    answered = len(totals)
    graded = found.p50 is not None and answered >= least
    return Speed(
        name=name,
        requests=kept.outcomes.total(),
        answered=kept.outcomes["ok"],
        failed=kept.outcomes["failed"],
        closed=kept.outcomes["cancelled"],
        grade=grade(found.p50) if graded and found.p50 is not None else None,
        grades=_grades(found) if graded else (),
        needs=0 if graded else least,
        total_tps=found,
        tps=spread(kept.tps, fast_end=True),
        ttft_ms=censored_spread(kept.ttft_ms, kept.closed),
        ttft_closed=sum(kept.closed),
        input_tokens=kept.tokens_in / answered if answered else None,
        output_tokens=kept.tokens_out / answered if answered else None,
        cost_usd=kept.usd if kept.priced else None,
        usd_per_million=kept.usd / kept.priced_tokens * MILLION if kept.priced_tokens else None,
        unpriced=kept.unpriced,
        token_source=dict(kept.sources),
        faults=dict(kept.faults.most_common()),
        drift=_drift(totals, np.array(kept.days, dtype=np.int64), random),
    )


def _grades(found: Spread) -> tuple[int, ...]:
    """The grades that the interval of the median allows."""
    low, high = found.ci95["p50"]
    if low is None or high is None:
        return ()
    return tuple(range(grade(high), grade(low) + 1))


def _drift(totals: Floats, days: npt.NDArray[np.int64], random: np.random.Generator) -> Drift | None:
    """By the days that have enough answers, split in the middle of their time; None where a half has too few."""
    medians = daily_medians(totals, days)
    if not medians:
        return None
    middle = (min(medians) + max(medians) + 1) / 2
    early, late = (
        np.array([median for day, median in medians.items() if (day >= middle) is later]) for later in (False, True)
    )
    if min(len(early), len(late)) < HALF_NEEDS:
        return None
    moved: Contrast = contrast(early, late, {"p50": 0.5}, random)["p50"]
    return Drift(
        before=moved.first,
        after=moved.second,
        ratio=moved.ratio,
        ci95=moved.ci95,
        p_value=moved.p_value,
        real=moved.real,
        days=(len(early), len(late)),
    )


def daily_medians(values: Floats, days: npt.NDArray[np.int64]) -> dict[int, float]:
    """The median of each day that has at least `DAY_NEEDS` values."""
    order = np.argsort(days, kind="stable")
    ordered, starts = days[order], np.flatnonzero(np.diff(days[order], prepend=-1))
    parts = zip(starts, np.split(values[order], starts[1:]) if len(starts) else (), strict=True)
    return {int(ordered[at]): float(np.median(part)) for at, part in parts if len(part) >= DAY_NEEDS}


def _model(target: str) -> str:
    """The model without who serves it, and without its maker: "openai/gpt-oss-120b" is the same at all who serve it."""
    return target.partition("/")[2].rpartition("/")[2]


NAMES: dict[By, Callable[[str], str]] = {
    "target": lambda target: target,
    "model": _model,
    "provider": lambda target: target.partition("/")[0],
}


def same_model(speeds: Iterable[Speed]) -> dict[str, list[Speed]]:
    """Targets that serve a model of one name, where there are several, in the order given."""
    found: defaultdict[str, list[Speed]] = defaultdict(list)
    for speed in speeds:
        if model := _model(speed.name):
            found[model].append(speed)
    return {model: served for model, served in found.items() if len(served) > 1}
