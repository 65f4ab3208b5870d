"""How often a report names a winner among equal targets: a table of
docs/reference/coverage.md.

The real planner plans the run, with its pauses; simulated servers answer it without a clock; the
real findings and reports are made of it. Then each sentence is searched for words that place one
target before another.

`python -m benchmarks.equal_targets` prints the table in Markdown: how many of the runs name a
winner, and the 95% interval of the probability. `--sentences` also counts the sentences that named
one. tests/analysis/test_equal_targets.py has a few runs.
"""

import argparse
import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.capacity_truth import QueueServer, Response, Server, sent
from benchmarks.processes import add_processes, in_processes
from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.plan import RunPlan
from splitsecond.benchmark.report.headline import run_headline
from splitsecond.benchmark.report.use_matrix import use_lines
from splitsecond.benchmark.rows.records import AskedCondition, Run
from splitsecond.benchmark.runs.concluding import RunRequest, conclude
from splitsecond.benchmark.runs.planning import plan_run
from splitsecond.benchmark.runs.settings import BenchSettings
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import Observation

WINNER = re.compile(
    r"\bis first\b|\bis the fastest\b|\bahead\b|(is|was)( perhaps)? the best of|has the highest|"
    r"cost least|ends sooner|★"
)
NO_WINNER = re.compile(
    r"(?i)no target was clearly ahead|no target is|clearly the fastest|which target is the fastest"
)
"""Sentences with these words name none."""
RESPONSE_S, TTFT_S, EVENTS, TOKENS = 3.0, 0.2, 8, 64
SIGMA = 0.4
PRICE = Price(input_usd=0.5, output_usd=1.5)
PAUSE_NS = NS_PER_S // 10
"""Time between two blocks."""


class SlowMinutes:
    """A server whose responses take `slow` times as long in slow minutes; it has a slot for each
    request.

    `share` of the variance of the logarithm of a time changes slowly, with correlation time
    `tau_s`; or with `spells`, a fifth of the time is 2.5 times as slow. With `heavy`, times have a
    Pareto tail (exponent 2.5).
    """

    def __init__(
        self,
        random: Random,
        *,
        tau_s: float = 60.0,
        share: float = 0.0,
        spells: bool = False,
        heavy: bool = False,
    ) -> None:
        self._random, self._tau_s, self._share = random, tau_s, share
        self._spells, self._heavy = spells, heavy
        self._slow, self._at_ns = random.gauss(0, 1), 0
        self._in_spell = random.random() < 0.2
        self._ends: list[tuple[int, int, int]] = []

    def empty(self) -> None:
        """Cancel the requests in flight."""
        self._ends.clear()

    def submit(self, number: int, now_ns: int, *, shortened: bool) -> None:
        """Take request `number`."""
        kept = math.exp((self._at_ns - now_ns) / NS_PER_S / self._tau_s)
        self._at_ns = now_ns
        self._slow = kept * self._slow + math.sqrt(1 - kept * kept) * self._random.gauss(0, 1)
        self._in_spell = (
            self._random.random() < 0.2 + ((1.0 if self._in_spell else 0.0) - 0.2) * kept
        )
        factors = [
            self._factor() * (2.5 if self._spells and self._in_spell else 1.0) for _ in range(2)
        ]
        first_ns = now_ns + round(TTFT_S * factors[0] * NS_PER_S)
        streamed = (
            (RESPONSE_S - TTFT_S) * factors[1] * (self._random.random() if shortened else 1.0)
        )
        heapq.heappush(self._ends, (first_ns + round(streamed * NS_PER_S), number, first_ns))

    def ended(self, until_ns: int | None) -> tuple[int, Response] | None:
        """Return the next response that is complete until then."""
        if not self._ends or (until_ns is not None and self._ends[0][0] > until_ns):
            return None
        last_ns, number, first_ns = heapq.heappop(self._ends)
        return number, Response(first_ns, last_ns, TOKENS)

    def _factor(self) -> float:
        if self._heavy:
            return 0.6 * self._random.paretovariate(2.5)
        own = math.sqrt(1 - self._share) * self._random.gauss(0, 1)
        return math.exp(SIGMA * (math.sqrt(self._share) * self._slow + own))


