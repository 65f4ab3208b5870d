"""How often intervals, comparisons and reports hold on data whose truth is known: the table of
docs/reference/coverage.md.

Requests share slow minutes: the logarithm of a time is a slow AR(1) process (correlation time τ,
share ρ of the variance) plus a part of its own. Open loops are an M/M/c queue (`open_loop`).
`python -m benchmarks.coverage` prints the tables in Markdown, in about twenty minutes;
tests/analysis/test_coverage.py checks a few of their cells with fewer repeats. Those of sessions:
benchmarks/session_coverage.py.
"""

import argparse
import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from benchmarks import open_loop
from benchmarks.processes import add_processes
from splitsecond.benchmark.load.plan import expected_s
from splitsecond.benchmark.rows.round_spread import RoundSpread
from splitsecond.benchmark.runs.planning import plan_run
from splitsecond.benchmark.runs.settings import BenchSettings
from splitsecond.log.statistics.sample_comparison import SampleComparison, compare_samples, holm
from splitsecond.log.statistics.summary import FigureSample, Floats, summary_of

SIGMA = 0.4
"""Standard deviation of the logarithm of a time."""
STEP_S = 0.15
"""Time from one request to the next: 32 in flight, answers of 5 s."""
ROWS, TESTS = 15, 4
"""Rows of a report, and tests in each."""
CHANGED, CHANGE = 5, 1.5
"""Tests of a report with a true difference, and how much slower they are."""
Layout = tuple[int, int]
"""Requests of a row, and the rounds that they are measured in."""
LAYOUTS: tuple[Layout, ...] = ((50, 5), (50, 6), (50, 8), (200, 5), (200, 6), (200, 8), (1000, 8))
REPORTED: tuple[Layout, ...] = ((50, 5), (50, 6), (50, 8), (200, 6))
UNEQUAL: tuple[tuple[int, int], ...] = ((80, 800), (200, 1000), (200, 200))
"""Requests of two runs whose p95 are compared."""
SPELL = 2.5
"""How many times as long a request takes in a slow spell."""
PARETO = 2.5
"""Exponent of a heavy tail."""
Z95 = 1.6448536269514722
"""95% point of the normal distribution."""


class Scatter(Struct, frozen=True):
    """How requests scatter: `share` of the variance changes slowly, with correlation time `tau_s`.

    `queue`: half of the slow states, at random, take twice as long instead (a queue that is there
    or not). `spells`: one part in so many of the time, in spells of random length, takes `SPELL`
    times as long instead. `heavy`: times have a Pareto tail instead.
    """

    name: str
    tau_s: float = 1.0
    share: float = 0.0
    queue: bool = False
    spells: int = 0
    heavy: bool = False

    def rounds(
        self, random: np.random.Generator, repeats: int, rounds: int, size: int, apart_s: float
    ) -> Floats:
        """Return times around a median of 1, of shape (repeats, rounds, size).

        `apart_s`: from the start of a round to the start of the next.
        """
        if self.heavy:
            return np.asarray(1 + random.pareto(PARETO, (repeats, rounds, size)))
        step = math.exp(-STEP_S / self.tau_s)
        pause = math.exp(-max(apart_s - STEP_S * (size - 1), STEP_S) / self.tau_s)
        keeps = [pause if at % size == 0 else step for at in range(rounds * size)]
        slow = (self._in_spells if self.spells else _autoregressive)(random, repeats, keeps)
        slow = slow.reshape(repeats, rounds, size)
        own = random.standard_normal(slow.shape)
        if self.spells:
            return np.asarray(np.exp(SIGMA * own / 2 + math.log(SPELL) * slow))
        if self.queue:
            return np.asarray(np.exp(SIGMA * own / 2 + math.log(2) * (slow > 0)))
        return np.asarray(
            np.exp(SIGMA * (math.sqrt(self.share) * slow + math.sqrt(1 - self.share) * own))
        )

    def truth(self, q: float) -> float:
        """Return the true quantile."""
        z = {0.5: 0.0, 0.95: Z95}[q]
        if self.heavy:
            return float((1 - q) ** (-1 / PARETO))
        if self.spells:
            usual = np.exp(SIGMA / 2 * NORMALS[::10])
            return float(
                np.quantile(np.concatenate((np.repeat(usual, self.spells - 1), SPELL * usual)), q)
            )
        if not self.queue:
            return math.exp(SIGMA * z)
        drawn = np.concatenate((SIGMA / 2 * NORMALS, SIGMA / 2 * NORMALS + math.log(2)))
        return math.exp(float(np.quantile(drawn, q)))

    def _in_spells(
        self, random: np.random.Generator, repeats: int, keeps: Sequence[float]
    ) -> Floats:
        drawn, share = random.random((repeats, len(keeps))), 1 / self.spells
        slow = (drawn < share).astype(np.float64)
        for at, keep in enumerate(keeps[1:], 1):
            slow[:, at] = drawn[:, at] < share + (slow[:, at - 1] - share) * keep
        return slow


