"""How often `splitsecond speed` is right about logs whose truth is known: the table of
docs/production.md.

Hours have a correlation of 0.8 and a scatter of 15%, days one of 0.5 and 5%, and nights are 20%
faster than the mean, days as much slower. `python -m benchmarks.production` prints the table in
Markdown, in a few minutes.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from splitsecond.core.timing.columns import US_PER_HOUR, AttemptColumns, AttemptLabel
from splitsecond.log.production.drift import drift_of
from splitsecond.log.production.speed import period_hours
from splitsecond.log.production.traffic import ProductionTraffic

Floats = npt.NDArray[np.float64]
HOURS = 24
CALLS_AN_HOUR = 20
SPEED = 60.0
"""Median total tokens per second of both targets."""
FIRST_HOUR = 480_000
NIGHT = np.isin(np.arange(HOURS), [22, 23, 0, 1, 2, 3, 4, 5])
LOGS = 100


def autoregressive(random: np.random.Generator, n: int, alike: float, scatter: float) -> Floats:
    found = random.standard_normal(n)
    for at in range(1, n):
        found[at] = alike * found[at - 1] + (1 - alike**2) ** 0.5 * found[at]
    return scatter * found


class SimulatedTarget(Struct, frozen=True):
    """A target of the log: its speed, and at which hours of the day it has calls. `own`: its slow
    hours are its own."""

    name: str
    faster: float = 1.0
    night_only: bool = False
    own: bool = False


def log_of(random: np.random.Generator, days: int, *targets: SimulatedTarget) -> ProductionTraffic:
    traffic = ProductionTraffic(lambda _: None, period_h=period_hours(days * HOURS * 3600))
    shared = _levels(random, days)
    for target in targets:
        levels = _levels(random, days) if target.own else shared
        hours = np.repeat(np.arange(days * HOURS), CALLS_AN_HOUR)
        if target.night_only:
            hours = hours[NIGHT[(FIRST_HOUR + hours) % HOURS]]
        tokens = np.maximum(random.lognormal(np.log(300), 0.7, len(hours)), 2).astype(np.int64)
        tps = (
            SPEED * target.faster * np.exp(levels[hours] + 0.3 * random.standard_normal(len(hours)))
        )
        empty = np.zeros(len(hours), np.int64)
        traffic.add(
            AttemptColumns(
                labels=[AttemptLabel(target.name)], label=empty,
                came_us=(FIRST_HOUR + hours) * US_PER_HOUR,
                call=empty, attempts=empty + 1, flags=empty, wait_ns=empty,
                took_ns=(tokens / tps * 1e9).astype(np.int64), decode_ns=empty, decoded=empty,
                input_tokens=empty + 500, output_tokens=tokens, cached_tokens=empty,
                cache_write_tokens=empty,
                cache_write_1h_tokens=empty,
            )
        )  # fmt: skip
    return traffic


def _levels(random: np.random.Generator, days: int) -> Floats:
    wave = np.log(1.2) * np.cos(2 * np.pi * (FIRST_HOUR + np.arange(days * HOURS)) / HOURS)
    slow_days = np.repeat(autoregressive(random, days, 0.5, 0.05), HOURS)
    return np.asarray(wave + slow_days + autoregressive(random, days * HOURS, 0.8, 0.15))


def covered(random: np.random.Generator, days: int) -> bool:
    """Return whether the 95% interval of the median contains it."""
    (speed,) = log_of(random, days, SimulatedTarget("a/gpt")).speeds()
    low, high = speed.total_tps.interval("p50")
    return (low or 0) <= SPEED <= (high or np.inf)


def named(random: np.random.Generator, days: int, other: SimulatedTarget) -> bool:
    """Return whether the comparison with another target names one as faster: the other one, if it
    is faster."""
    traffic = log_of(random, days, SimulatedTarget("a/gpt", own=other.own), other)
    (found,) = traffic.comparisons(traffic.speeds())
    as_faster = found.first if (found.ratio or 0) > 1 else found.other
    return found.real and (other.faster == 1 or as_faster == other.name)


def drifts(
    random: np.random.Generator, days: int, alike: float, moved: float = 1.0, last: int = 0
) -> bool:
    """Return whether days with a scatter of 5% show a drift. `moved`: speed of the `last` days, or
    of the second half, / earlier speed."""
    logs = autoregressive(random, days, alike, 0.05)
    logs[days - last if last else days // 2 :] += np.log(moved)
    found = drift_of(dict(enumerate(SPEED * np.exp(logs))), "day")
    return found is not None and found.p_value < 0.05


def share_of(judge: Callable[..., bool], *arguments: object, logs: int = LOGS) -> float:
    return sum(judge(np.random.default_rng([log, 4]), *arguments) for log in range(logs)) / logs


def main() -> None:
    """Print the table."""
    print("| claim | days | share of logs |\n|---|---|---|")
    for days in (2, 7, 14, 30):
        print(
            f"| the 95% interval contains the median | {days} | {share_of(covered, days):.2f} |",
            flush=True,
        )
    cases = {
        "equally fast, one is used at night only: one named as faster": SimulatedTarget(
            "b/gpt", night_only=True
        ),
        "equally fast, same slow hours: one named as faster": SimulatedTarget("b/gpt"),
        "equally fast, slow hours of their own: one named as faster": SimulatedTarget(
            "b/gpt", own=True
        ),
        "one is 10% faster and used at night only: named as faster": SimulatedTarget(
            "b/gpt", faster=1.1, night_only=True
        ),
    }
    for name, other in cases.items():
        for days in (7, 14, 30):
            print(f"| {name} | {days} | {share_of(named, days, other):.2f} |", flush=True)
    for alike in (0.0, 0.5):
        for moved, name in (
            (1.0, "no drift: drift named"),
            (1.1, "10% faster in the second half: drift named"),
        ):
            share = share_of(drifts, 28, alike, moved, logs=1000)
            print(f"| correlation of days {alike}, {name} | 28 | {share:.2f} |", flush=True)
        share = share_of(drifts, 14, alike, 1.27, 4, logs=1000)
        name = "27% in the last four days: drift named"
        print(f"| correlation of days {alike}, {name} | 14 | {share:.2f} |", flush=True)


if __name__ == "__main__":
    main()