class World(Struct, frozen=True):
    """A kind of server."""

    name: str
    share: float = 0.0
    spells: bool = False
    heavy: bool = False
    slots: int = 0

    def server(self, random: Random) -> Server:
        """Return a server, empty."""
        if self.slots:
            return QueueServer(RESPONSE_S, random, self.slots)
        return SlowMinutes(random, share=self.share, spells=self.spells, heavy=self.heavy)


WORLDS = (
    World("independent"),
    World("τ 60 s, ρ .3", share=0.3),
    World("60 s slow, 240 s not", spells=True),
    World("heavy tails", heavy=True),
    World("M/M/16", slots=16),
)
TARGETS = ("near/one", "near/two")


class Options(Struct, frozen=True):
    """Options of a run of `targets`."""

    name: str
    settings: BenchSettings
    targets: Sequence[str] = TARGETS

    def plan(self) -> RunPlan:
        """Return the plan as `bench` makes it when the pilots have answered."""
        return plan_run(self.settings, dict.fromkeys(self.targets, "http://near"), RESPONSE_S)


OPTIONS = (
    Options("none", BenchSettings()),
    Options("`-n 200 --slo voice`", BenchSettings(requests=200, slo="voice")),
    Options("three targets", BenchSettings(), (*TARGETS, "near/three")),
    Options("`--over 45m -n 200`", BenchSettings(requests=200, over=2700)),
    Options("`--quick`", BenchSettings(quick=True)),
)


def measured(plan: RunPlan, world: World, seed: int) -> list[Observation]:
    """Carry out the plan, and return the observations."""
    found: list[Observation] = []
    for lane in plan.lanes:
        servers = {
            name: world.server(Random(f"{seed}/{name}"))
            for name in {block.target for block in lane}
        }
        found += _lane(lane, servers, world, seed)
    return found


def _lane(
    blocks: Sequence[RequestBlock], servers: dict[str, Server], world: World, seed: int
) -> Iterator[Observation]:
    begun_ns = now_ns = 1000 * NS_PER_S
    for number, of_round in groupby(blocks, lambda block: block.round):
        for at, block in enumerate(of_round):
            if at == 0:
                now_ns = begun_ns = max(now_ns, begun_ns + round(block.apart_s * NS_PER_S))
            server = servers[block.target]
            if isinstance(server, SlowMinutes):
                server.empty()
            else:
                server = world.server(Random(f"{seed}/{block.condition}/{number}"))
            observed = sent(block, server, now_ns)
            now_ns = max(o.end_ns for o in observed) + PAUSE_NS
            yield from map(_with_tokens, observed)