def _autoregressive(random: np.random.Generator, repeats: int, keeps: Sequence[float]) -> Floats:
    slow = random.standard_normal((repeats, len(keeps)))
    for at, keep in enumerate(keeps[1:], 1):
        slow[:, at] = keep * slow[:, at - 1] + math.sqrt(1 - keep * keep) * slow[:, at]
    return slow


NORMALS = np.sort(np.random.default_rng(0).standard_normal(400_000))
SCATTERS = (
    Scatter("independent"),
    Scatter("τ 5 s, ρ .3", 5, 0.3),
    Scatter("τ 60 s, ρ .1", 60, 0.1),
    Scatter("τ 60 s, ρ .3", 60, 0.3),
    Scatter("queue, τ 60 s", 60, queue=True),
    Scatter("τ 300 s, ρ .3", 300, 0.3),
)


SPELLS = Scatter("60 s slow, 240 s not", 48, spells=5)
PLANNED = (SCATTERS[0], SCATTERS[3], SPELLS, SCATTERS[4], Scatter("heavy tails", heavy=True))
UNSEEN_ROUNDS = (6, 8, 16, 25)
RESPONSE_S, TTFT_S = 3.0, 0.2
"""Answer of the targets whose run is planned, at concurrency 8: a run of 50 requests then takes
about 40 s."""


class Planned(Struct, frozen=True):
    """A run of two targets as `bench` plans it."""

    options: str
    requests: int | None = None
    over_s: float | None = None
    quick: bool = False

    @property
    def layout(self) -> tuple[int, RoundSpread]:
        """The requests of a row, and how its rounds lie in time."""
        settings = BenchSettings(
            concurrency=8,
            requests=self.requests,
            over=self.over_s,
            quick=self.quick,
        )
        plan = plan_run(settings, {"a": "http://a", "b": "http://b"}, RESPONSE_S)
        busy_s = (
            sum(expected_s(block, ttft_s=TTFT_S, response_s=RESPONSE_S) for block in plan.lanes[0])
            / plan.rounds
        )
        apart_s = max(busy_s, plan.apart_s)
        spread = RoundSpread(apart_s=apart_s, rounds=plan.rounds, period_s=apart_s * plan.rounds)
        return plan.conditions[0].requests, spread


PLANS = (
    Planned("none"),
    Planned("`-n 200`", 200),
    Planned("`--over 15m`", over_s=900),
    Planned("`--over 15m -n 200`", 200, 900),
    Planned("`--over 45m -n 200`", 200, 2700),
    Planned("`--quick`", quick=True),
    Planned("`--quick -n 200`", 200, quick=True),
)


