"""Axes of charts: where values lie, and ticks at round values."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import ceil, floor, log10

from msgspec import Struct

LOGARITHMIC_FROM = 8
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
LOGARITHMIC_STEPS: Sequence[tuple[Sequence[int], int]] = (
    (range(1, 10), 1), ((1, 2, 3, 5, 7), 1), ((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2),
    ((1,), 3),
)  # fmt: skip
"""Ticks within a decade, and in every how many decades they stand, from the densest to the
sparsest."""

MINUTE_S, DAY_S = 60, 86_400
TIME_STEPS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10_800, 21_600, 43_200, DAY_S)


class Axis(Struct, frozen=True, kw_only=True):
    """One axis of a chart. `grid`: whether lines cross the plot there."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]] = ()
    logarithmic: bool = False
    grid: bool = True

    def place(self, value: float) -> float:
        if self.high == self.low:
            return 0.5
        if self.logarithmic:
            return log10(max(value, self.low * 1e-3) / self.low) / log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def shows(self, value: float) -> bool:
        return self.low <= value <= self.high


def fitted(title: str, values: Iterable[float], *, zero: bool = True) -> Axis:
    """Return an axis for these values: logarithmic if they lie far apart, otherwise linear (from 0
    with `zero`)."""
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    if low > 0 and high > LOGARITHMIC_FROM * low:
        return logarithmic(title, low * 0.9, high * 1.12)
    begin = 0.0 if zero and low >= 0 else low - 0.08 * (high - low or abs(high) or 1)
    end = high + 0.06 * (high - begin) if high > begin else begin + 1
    return linear(title, begin, end)


def linear(
    title: str, low: float, high: float, *, percent: bool = False, grid: bool = True
) -> Axis:
    step = _round_step((high - low) / 5)
    ticks = [
        min(at * step, high) for at in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)
    ]
    label_step = step * (100 if percent else 1)
    decimals = next(
        (d for d in range(12) if abs(round(label_step, d) - label_step) < 1e-6 * label_step), 12
    )
    labels = [
        f"{100 * tick:.{decimals}f}%" if percent else f"{tick:,.{decimals}f}" for tick in ticks
    ]
    return Axis(
        title=title, low=low, high=high, ticks=list(zip(ticks, labels, strict=True)), grid=grid
    )


def logarithmic(title: str, low: float, high: float, *, grid: bool = True) -> Axis:
    """Return a logarithmic axis with up to eight ticks at round values: 1, 2, 5, 10, …, or fewer on
    a long axis."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    for steps, every in LOGARITHMIC_STEPS:
        ticks = [
            s * 10.0**d
            for d in decades
            if d % every == 0
            for s in steps
            if low <= s * 10.0**d <= high
        ]
        if len(ticks) <= 8:
            break
    return Axis(
        title=title,
        low=low,
        high=high,
        ticks=[(t, short(t)) for t in ticks],
        logarithmic=True,
        grid=grid,
    )


def load_axis(loads: Iterable[float], unit: str) -> Axis:
    distinct_loads = sorted(set(loads))
    low, high = distinct_loads[0] / 1.12, distinct_loads[-1] * 1.12
    ticks = [(load, f"{load:,g}") for load in distinct_loads]
    return Axis(title=unit, low=low, high=high, ticks=ticks, logarithmic=True, grid=False)


def load_unit(*, open_loop: bool, in_sessions: bool = False) -> str:
    return ("sessions/s" if in_sessions else "requests/s") if open_loop else "concurrency"


def shares(title: str) -> Axis:
    return Axis(
        title=title, low=0, high=1, ticks=[(s, f"{s:.0%}") for s in (0, 0.25, 0.5, 0.75, 0.95, 1)]
    )


def moments(first_s: float, last_s: float) -> Axis:
    if first_s == last_s:
        first_s, last_s = first_s - 60, last_s + 60
    # Times with seconds are longer, and must not overlap on a phone.
    step = next(
        (s for s in TIME_STEPS_S if (last_s - first_s) / s <= (4 if s < MINUTE_S else 8)), 0
    )
    step = step or DAY_S * ceil((last_s - first_s) / 6 / DAY_S)
    ticks = [float(at * step) for at in range(ceil(first_s / step), floor(last_s / step) + 1)]
    labels = []
    for tick in ticks:
        at = datetime.fromtimestamp(tick, UTC)
        clock = "%H:%M:%S" if step < MINUTE_S else "%H:%M"
        labels.append(f"{at:%b} {at.day}" if tick % DAY_S == 0 else f"{at:{clock}}")
    return Axis(
        title="", low=first_s, high=last_s, ticks=list(zip(ticks, labels, strict=True)), grid=False
    )


def _round_step(least: float) -> float:
    power = 10.0 ** floor(log10(least)) if least > 0 else 1.0
    return next(power * step for step in (1, 2, 2.5, 5, 10) if power * step >= least * 0.999)


def short(value: float) -> str:
    for size, unit in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e4, "")):
        if value >= size:
            return f"{value / size:,g}{unit}" if unit else f"{value / 1e3:,g} k"
    return f"{value:,g}"
