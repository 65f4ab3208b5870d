"""How often a watch reports a false drift, and after how many rounds it finds a change: the tables of docs/watch.md.

Rounds are simulated: their logarithm is an AR(1) process, a pattern of the day and outliers. `python -m
benchmarks.watching` prints the tables in Markdown, in about two minutes; tests/analysis/test_control_chart.py checks
them with fewer watches.
"""

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from splitsecond.benchmark.statistics.control_chart import ControlChart, TimesModel

Floats = npt.NDArray[np.float64]
LEVEL_MS = 200.0


class Noise(Struct, frozen=True):
    """How hourly rounds differ: standard deviation `scatter`, correlation `alike` with the round before.

    `day`: half the difference of day and night, in a sine or (`steps`) two levels. `tails`: degrees of freedom of
    Student's t. `outliers`: share of rounds that take 35 to 200% longer. `beyond`: false drifts above the goal of 2 in
    1,000 rounds that a short simulation may have.
    """

    name: str
    scatter: float = 0.06
    alike: float = 0.0
    day: float = 0.0
    steps: bool = False
    tails: float = 0.0
    outliers: float = 0.0
    beyond: float = 0.0

    def drawn(self, rounds: int, random: np.random.Generator) -> Floats:
        """Return the logarithms of rounds, around 0."""
        own = random.standard_t(self.tails, rounds) if self.tails else random.standard_normal(rounds)
        for at in range(1, rounds):
            own[at] = self.alike * own[at - 1] + math.sqrt(1 - self.alike**2) * own[at]
        wave = np.sin(2 * np.pi * (np.arange(rounds) / 24 + random.random()))
        days = math.log1p(self.day) * (np.sign(wave) if self.steps else wave)
        slow = (random.random(rounds) < self.outliers) * random.uniform(0.3, 1.1, rounds)
        return np.asarray(self.scatter * own + days + slow)


NOISES = (
    Noise("independent, 4%", 0.04),
    Noise("independent, 8%", 0.08),
    Noise("correlation 0.5, 8%", 0.08, alike=0.5),
    Noise("correlation 0.8, 8%", 0.08, alike=0.8),
    Noise("days and nights ±20%, 4%", 0.04, day=0.2),
    Noise("days and nights ±20% in two steps, 4%", 0.04, day=0.2, steps=True),
    Noise("days and nights ±20%, correlation 0.8, 6%", 0.06, alike=0.8, day=0.2),
    Noise("Student's t, 4 degrees of freedom, 6%", 0.06, tails=4),
    Noise(
        "days and nights ±8%, correlation 0.5, 6%, outliers in 2%", 0.06, alike=0.5, day=0.08, outliers=0.02, beyond=1
    ),
)


def false_drifts(noise: Noise, *, watches: int, rounds: int) -> float:
    """Return the number of drifts per 1,000 rounds without any change."""
    found = 0
    for watch in range(watches):
        chart: ControlChart[float] = ControlChart(TimesModel())
        for at, value in enumerate(noise.drawn(rounds, np.random.default_rng([watch, 1]))):
            chart.add(at, LEVEL_MS * math.exp(value))
        found += len(chart.drifts)
    return found / (watches * rounds) * 1000


def rounds_until_found(
    scatter: float, *, shift: float = 0.0, creep: float = 0.0, before: int, watches: int, most: int = 120
) -> list[int]:
    """Return for each watch the number of rounds after which a change was found, at most `most` + 1.

    `before`: rounds without a change. `shift`: relative change. `creep`: relative change with every round.
    """
    found = []
    for watch in range(watches):
        values = scatter * np.random.default_rng([watch, 2]).standard_normal(before + most)
        values[before:] += math.log1p(shift) + math.log1p(creep) * np.arange(1, most + 1)
        chart: ControlChart[float] = ControlChart(TimesModel())
        rounds = (chart.add(at, LEVEL_MS * math.exp(value)).began for at, value in enumerate(values))
        found.append(next((at - before + 1 for at, began in enumerate(rounds) if began and at >= before), most + 1))
    return found


def creep_limit(scatter: float, creep: float, *, false: float = 1e-4, watches: int = 300) -> list[int]:
    """Return for each watch the rounds until the best possible test finds a creep.

    It knows the level, the scatter and the slope, and not the start: the likelihood ratio of the most likely start
    (Lorden, Annals of Mathematical Statistics, 1971). Of quiet rounds, `false` of them raise a false alarm.
    """
    random, slope = np.random.default_rng(3), math.log1p(creep)
    quiet = _evidence(scatter * random.standard_normal((60, 3000)), slope, scatter)
    limit = next(h for h in np.arange(3, 12, 0.1) if _alarms(quiet, h) <= false)
    crept = scatter * random.standard_normal((watches, 320))
    crept[:, 120:] += slope * np.arange(1, 201)
    found = _evidence(crept, slope, scatter)[:, 120:] > limit
    return [int(at) + 1 for at in found.argmax(axis=1)]


def _evidence(values: Floats, slope: float, scatter: float) -> Floats:
    """Return after each round of each watch the logarithm of the likelihood ratio of a creep, of the best start."""
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
    """Print both tables."""
    print("| rounds | false drifts in 1,000 rounds |\n|---|---|")
    for noise in NOISES:
        print(f"| {noise.name} | {false_drifts(noise, watches=50, rounds=1000):.1f} |")
    print("\n| change | scatter | median rounds until found | nine in ten within |\n|---|---|---|---|")
    for name, shift, creep in (("10%", 0.1, 0.0), ("20%", 0.2, 0.0), ("50%", 0.5, 0.0), ("0.1% a round", 0.0, 0.001)):
        for scatter in (0.04, 0.06, 0.08):
            found = rounds_until_found(scatter, shift=shift, creep=creep, before=168, watches=200)
            print(f"| {name} | {scatter:.0%} | {np.median(found):.0f} | {np.quantile(found, 0.9):.0f} |")
    best = ", ".join(f"{np.median(creep_limit(scatter, 0.001)):.0f}" for scatter in (0.04, 0.06, 0.08))
    print(f"\nThe best possible test finds 0.1% a round in {best} rounds (median, 4%, 6% and 8% scatter).")


if __name__ == "__main__":
    main()