def of_plan(
    scatter: Scatter, repeats: int, plan: Planned, seed: int = 6
) -> tuple[float, float, float]:
    """Return the coverage of the intervals of p50 and p95, and how often a test of two equal
    targets has one ahead."""
    requests, spread = plan.layout
    random, ahead = np.random.default_rng(seed), 0
    hits = {"p50": 0, "p95": 0}
    truths = {"p50": scatter.truth(0.5), "p95": scatter.truth(0.95)}
    rounds, size, apart_s = spread.rounds, requests // spread.rounds, spread.apart_s or 0.0
    one, other = (scatter.rounds(random, repeats, rounds, size, apart_s) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        found = summary_of(sample_of(a), of_round=spread.requests_of_round)
        for name, truth in truths.items():
            low, high = found.ci95[name]
            hits[name] += (low or 0.0) <= truth <= (math.inf if high is None else high)
        ahead += compare_samples(sample_of(a), sample_of(b), {"p50": 0.5}, paired=True)["p50"].real
    return hits["p50"] / repeats, hits["p95"] / repeats, ahead / repeats


def unseen(share: float, rounds: int) -> float:
    """Return how often a state that holds this share of the time is in no round of a run."""
    return (1 - share) ** rounds


def sample_of(times: Floats) -> FigureSample:
    """Return times by round as a sample."""
    rounds, size = times.shape
    return FigureSample(times.ravel(), np.repeat(np.arange(1, rounds + 1), size), True)


def covered(scatter: Scatter, repeats: int, layout: Layout, seed: int = 1) -> dict[str, float]:
    """Return how often the 95% intervals of p50 and p95 contain the truth, with rounds 120 s
    apart."""
    n, rounds = layout
    hits = dict.fromkeys(("p50", "p95"), 0)
    truths = {name: scatter.truth(q) for name, q in (("p50", 0.5), ("p95", 0.95))}
    for times in scatter.rounds(np.random.default_rng(seed), repeats, rounds, n // rounds, 120.0):
        found = summary_of(sample_of(times))
        for name, truth in truths.items():
            low, high = found.ci95[name]
            hits[name] += (low or 0.0) <= truth <= (math.inf if high is None else high)
    return {name: hit / repeats for name, hit in hits.items()}


def comparisons(
    scatter: Scatter,
    repeats: int,
    layout: Layout,
    *,
    slower: float = 1.0,
    paired: bool = True,
    seed: int = 2,
) -> list[SampleComparison]:
    """Return comparisons of two medians, the second `slower` times as long, with pauses of 3 τ
    between the rounds."""
    n, rounds = layout
    random, size = np.random.default_rng(seed), n // rounds
    one, other = (
        scatter.rounds(random, repeats, rounds, size, 3 * scatter.tau_s + STEP_S * size)
        for _ in range(2)
    )
    return [
        compare_samples(sample_of(a), sample_of(b * slower), {"p50": 0.5}, paired=paired)["p50"]
        for a, b in zip(one, other, strict=True)
    ]


def found_real(scatter: Scatter, repeats: int, layout: Layout, *, slower: float = 1.0) -> float:
    """Return how often a single comparison finds a difference."""
    return sum(c.real for c in comparisons(scatter, repeats, layout, slower=slower)) / repeats


def false_reports(scatter: Scatter, repeats: int, layout: Layout, seed: int = 3) -> float:
    """Return how often a comparison of a run with a run like it reports any difference."""
    each = ROWS * TESTS
    found = comparisons(scatter, repeats * each, layout, paired=False, seed=seed)
    reports = (holm(dict(enumerate(found[at : at + each]))) for at in range(0, len(found), each))
    return sum(any(c.real for c in report.values()) for report in reports) / repeats


def found_in_reports(scatter: Scatter, repeats: int, layout: Layout) -> float:
    """Return the share found of `CHANGED` true differences in a report whose other tests are of
    like rows."""
    same = ROWS * TESTS - CHANGED
    alike = comparisons(scatter, repeats * same, layout, paired=False, seed=3)
    changed = comparisons(scatter, repeats * CHANGED, layout, slower=CHANGE, paired=False, seed=4)
    found = 0
    for at in range(repeats):
        report = changed[at * CHANGED :][:CHANGED] + alike[at * same :][:same]
        judged = holm(dict(enumerate(report)))
        found += sum(judged[number].real for number in range(CHANGED))
    return found / (repeats * CHANGED)


def unequal_false(scatter: Scatter, repeats: int, layout: tuple[int, int], seed: int = 5) -> float:
    """Return how often p95 of two runs like each other differ, with so many requests in their 8
    rounds."""
    random = np.random.default_rng(seed)
    sides = (
        scatter.rounds(random, repeats, 8, n // 8, 3 * scatter.tau_s + STEP_S * n // 8)
        for n in layout
    )
    return (
        sum(
            compare_samples(sample_of(a), sample_of(b), {"p95": 0.95}, paired=False)["p95"].real
            for a, b in zip(*sides, strict=True)
        )
        / repeats
    )


def table(layouts: Sequence[Layout], cell: Callable[[Scatter, Layout], str]) -> None:
    """Print a table with a row for each scatter and a column for each layout."""
    print(
        "| scatter | " + " | ".join(f"n = {n:,} in {rounds} rounds" for n, rounds in layouts) + " |"
    )
    print("|---" * (len(layouts) + 1) + "|")
    for scatter in SCATTERS:
        print(
            f"| {scatter.name} | " + " | ".join(cell(scatter, layout) for layout in layouts) + " |",
            flush=True,
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2000, help="repeats of each cell")
    parser.add_argument(
        "--plans", action="store_true", help="only the table of runs as they are planned"
    )
    add_processes(parser)
    asked = parser.parse_args()
    repeats: int = asked.repeats

    def coverage(scatter: Scatter, layout: Layout) -> str:
        found = covered(scatter, repeats, layout)
        return f"{found['p50']:.2f} / {found['p95']:.2f}"

    def power(scatter: Scatter, layout: Layout) -> str:
        false, true = (found_real(scatter, repeats, layout, slower=slower) for slower in (1.0, 1.2))
        return f"{false:.3f} / {true:.2f}"

    print(
        "Runs as they are planned: coverage of p50 / p95, and share of equal pairs with one ahead\n"
    )
    print(
        "| options | rounds, s apart | named first | "
        + " | ".join(scatter.name for scatter in PLANNED)
        + " |"
    )
    print("|---" * (len(PLANNED) + 3) + "|")
    for plan in PLANS:
        _, spread = plan.layout
        found = [of_plan(scatter, repeats, plan) for scatter in PLANNED]
        shown = " | ".join(f"{p50:.2f} / {p95:.2f}, {ahead:.3f}" for p50, p95, ahead in found)
        named = "yes" if spread.claims else "no"
        print(
            f"| {plan.options} | {spread.rounds}, {spread.apart_s:.0f} | {named} | {shown} |",
            flush=True,
        )
    print(
        "\nOpen loops: error of p95, coverage of its interval, share of runs that are not "
        "stationary\n"
    )
    open_loop.print_table(max(repeats // 20, 1), asked.processes)
    if asked.plans:
        return
    print("\nRuns without a round in a state that holds a share of the time\n")
    print("| share | " + " | ".join(f"{rounds} rounds" for rounds in UNSEEN_ROUNDS) + " |")
    print("|---" * (len(UNSEEN_ROUNDS) + 1) + "|")
    for share in (0.5, 0.2, 0.1):
        print(
            f"| {share:.0%} | "
            + " | ".join(f"{unseen(share, rounds):.1%}" for rounds in UNSEEN_ROUNDS)
            + " |"
        )

    print("\nCoverage of the 95% interval, p50 / p95, rounds 120 s apart\n")
    table(LAYOUTS, coverage)
    print(
        "\nOne comparison of two targets of one run: false differences / "
        "found at +20%, pauses of 3 τ\n"
    )
    table(LAYOUTS, power)

    print("\np95 of two runs of 8 rounds with different numbers of requests: false differences\n")
    print("| scatter | " + " | ".join(f"{a:,} and {b:,}" for a, b in UNEQUAL) + " |")
    print("|---" * (len(UNEQUAL) + 1) + "|")
    for scatter in SCATTERS:
        cells = (f"{unequal_false(scatter, repeats, sizes):.3f}" for sizes in UNEQUAL)
        print(f"| {scatter.name} | {' | '.join(cells)} |", flush=True)

    def reported(scatter: Scatter, layout: Layout) -> str:
        false, true = (
            false_reports(scatter, repeats // 8, layout),
            found_in_reports(scatter, repeats // 20, layout),
        )
        return f"{false:.3f} / {true:.2f}"

    print(
        f"\nTwo runs, {ROWS} rows with {TESTS} tests each: share of reports of like runs with any "
        f"difference / "
        f"share found of {CHANGED} differences of {CHANGE - 1:.0%}\n"
    )
    table(REPORTED, reported)


if __name__ == "__main__":
    main()
