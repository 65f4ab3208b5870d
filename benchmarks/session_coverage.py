"""How often intervals and comparisons of sessions hold on sessions whose truth is known: a table of
docs/reference/coverage.md.

Sessions are simulated request by request (tests/analysis/simulated_sessions.py). `python -m
benchmarks.session_coverage` prints the tables in Markdown.
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
from msgspec.structs import replace
from tests.analysis.simulated_sessions import Server, simulated

from benchmarks.coverage import Layout
from splitsecond.benchmark.findings.compare import compare_figure
from splitsecond.benchmark.rows.figures import FIGURES, TOTALS, ended
from splitsecond.benchmark.rows.row_fields import Estimated, SessionFindings
from splitsecond.benchmark.rows.sessions import session_findings
from splitsecond.core.catalog.price import Price
from splitsecond.log.statistics.sample_comparison import compare_blocks, ratio_blocks

SERVERS = {
    "slow minutes": Server(of_session=0.35, of_minute=0.3, breaks=0.005),
    "no counts of cached tokens": Server(
        of_session=0.35, of_minute=0.3, breaks=0.005, reports=False
    ),
    "long sessions": Server(of_session=0.35, of_minute=0.3, breaks=0.002, long=0.1),
}
"""Servers of simulated sessions, which differ, as minutes do; one session in ten of the last is six
times as long."""
SESSION_LAYOUTS: tuple[Layout, ...] = ((200, 5), (400, 8))
"""Measured turns of a row, and the rounds that they are measured in, with pauses of 180 s."""
TRUTH_ROUNDS, TRUTH_TURNS = 2_000, 160_000
TRUTH_OF_SLOW_MINUTES = {
    "ttft_ms p50": 718.6,
    "ttft_ms p95": 7257.0,
    "ttft_later_turns_ms p50": 646.9,
    "session time": 50.30,
    "waiting in a session": 17.11,
    "waiting": 0.3402,
    "sessions without an error": 0.9505,
    "cached ÷ ideal": 0.9278,
    "cost of a session": 0.07112,
    "prefill speed": 4000.0,
    "cost of a cached token": 4.0,
    "cache misses": 0.07,
    "cost of a miss": 5.82,
    "waiting by misses": 0.2229,
}
"""`session_truths` of the first two servers, which take half a minute."""
FITTED = 3
"""One row in so many has intervals of the fit in the tables: they take ten times as long as all
others."""
PRICES = {"a/x": Price(input_usd=1.0, output_usd=5.0, cached_usd=0.1)}
TESTED = [total for total in TOTALS.values() if total.group == "Sessions" and total.tested]
PERCENTILES_OF_SESSIONS = (("ttft_ms", "p50"), ("ttft_ms", "p95"), ("ttft_later_turns_ms", "p50"))
SESSION_NUMBERS: dict[str, Callable[[SessionFindings], Estimated]] = {
    "session time": lambda s: s.session_s,
    "waiting in a session": lambda s: s.waiting_s,
    "waiting": lambda s: s.waiting_share,
    "sessions without an error": lambda s: s.ok_share,
    "cached ÷ ideal": lambda s: s.cached_of_ideal,
    "cost of a session": lambda s: s.usd,
    "prefill speed": lambda s: s.prefill_tokens_per_s,
    "cost of a cached token": lambda s: s.ms_per_1000_cached_tokens,
    "cache misses": lambda s: s.miss_share,
    "cost of a miss": lambda s: s.miss_s,
    "waiting by misses": lambda s: s.miss_waiting_share,
}


def session_truths(server: Server) -> dict[str, float]:
    """Return the true figures: those of so many rounds that chance is small, and what the server
    was made with."""
    made = simulated(
        replace(server, reports=True), turns=TRUTH_TURNS, rounds=TRUTH_ROUNDS, tokens_listed=False
    )
    whole = session_findings(made, PRICES, intervals=False)
    assert whole is not None
    found = {
        f"{name} {p}": float(
            np.quantile(FIGURES[name].sample(ended(made)).values, {"p50": 0.5, "p95": 0.95}[p])
        )
        for name, p in PERCENTILES_OF_SESSIONS
    }
    found |= {name: of(whole).value or 0.0 for name, of in SESSION_NUMBERS.items()}
    # Chance is symmetric in the logarithm, and the fit is of the typical time: what the server was
    # made with.
    made_with = {"prefill speed": 1 / server.new_s, "cost of a cached token": 1e6 * server.reused_s}
    return found | made_with | {"cache misses": server.miss}


def sessions_covered(
    server: Server, repeats: int, layout: Layout, truths: Mapping[str, float], *, fitted: int = 1
) -> dict[str, float]:
    """Return how often each 95% interval of a row of sessions contains the truth; those without one
    are left out.

    One row in `fitted` has intervals of the fit.
    """
    hits: dict[str, list[bool]] = {}
    # without its counts, what the cache saved is not known
    prices = PRICES if server.reports else {}
    for seed in range(repeats):
        made = simulated(server, seed, turns=layout[0], rounds=layout[1], tokens_listed=False)
        row = session_findings(made, prices, intervals=seed % fitted == 0)
        assert row is not None
        intervals = {name: of(row).ci95 for name, of in SESSION_NUMBERS.items()}
        for name, p in PERCENTILES_OF_SESSIONS:
            intervals[f"{name} {p}"] = FIGURES[name].summarise(ended(made)).interval(p)
        for name, (low, high) in intervals.items():
            if (low, high) != (None, None):
                holds = (
                    (-math.inf if low is None else low)
                    <= truths[name]
                    <= (math.inf if high is None else high)
                )
                hits.setdefault(name, []).append(holds)
    return {name: sum(each) / len(each) for name, each in hits.items()}


def false_session_differences(server: Server, repeats: int, layout: Layout) -> dict[str, float]:
    """Return how often a comparison of two equal targets of one run, or of two equal runs, finds a
    difference.

    Each row is compared with the next one.
    """
    found: Counter[str] = Counter()
    samples, rows = [], []
    for seed in range(repeats + 1):
        made = simulated(server, seed, turns=layout[0], rounds=layout[1], tokens_listed=False)
        samples.append(
            {name: FIGURES[name].sample(ended(made)) for name in ("ttft_ms", "ttft_later_turns_ms")}
        )
        rows.append(session_findings(made, PRICES, intervals=False))
    for one, other in pairwise(samples):
        for name in one:
            found[f"{name} p50"] += compare_figure(
                FIGURES[name], one[name], other[name], paired=True
            )["p50"].real
    for total in TESTED:
        blocks = [ratio_blocks(row.by_round.get(total.name, {})) if row else {} for row in rows]
        for pair in pairwise(blocks):
            for paired, kind in ((True, ""), (False, ", two runs")):
                tested = compare_blocks(*pair, paired=paired, percentiles=(None, None))
                found[f"{total.label}{kind}"] += tested.real
    return {name: count / repeats for name, count in found.items()}


def print_server(name: str, repeats: int) -> None:
    """Print the table of a server: coverage of each interval, and false differences between equal
    targets."""
    server = SERVERS[name]
    truths = session_truths(server) if server.long else TRUTH_OF_SLOW_MINUTES
    columns = {
        layout: sessions_covered(server, repeats, layout, truths, fitted=FITTED)
        for layout in SESSION_LAYOUTS
    }
    heads = " | ".join(f"{n} turns in {rounds} rounds" for n, rounds in SESSION_LAYOUTS)
    print(f"\n{name}\n\n| figure | {heads} |\n" + "|---" * (len(SESSION_LAYOUTS) + 1) + "|")
    for figure in dict.fromkeys(each for column in columns.values() for each in column):
        print(
            f"| {figure} | "
            + " | ".join(f"{c.get(figure, math.nan):.2f}" for c in columns.values())
            + " |"
        )
    false = {
        layout: false_session_differences(server, repeats, layout) for layout in SESSION_LAYOUTS
    }
    for figure in false[SESSION_LAYOUTS[0]]:
        print(
            f"| false differences, {figure} | "
            + " | ".join(f"{f[figure]:.3f}" for f in false.values())
            + " |"
        )
    print(flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=400, help="repeats of each cell")
    repeats: int = parser.parse_args().repeats
    for name in SERVERS:
        print_server(name, repeats)


if __name__ == "__main__":
    main()
