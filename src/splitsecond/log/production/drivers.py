"""Drivers of speed in production: the share of the variation that a property of requests goes with.

The variation is that of log(TPS) or log(TTFT) over requests. A property, such as the host, predicts
a request of one period (a day or more) by the mean of the requests of the other periods that have
the same value of it. The share is 1 − (squared errors of that prediction) / (those of the mean of
all): R² by cross-validation over periods. Unlike eta squared, it does not grow with the number of
values. The interval leaves out one period in turn (`jackknife`).

A share is an association: what two properties have in common is in both shares.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from splitsecond.core.catalog.model_names import identify
from splitsecond.core.timing.columns import (
    US_PER_HOUR,
    WAIT_ENDED,
    AttemptColumns,
    Floats,
    Integers,
)
from splitsecond.core.wording import Statement, listed, percent
from splitsecond.log.production.row_names import NAMES, prompt_classes
from splitsecond.log.production.speed import PERIODS_NEEDED, period_name, periods_joined
from splitsecond.log.statistics.jackknife import Flags, jackknife_intervals
from splitsecond.log.statistics.summary import Interval
from splitsecond.log.statistics.value_counts import distinct

OF_TARGETS = ("hardware", "host", "maker", "model")
"""Properties that follow from the name of a target."""
WORDS = {
    "hardware": "hardware", "host": "host", "maker": "maker of the model", "model": "model",
    "size": "length of the prompt", "hour": "hour of the day",
}  # fmt: skip
INSIDE = {"hardware": "host", "maker": "model"}
"""Properties that another one decides, so that the other's share contains theirs."""
FIGURES = {"ttft_ms": "TTFT", "tps": "TPS"}
HOURS_PER_DAY = 24
MIN_SHARE = 0.005
"""Smaller shares are none."""
MAX_KEYS = 200_000
"""Rows of sums that wait to be added up."""


class Driver(Struct, frozen=True, kw_only=True):
    """Share of the variation of a figure that goes with a property. `values`: how many of them
    there are."""

    by: str
    values: int
    share: float
    ci95: Interval = (None, None)


class SpeedDrivers(Struct, frozen=True, kw_only=True):
    """Drivers of one figure ("ttft_ms" or "tps"), the largest share first, by `requests` requests
    in `periods` periods. `first`: the drivers that chance may have put behind the first one, with
    it; one name if it is clear. `refused`: why there are no drivers; "" if there are."""

    figure: str
    requests: int
    periods: int
    period: str
    drivers: list[Driver] = []
    first: list[str] = []
    refused: str = ""


