"""How often a watch reports a false drift, and after how many rounds it finds a change: the tables
of docs/reference/coverage.md.

Rounds are simulated: their logarithm is an AR(1) process, a pattern of the day, weekends and
outliers. `python -m benchmarks.watching` prints the tables in Markdown, in about ten minutes;
tests/analysis/test_control_chart.py checks them with fewer watches.
"""

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from splitsecond.benchmark.statistics.control_chart import ControlChart
from splitsecond.benchmark.statistics.times_model import TimesModel

Floats = npt.NDArray[np.float64]
LEVEL_MS = 200.0
THURSDAY, SATURDAY = 3, 5
"""Days of the week, from Monday. 1970 began on a Thursday."""
LATE = 30 * 24
"""Hours after which a watch knows weekends."""
FIRST_HOURS, SHIFT_HOURS = 48, 20
"""Hours of `first_days`, and those before its change."""


class Noise(Struct, frozen=True):
    """How rounds `every_h` hours apart differ: standard deviation `scatter`, correlation `alike` of
    an hour with the next.

    `day`: half the difference of day and night, in a sine or (`steps`) two levels. `tails`: degrees
    of freedom of Student's t. `outliers`: share of rounds that take 35 to 200% longer. `weekend`:
    change on weekends. `beyond`: false drifts above the goal of 2 in 1,000 rounds that a short
    simulation may have.
    """

    name: str
    scatter: float = 0.06
    alike: float = 0.0
    day: float = 0.0
    steps: bool = False
    tails: float = 0.0
    outliers: float = 0.0
    weekend: float = 0.0
    beyond: float = 0.0
    every_h: float = 1.0

    def drawn(self, rounds: int, random: np.random.Generator, start: int = 0) -> Floats:
        """Return the logarithms of rounds, around 0. `start`: hour of the first one since 1970."""
        own = (
            random.standard_t(self.tails, rounds) if self.tails else random.standard_normal(rounds)
        )
        alike, hours = self.alike**self.every_h, start + self.every_h * np.arange(rounds)
        for at in range(1, rounds):
            own[at] = alike * own[at - 1] + math.sqrt(1 - alike**2) * own[at]
        wave = np.sin(2 * np.pi * (hours / 24 + random.random()))
        days = math.log1p(self.day) * (np.sign(wave) if self.steps else wave)
        slow = (random.random(rounds) < self.outliers) * random.uniform(0.3, 1.1, rounds)
        weekday = (hours // 24 + THURSDAY) % 7
        free = math.log1p(self.weekend) * (weekday >= SATURDAY)
        return np.asarray(self.scatter * own + days + slow + free)


NOISES = (
    Noise("independent, 4%", 0.04),
    Noise("independent, 8%", 0.08),
    Noise("correlation 0.5, 8%", 0.08, alike=0.5),
    Noise("correlation 0.8, 8%", 0.08, alike=0.8),
    Noise("days and nights ±20%, 4%", 0.04, day=0.2),
    Noise("days and nights ±20% in two steps, 4%", 0.04, day=0.2, steps=True),
    Noise("days and nights ±20%, correlation 0.8, 6%", 0.06, alike=0.8, day=0.2),
    Noise("days and nights ±20%, correlation 0.8, 8%", 0.08, alike=0.8, day=0.2, beyond=1),
    Noise("weekends 15% faster, 4%", 0.04, weekend=-0.15),
    Noise("weekends 30% faster, 4%", 0.04, weekend=-0.3),
    Noise(
        "weekends 15% faster, days and nights ±20%, correlation 0.8, 6%",
        0.06,
        alike=0.8,
        day=0.2,
        weekend=-0.15,
        beyond=1,
    ),
    Noise("Student's t, 4 degrees of freedom, 6%", 0.06, tails=4),
    Noise(
        "days and nights ±8%, correlation 0.5, 6%, outliers in 2%",
        0.06,
        alike=0.5,
        day=0.08,
        outliers=0.02,
        beyond=1,
    ),
)


FIRST_NIGHTS = (
    ("none", 0.0, False),
    ("±20%", 0.2, False),
    ("±40%", 0.4, False),
    ("±60%", 0.6, False),
    ("±40% in two steps", 0.4, True),
)


def false_drifts(noise: Noise, *, watches: int, rounds: int) -> tuple[float, float]:
    """Return the numbers of drifts per 1,000 rounds without any change: of all rounds, and of those
    after `LATE`.

    The watches begin on all days of the week.
    """
    found = late = 0
    for watch in range(watches):
        chart: ControlChart[float] = ControlChart(TimesModel())
        start = 24 * (watch % 7)
        for at, value in enumerate(noise.drawn(rounds, np.random.default_rng([watch, 1]), start)):
            chart.add(start + at, LEVEL_MS * math.exp(value))
        found += len(chart.drifts)
        late += sum(drift.since >= LATE for drift in chart.drifts)
    return found / (watches * rounds) * 1000, late / (watches * (rounds - LATE)) * 1000


def first_days(noise: Noise, *, watches: int, shift: float = 0.0) -> tuple[float, float]:
    """Return of the first two days of a watch the drifts, and the median hours until a change after
    `SHIFT_HOURS` was found."""
    rounds = round(FIRST_HOURS / noise.every_h)
    drifts, hours = 0, []
    for watch in range(watches):
        chart: ControlChart[float] = ControlChart(TimesModel())
        values, found_h = noise.drawn(rounds, np.random.default_rng([watch, 4])), math.inf
        for number, value in enumerate(values):
            after_h = number * noise.every_h - SHIFT_HOURS
            moved = value + math.log1p(shift) * (after_h >= 0)
            began = chart.add(number * noise.every_h, LEVEL_MS * math.exp(moved)).began
            if began and after_h >= 0:
                found_h = min(found_h, after_h)
        drifts += len(chart.drifts)
        hours.append(found_h)
    return drifts / watches, float(np.median(hours))


def rounds_until_found(
    noise: Noise,
    *,
    shift: float = 0.0,
    creep: float = 0.0,
    before: int,
    watches: int,
    most: int = 120,
    weekday: int | None = None,
) -> list[int]:
    """Return for each watch the number of rounds after which a change was found, at most `most` +
    1.

    `before`: rounds without a change. `shift`: relative change. `creep`: relative change with every
    round. `weekday`: on which the watches begin, from Monday; None: on all days in turn.
    """
    found = []
    for watch in range(watches):
        start = 24 * ((watch if weekday is None else weekday - THURSDAY) % 7)
        values = noise.drawn(before + most, np.random.default_rng([watch, 2]), start)
        values[before:] += math.log1p(shift) + math.log1p(creep) * np.arange(1, most + 1)
        chart: ControlChart[float] = ControlChart(TimesModel())
        rounds = (
            chart.add(start + at, LEVEL_MS * math.exp(value)).began
            for at, value in enumerate(values)
        )
        found.append(
            next(
                (at - before + 1 for at, began in enumerate(rounds) if began and at >= before),
                most + 1,
            )
        )
    return found


def creep_limit(
    scatter: float, creep: float, *, false: float = 1e-4, watches: int = 300
) -> list[int]:
    """Return for each watch the rounds until the best possible test finds a creep.

    It knows the level, the scatter and the slope, and not the start: the likelihood ratio of the
    most likely start (Lorden, Annals of Mathematical Statistics, 1971). Of quiet rounds, `false` of
    them raise a false alarm.
    """
    random, slope = np.random.default_rng(3), math.log1p(creep)
    quiet = _evidence(scatter * random.standard_normal((60, 3000)), slope, scatter)
    limit = next(h for h in np.arange(3, 12, 0.1) if _alarms(quiet, h) <= false)
    crept = scatter * random.standard_normal((watches, 320))
    crept[:, 120:] += slope * np.arange(1, 201)
    found = _evidence(crept, slope, scatter)[:, 120:] > limit
    return [int(at) + 1 for at in found.argmax(axis=1)]


def _evidence(values: Floats, slope: float, scatter: float) -> Floats:
    """Return after each round of each watch the logarithm of the likelihood ratio of a creep, of
    the best start."""
    by_start, best = np.zeros_like(values), np.empty_like(values)
    for at in range(values.shape[1]):
        expected = slope * np.arange(at + 1, 0, -1)
        by_start[:, : at + 1] += (expected * values[:, at : at + 1] - expected**2 / 2) / scatter**2
        best[:, at] = by_start[:, : at + 1].max(axis=1)
    return best


def _alarms(evidence: Floats, limit: float) -> float:
    """Return the false alarms for each round until the first one of each watch."""
    over = evidence > limit
    rounds = np.where(over.any(axis=1), over.argmax(axis=1), evidence.shape[1])
    return float(over.any(axis=1).sum() / rounds.sum())


def main() -> None:
    """Print the tables."""
    print("| rounds | false drifts in 1,000 rounds | after day 30 |\n|---|---|---|")
    for noise in NOISES:
        found, late = false_drifts(noise, watches=42, rounds=1000)
        print(f"| {noise.name} | {found:.1f} | {late:.1f} |", flush=True)
    print(
        "\n| change | scatter | median rounds until found | nine in ten within |\n|---|---|---|---|"
    )
    for name, shift, creep in (
        ("10%", 0.1, 0.0),
        ("20%", 0.2, 0.0),
        ("50%", 0.5, 0.0),
        ("0.1% a round", 0.0, 0.001),
    ):
        for scatter in (0.04, 0.06, 0.08):
            rounds = rounds_until_found(
                Noise("", scatter), shift=shift, creep=creep, before=168, watches=120
            )
            print(
                f"| {name} | {scatter:.0%} | {np.median(rounds):.0f} | "
                f"{np.quantile(rounds, 0.9):.0f} |",
                flush=True,
            )
    print("\n| change | scatter | median rounds until found | not within 240 |\n|---|---|---|---|")
    for shift, watches in ((0.1, 500), (0.2, 120)):
        for scatter in (0.06, 0.08):
            correlated = Noise("", scatter, alike=0.8, day=0.2)
            rounds = rounds_until_found(
                correlated, shift=shift, before=168, watches=watches, most=240
            )
            never = np.mean(np.array(rounds) > 240)
            print(
                f"| {shift:.0%} | {scatter:.0%} | {np.median(rounds):.0f} | {never:.0%} |",
                flush=True,
            )
    print(
        "\n| nights of the first two days | false drifts, hourly | every 10 minutes | "
        "hours until twice the time is found, hourly | every 10 minutes |\n|---|---|---|---|---|"
    )
    for name, day, steps in FIRST_NIGHTS:
        hourly = Noise("", alike=0.8, day=day, steps=steps)
        often = replace(hourly, every_h=1 / 6)
        figures = [
            *(first_days(each, watches=60)[0] for each in (hourly, often)),
            *(first_days(each, watches=60, shift=1.0)[1] for each in (hourly, often)),
        ]
        print(f"| {name} | " + " | ".join(f"{each:.1f}" for each in figures) + " |", flush=True)
    best = ", ".join(
        f"{np.median(creep_limit(scatter, 0.001)):.0f}" for scatter in (0.04, 0.06, 0.08)
    )
    print(
        f"\nThe best possible test finds 0.1% a round in {best} rounds (median, 4%, 6% and 8% "
        f"scatter)."
    )


if __name__ == "__main__":
    main()
