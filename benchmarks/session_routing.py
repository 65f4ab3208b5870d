"""Session time and money by routing policy, in virtual time: `python -m benchmarks.session_routing`
(some minutes).

Sessions of agents, synthetic or of a file (`--sessions FILE`), run over simulated providers whose
prompt caches and speeds differ. Every policy meets the same sessions, the same speeds and the same
chance. The oracle knows all of these beforehand and plans each session alone by a beam search, once
for the least time and once for the least money. Where speed depends on the load, there is no
oracle: what is best then depends on what the others do.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import msgspec

from benchmarks.session_oracle import oracle
from benchmarks.session_providers import SCENARIOS, Outcome, Scenario
from benchmarks.session_world import FIXED, INFORMED, POLICIES, World
from splitsecond.benchmark.workload.session_files import read_sessions
from splitsecond.benchmark.workload.sessions import Session
from splitsecond.benchmark.workload.synthetic_sessions import synthetic_sessions
from splitsecond.core.pages.axis import linear
from splitsecond.core.pages.chart import Chart, LegendEntry, picture
from splitsecond.core.pages.png import standalone
from splitsecond.testing.virtual_time import run_virtual

STARTS_S = 2400.0
"""Sessions begin within so many seconds."""
MAX_ABOVE = 60.0
"""The edge of the plot, in percent."""


def outcomes(
    scenario: Scenario, sessions: Sequence[Session], seed: int, policies: Sequence[str]
) -> dict[str, Outcome]:
    random = Random(seed)
    starts_s = [random.uniform(0.0, STARTS_S) for _ in sessions]
    found = {
        each: run_virtual(World(scenario, seed).run(each, sessions, starts_s)) for each in policies
    }
    if not any(each.load for each in scenario.providers.values()):
        for by in ("time", "usd"):
            found[f"oracle, {by}"] = oracle(scenario, sessions, starts_s, seed, by=by)
    return found


def tables(found: dict[str, dict[str, Outcome]]) -> str:
    """Return the table of times and that of money, in Markdown."""
    policies = list(dict.fromkeys(policy for each in found.values() for policy in each))

    def table(title: str, cell: Callable[[Outcome], str]) -> str:
        lines = [f"| {title} | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
        for policy in policies:
            cells = [cell(each[policy]) if policy in each else "" for each in found.values()]
            lines.append(f"| {policy} | {' | '.join(cells)} |")
        return "\n".join(lines)

    times = table(
        "mean, p50, p95 in s",
        lambda o: f"{o.mean_s:,.0f}, {o.time_s(0.5):,.0f}, {o.time_s(0.95):,.0f}",
    )
    money = table("$, cached", lambda o: f"{o.usd:.2f}, {o.cached_share:.0%}")
    return f"{times}\n\n{money}\n"


def chart(found: dict[str, dict[str, Outcome]]) -> str:
    """Return an SVG file: for each policy, how far the mean session is above the oracle in time and
    in money."""
    entries = {name: LegendEntry(label=name, index=at) for at, name in enumerate(found)}
    rows = [
        policy
        for policy in POLICIES | dict.fromkeys(FIXED)
        if all(policy in each for each in found.values())
    ]
    charts = []
    for title, by in (
        ("session time above the lowest, in %", "time"),
        ("money above the lowest, in %", "usd"),
    ):
        above = {
            (name, policy): 100
            * (_amount(each[policy], by) / min(_amount(o, by) for o in each.values()) - 1)
            for name, each in found.items()
            for policy in rows
        }
        drawn = Chart(linear(title, 0, MAX_ABOVE), None, height=22 * len(rows), left=170)
        for at, policy in enumerate(rows):
            drawn.add(None, drawn.name(policy, 22 * at + 11))
            for name, entry in entries.items():
                value, tip = above[name, policy], f"{policy}, {name}: {above[name, policy]:.1f}%"
                drawn.add(entry, drawn.mark(entry, min(value, MAX_ABOVE), 22 * at + 11, tip))
        charts.append(drawn)
    words = (
        "Mean session time and money of each policy above the lowest in the same scenario; at "
        "the edge: more."
    )
    return standalone(
        picture(
            *charts,
            name="session-routing",
            section="",
            title="Where the next turn goes",
            description=words,
        ),
        entries,
    )


def _amount(outcome: Outcome, by: str) -> float:
    return outcome.mean_s if by == "time" else outcome.usd


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sessions", type=Path, help="a file of recorded sessions (default: synthetic ones)"
    )
    parser.add_argument("-n", type=int, default=60, help="sessions (default 60)")
    parser.add_argument(
        "--turns", type=int, default=None, help="only the first turns of each session"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--policy", action="append", help="only this policy, and the oracle")
    parser.add_argument("--plot", type=Path, help="write the plot to this SVG file")
    given = parser.parse_args()
    every = (
        read_sessions(given.sessions) if given.sessions else synthetic_sessions("agent", given.seed)
    )
    chosen = Random(given.seed).sample(every.sessions, min(given.n, len(every.sessions)))
    sessions = [msgspec.structs.replace(each, turns=each.turns[: given.turns]) for each in chosen]
    print(
        f"{len(sessions)} sessions, {sum(len(each.turns) for each in sessions):,} turns, seed "
        f"{given.seed}\n"
    )
    found = {}
    for name in given.scenario or SCENARIOS:
        print(f"{name}: {SCENARIOS[name].about}", flush=True)
        informed = () if any(each.load for each in SCENARIOS[name].providers.values()) else INFORMED
        policies = given.policy or [*POLICIES, *FIXED[1:], *informed]
        found[name] = outcomes(SCENARIOS[name], sessions, given.seed, policies)
    print(f"\n{tables(found)}")
    if given.plot:
        given.plot.write_text(chart(found), encoding="utf-8")


if __name__ == "__main__":
    main()