class DriverTraffic:
    """Accumulator of attempts, in any order; `drivers` returns what their speeds go with.
    `period_h`: the length of a period in hours."""

    def __init__(self, period_h: int) -> None:
        self._period_h = period_h
        self._targets: dict[str, int] = {}
        self._keys: dict[str, Integers] = {name: np.empty((0, 4), np.int64) for name in FIGURES}
        self._sums: dict[str, Floats] = {name: np.empty((0, 3)) for name in FIGURES}

    def add(self, columns: AttemptColumns) -> None:
        targets = [
            self._targets.setdefault(label.target, len(self._targets)) for label in columns.labels
        ]
        period = columns.came_us // (US_PER_HOUR * self._period_h)
        keys = np.stack(
            [
                np.array(targets, np.int64)[columns.label],
                prompt_classes(columns),
                columns.hours % HOURS_PER_DAY,
                period,
            ],
            1,
        )
        ttft = np.where(columns.waits == WAIT_ENDED, columns.wait_ms, np.nan)
        for name, values in (("ttft_ms", ttft), ("tps", columns.tps)):
            places = np.flatnonzero(values > 0)
            logs = np.log(values[places])
            sums = np.stack([np.ones(len(logs)), logs, logs**2], 1)
            self._put(name, *_added(keys[places], sums))

    def _put(self, name: str, keys: Integers, sums: Floats) -> None:
        self._keys[name] = np.concatenate([self._keys[name], keys])
        self._sums[name] = np.concatenate([self._sums[name], sums])
        if len(self._keys[name]) > MAX_KEYS:
            self._keys[name], self._sums[name] = _added(self._keys[name], self._sums[name])

    def drivers(self) -> list[SpeedDrivers]:
        return [self._of(name) for name in FIGURES]

    def _of(self, name: str) -> SpeedDrivers:
        keys, sums = _added(self._keys[name], self._sums[name])
        periods = keys[:, 3] - keys[:, 3].min() if len(keys) else keys[:, 3]
        joined = periods_joined(periods)
        periods = distinct(periods // joined)[1]
        count = int(periods.max(initial=-1)) + 1
        drivers = SpeedDrivers(
            figure=name,
            requests=round(float(sums[:, 0].sum())),
            periods=count,
            period=period_name(self._period_h * joined),
        )
        if count < PERIODS_NEEDED:
            few = f"{count} periods with requests, needed: {PERIODS_NEEDED}"
            return replace(drivers, refused=few)
        groups = {by: values for by, values in self._groups(keys).items() if values.max() > 0}
        if not groups:
            return replace(drivers, refused="all requests are alike")
        tables = [_table(values, periods, sums, count) for values in groups.values()]
        return _judged(drivers, list(groups), tables)

    def _groups(self, keys: Integers) -> dict[str, Integers]:
        names = [identify(target) for target in self._targets]
        groups = {}
        for by in OF_TARGETS:
            number_of: dict[str, int] = {}
            numbers = [number_of.setdefault(NAMES[by](name), len(number_of)) for name in names]
            groups[by] = np.array(numbers, np.int64)[keys[:, 0]]
        groups["size"] = keys[:, 1]
        if self._period_h >= HOURS_PER_DAY:  # a shorter period has few hours of the day
            groups["hour"] = keys[:, 2]
        return {by: distinct(values)[1] for by, values in groups.items()}


def _added(keys: Integers, sums: Floats) -> tuple[Integers, Floats]:
    """Return each key once, with the sums of its rows."""
    if not len(keys):
        return keys, sums
    # as one number: comparing rows takes twenty times as long
    numbers = np.zeros(len(keys), np.int64)
    for column in keys.T:
        numbers = numbers * (int(column.max()) + 1) + column
    _, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    return keys[first], _binned(place, sums, len(first))


def _table(values: Integers, periods: Integers, sums: Floats, count: int) -> Floats:
    """Return the sums of each value in each period."""
    cells = values * count + periods
    size = (int(values.max()) + 1) * count
    return _binned(cells, sums, size).reshape(-1, count, 3)


def _binned(places: Integers, sums: Floats, count: int) -> Floats:
    bins = np.stack([np.bincount(places, column, count) for column in sums.T], 1)
    return bins.astype(np.float64, copy=False)


def _judged(
    of_figure: SpeedDrivers, names: Sequence[str], tables: Sequence[Floats]
) -> SpeedDrivers:
    shares = np.array([_share(table) for table in tables])
    best = int(shares.argmax())

    def estimate(included: Flags) -> Floats:
        own = np.array([_share(table[:, included]) for table in tables])
        return np.concatenate([own, own[best] - own])

    middle = np.concatenate([shares, shares[best] - shares])
    intervals = jackknife_intervals(
        estimate, middle, [np.arange(of_figure.periods, dtype=np.int64)]
    )
    drivers = [
        Driver(by=name, values=len(table), share=float(share), ci95=_bounded(interval))
        for name, table, share, interval in zip(names, tables, shares, intervals, strict=False)
    ]
    # properties whose difference from the best one may be chance
    near = [
        name
        for name, (low, _) in zip(names, intervals[len(names) :], strict=True)
        if name != names[best] and (low is None or low <= 0) and INSIDE.get(name) != names[best]
    ]
    ordered = sorted(drivers, key=lambda driver: -driver.share)
    return replace(of_figure, drivers=ordered, first=[names[best], *near])


def _share(table: Floats) -> float:
    """Return R² of predicting each period from the others."""
    n, total, squares = (table[..., at] for at in range(3))
    other_n, other = n.sum(1, keepdims=True) - n, total.sum(1, keepdims=True) - total
    all_n, all_total = other_n.sum(0), other.sum(0)
    middle = all_total / np.maximum(all_n, 1)
    own = np.where(other_n > 0, other / np.maximum(other_n, 1), middle)
    errors = float((squares - 2 * own * total + n * own**2).sum())
    whole = float((squares - 2 * middle * total + n * middle**2).sum())
    return 1 - errors / whole if whole > 0 else 0.0


def _bounded(interval: Interval) -> Interval:
    low, high = interval
    return None if low is None else max(low, 0.0), None if high is None else min(high, 1.0)


def driver_statements(figures: Sequence[SpeedDrivers]) -> list[Statement]:
    statements = []
    for each in figures:
        name = FIGURES[each.figure]
        if each.refused:
            statements.append(Statement(f"What {name} goes with is not known: {each.refused}."))
            continue
        best, *others = each.drivers
        if best.share < MIN_SHARE:
            statements.append(
                Statement(f"{name} goes with none of {listed(_named(each.drivers))}.")
            )
            continue
        clear = len(each.first) == 1
        ahead = "most" if clear else "most here, but not clearly,"
        rest = [f"the {WORDS[d.by]} {share_words(d)}" for d in others]
        share = share_words(best, interval=True)
        statements.append(
            Statement(
                f"{name} goes {ahead} with the {WORDS[best.by]}: {share} of its variation. "
                f"Then {listed(rest)}."
            )
        )
    if any(not each.refused for each in figures):
        statements.append(
            Statement(
                "These are associations, not causes: hosts differ in models and prompts, and what "
                "two properties have in common is in both shares."
            )
        )
    return statements


def _named(drivers: Sequence[Driver]) -> list[str]:
    return [WORDS[driver.by] for driver in drivers]


def share_words(driver: Driver, *, interval: bool = False) -> str:
    share = max(driver.share, 0.0)
    words = percent(round(share, 2))
    low, high = driver.ci95
    if not interval or low is None or high is None:
        return words
    return f"{words} (95% interval {percent(round(low, 2))} to {percent(round(high, 2))})"