def _with_tokens(o: Observation) -> Observation:
    if o.outcome == "cancelled" or o.first_token_ns is None or o.last_token_ns is None:
        return o
    gap = (o.last_token_ns - o.first_token_ns) // (EVENTS - 1)
    times = [o.first_token_ns + gap * at for at in range(EVENTS - 1)] + [o.last_token_ns]
    counts = [(at + 1) * TOKENS // EVENTS for at in range(EVENTS)]
    return replace(
        o,
        token_at=times,
        tokens_so_far=counts,
        output_tokens=TOKENS,
        input_tokens=512,
        reads=EVENTS,
        head_ns=times[0],
    )


def concluded(options: Options, world: World, seed: int) -> tuple[Run, list[Observation]]:
    """Return a run of equal targets with its findings."""
    plan = options.plan()
    observations = measured(plan, world, seed)
    asked = [
        AskedCondition(
            condition=c.condition, target=c.target, concurrency=c.load.concurrency, rate=c.load.rate
        )
        for c in plan.conditions
    ]
    run = Run(id="r", began="2026-11-26", began_ns=0, finished=True)
    request = RunRequest(
        settings={},
        conditions=asked,
        slo=options.settings.slo,
        prices=dict.fromkeys(options.targets, PRICE),
    )
    conclude(run, request, observations, [])
    return run, observations


def sentences(run: Run, observations: Sequence[Observation]) -> list[str]:
    """Return every sentence of the report: the headline, the findings, and the lines of uses with
    their marks."""
    lines = [f"{use}: {line}" for use, line in use_lines(run).items()]
    return [
        run_headline(run, observations).sentence,
        *run.statements,
        *run.short_statements,
        *lines,
    ]


def winners(found: Sequence[str]) -> list[str]:
    """Return the sentences that name a winner."""
    return [each for each in found if WINNER.search(NO_WINNER.sub("", each))]


class Case(Struct, frozen=True):
    """One run of a cell of the table."""

    options: Options
    world: World
    seed: int


class Found(Struct, frozen=True):
    """The sentences of one run that named a winner, and how its rounds lie in time."""

    named_by: list[str]
    spread: str = ""


def found_in(case: Case) -> Found:
    """Return which sentences of a run name a winner."""
    run, observations = concluded(case.options, case.world, case.seed)
    spread = "" if run.spread is None else f"{run.spread.rounds}, {run.spread.apart_s:.0f}"
    return Found(winners(sentences(run, observations)), spread)


def interval(named: int, runs: int) -> tuple[float, float]:
    """Return the 95% interval of a probability by Clopper and Pearson (1934)."""
    low = 0.0 if named == 0 else _root(lambda p: _at_least(named, runs, p), 0.025)
    high = 1.0 if named == runs else _root(lambda p: _at_least(named + 1, runs, p), 0.975)
    return low, high


def _at_least(count: int, runs: int, p: float) -> float:
    return 1 - sum(math.comb(runs, k) * p**k * (1 - p) ** (runs - k) for k in range(count))


def _root(grows: Callable[[float], float], value: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if grows(middle) < value else (low, middle)
    return low


def in_words(named: int, runs: int) -> str:
    """Return a count, its share and the interval of its probability."""
    low, high = interval(named, runs)
    return f"{named} of {runs}: {named / runs:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200, help="runs of each cell")
    parser.add_argument("--only", default="", help="the options with this text")
    parser.add_argument(
        "--sentences", action="store_true", help="print the sentences that named a winner"
    )
    add_processes(parser)
    asked = parser.parse_args()
    print(
        "| options | rounds, s apart | " + " | ".join(world.name for world in WORLDS) + " | all |"
    )
    print("|---" * (len(WORLDS) + 3) + "|")
    for options in OPTIONS:
        if asked.only not in options.name:
            continue
        counts, spread, cases = [], "", Counter[str]()
        for world in WORLDS:
            of_world = [Case(options, world, seed) for seed in range(asked.runs)]
            found = in_processes(found_in, of_world, asked.processes)
            counts.append(sum(bool(each.named_by) for each in found))
            spread = found[-1].spread
            cases.update(
                each for one in found for each in {shape(sentence) for sentence in one.named_by}
            )
        cells = [
            *(in_words(count, asked.runs) for count in counts),
            in_words(sum(counts), len(counts) * asked.runs),
        ]
        print(f"| {options.name} | {spread} | {' | '.join(cells)} |", flush=True)
        for sentence, count in cases.most_common() if asked.sentences else ():
            print(f"  {count} runs: {sentence}", flush=True)


def shape(sentence: str) -> str:
    """Return a sentence without its targets and numbers, by which sentences are counted."""
    return re.sub(r"\d[\d.,]*", "#", re.sub(r"near/\w+", "TARGET", sentence))[:100]


if __name__ == "__main__":
    main()
