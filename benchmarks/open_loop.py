"""How close the p95 of an open loop comes to that of a queue in the long run: the table of docs/statistics.md.

A round of an open loop begins with an empty server, so the queue has to grow to its steady length. The real planner
plans runs at a rate; an M/M/c queue answers them without a clock (`capacity_truth`); the real findings judge them. The
truth is Erlang's.

`python -m benchmarks.open_loop` prints the table in Markdown, in some minutes; tests/analysis/test_open_loop.py checks
a few of its cells.
"""

import argparse
import math
from collections.abc import Sequence
from random import Random
from statistics import median

from msgspec import Struct

from benchmarks.capacity_truth import PAUSE_NS, QueueServer, sent
from splitsecond.benchmark.findings.condition import condition_findings
from splitsecond.benchmark.findings.findings import AskedCondition, ConditionFindings
from splitsecond.benchmark.findings.validity import NOT_STATIONARY
from splitsecond.benchmark.load.plan import PlannedLoad, make_plan
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import Observation

SLOTS, SERVICE_S = 8, 2.0
LOADS = (0.7, 0.85, 0.95)
REQUESTS = (200, 1000)


class Cell(Struct, frozen=True):
    """Of many runs: the median error of p95 of the wait, and the share of runs that are called not stationary."""

    error: float
    flagged: float
    requests: int


def true_p95_s(load: float, slots: int = SLOTS, service_s: float = SERVICE_S) -> float:
    """Return the wait that 95% of the requests do not exceed in the long run, by Erlang's C formula."""
    busy = load * slots
    blocked = 1.0
    for number in range(1, slots + 1):
        blocked = busy * blocked / (number + busy * blocked)
    waiting = blocked / (1 - load * (1 - blocked))
    return max(math.log(waiting / 0.05), 0.0) / (slots * (1 - load)) * service_s


def measured(load: float, requests: int, seed: int) -> ConditionFindings:
    """Return the row of a run."""
    rate = load * SLOTS / SERVICE_S
    plan = make_plan({"t": "http://t"}, [PlannedLoad(rate=rate)], requests=requests, response_s=SERVICE_S, seed=seed)
    observations: list[Observation] = []
    now_ns = NS_PER_S
    for number, block in enumerate(plan.lanes[0]):
        observations += sent(block, QueueServer(SERVICE_S, Random(f"{seed}/{number}"), SLOTS), now_ns)
        now_ns = max(o.end_ns for o in observations) + PAUSE_NS
    asked = AskedCondition(condition=plan.conditions[0].condition, target="t", rate=rate)
    return condition_findings(asked, observations, [])


def cell(load: float, requests: int, runs: int) -> Cell:
    """Return what `runs` runs claim."""
    rows = [measured(load, requests, seed) for seed in range(runs)]
    claimed = [(row.ttft_due_ms.p95 or 0.0) / 1000 for row in rows]
    return Cell(
        median(claimed) / true_p95_s(load) - 1,
        sum(any(reason.startswith(NOT_STATIONARY) for reason in row.invalid) for row in rows) / runs,
        rows[0].requests,
    )


def words(found: Sequence[Cell]) -> str:
    """Return cells of the table."""
    return " | ".join(f"{each.error:+.0%}, {each.flagged:.0%} ({each.requests:,})" for each in found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="runs of each cell")
    asked = parser.parse_args()
    print("| load | true p95 | " + " | ".join(f"-n {n:,}" for n in REQUESTS) + " |")
    print("|---" * (len(REQUESTS) + 2) + "|")
    for load in LOADS:
        cells = [cell(load, n, asked.runs) for n in REQUESTS]
        print(f"| {load:.0%} | {true_p95_s(load):.1f} s | {words(cells)} |", flush=True)


if __name__ == "__main__":
    main()
