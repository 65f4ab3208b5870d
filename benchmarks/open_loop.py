"""How close the p95 of an open loop comes to that of a queue in the long run: the table of
docs/reference/coverage.md.

A round of an open loop begins with an empty server, so the queue has to grow to its steady length.
The real planner plans runs at a rate; an M/M/c queue answers them without a clock
(`capacity_truth`); the real findings judge them. The truth is Erlang's.

`python -m benchmarks.open_loop` prints the table in Markdown, in about ten minutes of one core, as
`python -m benchmarks.coverage --plans` does after its own; `--loads` and `--columns` print some of
its cells. tests/analysis/test_open_loop.py checks a few.
"""

import argparse
import math
from collections.abc import Sequence
from random import Random
from statistics import median

from msgspec import Struct

from benchmarks.capacity_truth import PAUSE_NS, QueueServer, sent
from benchmarks.processes import add_processes, in_processes
from splitsecond.benchmark.load.plan import PlannedLoad, PlanSettings, make_plan
from splitsecond.benchmark.rows.condition import condition_findings
from splitsecond.benchmark.rows.records import AskedCondition, ConditionFindings
from splitsecond.benchmark.rows.stationary import NOT_STATIONARY
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import Observation

SLOTS, SERVICE_S = 8, 2.0
LOADS = (0.7, 0.8, 0.85, 0.95)


class Plan(Struct, frozen=True):
    """Options of a run. `warmup`: that of each round, in responses; None: the default."""

    requests: int
    warmup: float | None = None

    @property
    def options(self) -> str:
        """The options as a user gives them."""
        warm = "" if self.warmup is None else f" --warmup` of {self.warmup:g} responses"
        return f"`-n {self.requests:,}{warm or '`'}"


PLANS = (Plan(200), Plan(1000), Plan(200, 80))


class Case(Struct, frozen=True):
    """One run of a cell of the table."""

    load: float
    plan: Plan
    seed: int


class Row(Struct, frozen=True):
    """What one run says: p95 of the wait, whether its interval has the truth, and whether it is not
    stationary."""

    p95_s: float
    covers: bool
    flagged: bool
    requests: int


class Cell(Struct, frozen=True):
    """Of many runs: the median error of p95 of the wait, the coverage of its 95% interval, and the
    share of runs that are called not stationary. `requests`: measured ones of a run."""

    error: float
    coverage: float
    flagged: float
    requests: int


def true_p95_s(load: float, slots: int = SLOTS, service_s: float = SERVICE_S) -> float:
    """Return the wait that 95% of the requests do not exceed in the long run, by Erlang's C
    formula."""
    busy = load * slots
    blocked = 1.0
    for number in range(1, slots + 1):
        blocked = busy * blocked / (number + busy * blocked)
    waiting = blocked / (1 - load * (1 - blocked))
    return max(math.log(waiting / 0.05), 0.0) / (slots * (1 - load)) * service_s


def measured(load: float, plan: Plan, seed: int) -> ConditionFindings:
    """Return the row of a run."""
    rate = load * SLOTS / SERVICE_S
    warmups = None if plan.warmup is None else math.ceil(rate * SERVICE_S * plan.warmup)
    planned = make_plan(
        {"t": "http://t"},
        [PlannedLoad(rate=rate)],
        PlanSettings(
            requests=plan.requests,
            warmups=warmups,
            response_s=SERVICE_S,
            seed=seed,
        ),
    )
    observations: list[Observation] = []
    now_ns = NS_PER_S
    for number, block in enumerate(planned.lanes[0]):
        observations += sent(
            block, QueueServer(SERVICE_S, Random(f"{seed}/{number}"), SLOTS), now_ns
        )
        now_ns = max(o.end_ns for o in observations) + PAUSE_NS
    asked = AskedCondition(condition=planned.conditions[0].condition, target="t", rate=rate)
    return condition_findings(asked, observations, [])


def judged(case: Case) -> Row:
    """Return what a run says."""
    row, true_ms = measured(case.load, case.plan, case.seed), 1000 * true_p95_s(case.load)
    low, high = row.ttft_due_ms.interval("p95")
    return Row(
        p95_s=(row.ttft_due_ms.p95 or 0.0) / 1000,
        covers=(low or 0.0) <= true_ms <= (math.inf if high is None else high),
        flagged=any(reason.startswith(NOT_STATIONARY) for reason in row.invalid),
        requests=row.requests,
    )


def cell(load: float, plan: Plan, runs: int, processes: int = 1) -> Cell:
    """Return what `runs` runs claim."""
    rows = in_processes(judged, [Case(load, plan, seed) for seed in range(runs)], processes)
    true_s = true_p95_s(load)
    return Cell(
        median(row.p95_s for row in rows) / true_s - 1 if true_s else math.inf,
        sum(row.covers for row in rows) / runs,
        sum(row.flagged for row in rows) / runs,
        rows[0].requests,
    )


def print_table(
    runs: int,
    processes: int,
    loads: Sequence[float] = LOADS,
    plans: Sequence[Plan] = PLANS,
) -> None:
    """Print the table, of so many runs for each cell."""
    print("| load | true p95 | " + " | ".join(plan.options for plan in plans) + " |")
    print("|---" * (len(plans) + 2) + "|")
    for load in loads:
        cells = (cell(load, plan, runs, processes) for plan in plans)
        words = (
            f"{c.error:+.0%}, {c.coverage:.2f}, {c.flagged:.0%} ({c.requests:,})" for c in cells
        )
        print(f"| {load:.0%} | {true_p95_s(load):.2f} s | {' | '.join(words)} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100, help="runs of each cell")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="rows, as 0.8")
    parser.add_argument(
        "--columns",
        type=int,
        nargs="+",
        choices=range(1, len(PLANS) + 1),
        default=range(1, len(PLANS) + 1),
        help="columns, by number: " + ", ".join(plan.options for plan in PLANS),
    )
    add_processes(parser)
    asked = parser.parse_args()
    plans = [PLANS[number - 1] for number in asked.columns]
    print_table(asked.runs, asked.processes, asked.loads, plans)


if __name__ == "__main__":
    main()
