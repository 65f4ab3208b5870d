"""How close a capacity search comes to the truth: the table of docs/capacity.md.

The real search runs, with its real analysis, against servers that are simulated without a clock, so
an evening of requests takes seconds:

- M/M/c: `SLOTS` requests are served at once, the others wait in order of arrival; exponential
  service times. Its truth is Erlang's.
- batching: the engine of the simulator, whose responses have one length and slow each other down.
  Its truth comes from a long simulation of each load.

`python -m benchmarks.capacity_truth` prints the table in Markdown;
tests/loadgen/test_capacity_truth.py checks a few searches of each kind.
"""

import argparse
import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from statistics import median
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from splitsecond.benchmark.findings.capacity import capacity_of
from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.plan import Condition, PlannedLoad, PlanSettings, make_plan
from splitsecond.benchmark.load.search_driver import LoadSearchDriver
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import AskedCondition, Capacity
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.benchmark.statistics.search import Search
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import LOAD_ROLES, Observation, Role
from splitsecond.simulator.engine import Engine
from splitsecond.simulator.profile import EngineSpec

SLOTS = 32
SHARE = 0.95
SERVICES_S = (2.0, 4.0, 10.0)
TOKENS = 32
"""Tokens of a response of the engine."""
PROMPT = 512
"""Tokens of a prompt of the engine."""
SPREAD_NS = 50 * NS_PER_MS
"""Time over which the slots of a closed loop start."""
PAUSE_NS = 100 * NS_PER_MS
"""Time between two blocks."""
FIRST_RATE = 4
"""The lightest rate of a search, in requests per response."""
TRUTH_REQUESTS = 20_000
"""Requests that show the true share of the engine at one load."""
TOO_HIGH = 1.1
"""A claim beyond this multiple of the truth is wrong."""


class Response(Struct, frozen=True):
    """When the first and the last of the `tokens` of a response arrive, in ns."""

    first_ns: int
    last_ns: int
    tokens: int = TOKENS


class Server(Protocol):
    """A simulated server, from empty."""

    def submit(self, number: int, now_ns: int, *, shortened: bool) -> None:
        """Take request `number`. Times never go back."""

    def ended(self, until_ns: int | None) -> tuple[int, Response] | None:
        """Return the next response that is complete until then (None: whenever); None if there is
        no such response."""


class QueueServer:
    """M/M/c: first come, first served, by `slots`."""

    def __init__(self, service_s: float, random: Random, slots: int = SLOTS) -> None:
        self._service_s, self._random = service_s, random
        self._free = [0] * slots
        self._ends: list[tuple[int, int, int]] = []

    def submit(self, number: int, now_ns: int, *, shortened: bool) -> None:
        begin_ns = max(now_ns, heapq.heappop(self._free))
        took_ns = round(self._random.expovariate(1 / self._service_s) * NS_PER_S) + NS_PER_MS
        heapq.heappush(self._free, begin_ns + took_ns)
        heapq.heappush(self._ends, (begin_ns + took_ns, number, begin_ns + NS_PER_MS // 2))

    def ended(self, until_ns: int | None) -> tuple[int, Response] | None:
        if not self._ends or (until_ns is not None and self._ends[0][0] > until_ns):
            return None
        last_ns, number, first_ns = heapq.heappop(self._ends)
        return number, Response(first_ns, last_ns)


class BatchingServer:
    """The engine of the simulator: responses of `TOKENS` tokens."""

    def __init__(self, spec: EngineSpec, random: Random) -> None:
        self._engine: Engine[int] = Engine(spec)
        self._random = random
        self._lengths: dict[int, int] = {}
        self._first: dict[int, int] = {}
        self._complete: list[tuple[int, Response]] = []

    def submit(self, number: int, now_ns: int, *, shortened: bool) -> None:
        self._lengths[number] = self._random.randint(1, TOKENS) if shortened else TOKENS
        self._engine.submit(
            number, prompt_tokens=PROMPT, output_tokens=self._lengths[number], now_ns=now_ns
        )

    def ended(self, until_ns: int | None) -> tuple[int, Response] | None:
        while not self._complete:
            next_ns = self._engine.next_ns
            if next_ns is None or (until_ns is not None and next_ns > until_ns):
                return None
            for emission in self._engine.advance():
                number = emission.key
                first_ns = self._first.setdefault(number, next_ns)
                if emission.index == self._lengths[number] - 1:
                    self._complete.append(
                        (number, Response(first_ns, next_ns, self._lengths[number]))
                    )
        return self._complete.pop(0)


def engine_of(service_s: float) -> EngineSpec:
    """Return an engine whose responses take about `service_s` when half of its slots are taken."""
    step_ms = service_s * 1000 / TOKENS
    return EngineSpec(
        slots=8 * SLOTS,
        prefill_tokens_per_s=PROMPT / (step_ms / 1000) * 8,
        prefill_chunk_tokens=4 * PROMPT,
        step_base_ms=step_ms / 2,
        step_per_sequence_ms=step_ms / SLOTS,
    )


class Kind(Struct, frozen=True):
    """A server and the limits of a search; times in seconds."""

    name: str
    service_s: float
    limits: str
    rate: bool

    def server(self, random: Random) -> Server:
        """Return the server, empty."""
        if self.name == "M/M/c":
            return QueueServer(self.service_s, random)
        return BatchingServer(engine_of(self.service_s), random)


def kind(name: str, service_s: float, *, rate: bool) -> Kind:
    """Return a row of the table."""
    if name == "M/M/c":
        # By rate, 300 ms for 10 s of service: of a closed loop, in which somebody always waits,
        # half of the service.
        return Kind(name, service_s, f"ttft={service_s * (30 if rate else 500):g}ms", rate)
    return Kind(
        name,
        service_s,
        f"ttft={service_s * 150:g}ms,tpot={service_s * 1000 / TOKENS * 1.5:g}ms",
        rate,
    )


def sent(block: RequestBlock, server: Server, begin_ns: int) -> list[Observation]:
    """Send a block to an empty server as `load.block` does, and return its observations."""
    roles: list[Role] = []
    for role, count in zip(
        LOAD_ROLES, (block.warmups, block.requests, block.cooldowns), strict=True
    ):
        roles += [role] * count
    slots = block.concurrency or 0
    free = [begin_ns + SPREAD_NS * place // slots for place in range(slots)]
    begun: dict[int, int] = {}
    found: list[Observation] = []
    unfinished, number, last_ns = block.requests, 0, begin_ns
    while unfinished:
        at_ns = None
        if number < len(roles):
            at_ns = begin_ns + block.due[number] if not slots else free[0] if free else None
        if (response := server.ended(at_ns)) is None:
            assert at_ns is not None
            if slots:
                heapq.heappop(free)
            begun[number] = at_ns
            server.submit(number, at_ns, shortened=bool(slots) and roles[number] == "warmup")
            number += 1
            continue
        ended, times = response
        heapq.heappush(free, times.last_ns)
        unfinished -= roles[ended] == "measured"
        last_ns = times.last_ns
        found.append(_complete(_begun(block, ended, roles[ended], begun.pop(ended)), times))
    return found + [
        replace(_begun(block, each, roles[each], at_ns), outcome="cancelled", end_ns=last_ns)
        for each, at_ns in begun.items()
    ]


def _begun(block: RequestBlock, number: int, role: Role, at_ns: int) -> Observation:
    name = f"{block.condition}-{block.first + number}"
    return Observation(
        id=name,
        call=name,
        target=block.target,
        condition=block.condition,
        round=block.round,
        role=role,
        due_ns=at_ns,
        start_ns=at_ns,
        sent_ns=at_ns,
    )


def _complete(begun: Observation, times: Response) -> Observation:
    """Return a complete response. It has no times of single tokens: no verdict needs them, and it
    saves most of the time of the analysis."""
    return replace(
        begun,
        first_token_ns=times.first_ns,
        last_token_ns=times.last_ns,
        end_ns=times.last_ns,
        tokens_so_far=[1, times.tokens],
        output_tokens=times.tokens,
        token_source="usage",
        reads=times.tokens,
        kernel_time=True,
        max_read_tokens=1,
    )


class Result(Struct, frozen=True):
    """What a search claimed (None: no load holds for certain), and how long it took, in simulated
    minutes."""

    claimed: float | None
    minutes: float
    capacity: Capacity


def searched(kind: Kind, seed: int) -> Result:
    """Search for the capacity of a server."""
    random, slo = Random(f"{kind}/{seed}"), parse_slo(kind.limits)
    search = Search(FIRST_RATE / kind.service_s if kind.rate else 1, 1000, whole=not kind.rate)
    driver = LoadSearchDriver(
        "t", "http://t", search, slo, SHARE, PlanSettings(seed=seed), open_loop=kind.rate
    )
    driver.pilot_s = kind.service_s
    observations: list[Observation] = []
    now_ns = begin_ns = NS_PER_S

    def asked(condition: Condition) -> AskedCondition:
        load = condition.load
        return AskedCondition(
            condition=condition.condition, target="t", concurrency=load.concurrency, rate=load.rate
        )

    for block in driver.blocks(asked, observations, [], lambda row, verdict: None):
        observations += sent(block, kind.server(random), now_ns)
        now_ns = max(o.end_ns for o in observations) + PAUSE_NS
    rows = condition_rows(
        [asked(condition) for condition in driver.conditions],
        observations,
        [],
        slo=slo,
        searched=True,
    )
    found = capacity_of(rows, observations, slo, SHARE)
    assert found is not None
    return Result(found.holds, (now_ns - begin_ns) / NS_PER_S / 60, found)


def truth(kind: Kind) -> float:
    """Return the heaviest load at which `SHARE` of the requests meet the limits."""
    if kind.rate:
        low, high = 0.0, SLOTS / kind.service_s
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if true_share(kind, middle) >= SHARE else (low, middle)
        return low
    load = 1
    while true_share(kind, load + 1) >= SHARE:
        load += 1
    return load


def true_share(kind: Kind, load: float) -> float:
    """Return the share of the requests that meet the limits at `load` in the long run."""
    slo = parse_slo(kind.limits)
    if kind.name == "M/M/c":
        served = SLOTS / kind.service_s * slo.limits["ttft"] / 1000
        return 1 - (
            waits(load * kind.service_s, served) if kind.rate else late(round(load) - SLOTS, served)
        )
    level = PlannedLoad(rate=load) if kind.rate else PlannedLoad(concurrency=round(load))
    plan = make_plan(
        {"t": "http://t"},
        [level],
        PlanSettings(requests=TRUTH_REQUESTS, blocks=1, response_s=kind.service_s),
    )
    measured = [
        o for o in sent(plan.lanes[0][0], kind.server(Random(1)), NS_PER_S) if o.role == "measured"
    ]
    return sum(slo.met_by(o, open_loop=kind.rate) for o in measured) / len(measured)


def waits(busy: float, served: float) -> float:
    """Return the probability that a request of an M/M/c queue with `busy` mean busy slots waits
    until `served` more requests would have been served: Erlang's C formula."""
    blocked = 1.0
    for slots in range(1, SLOTS + 1):
        blocked = busy * blocked / (slots + busy * blocked)
    waiting = blocked / (1 - busy / SLOTS * (1 - blocked))
    return waiting * math.exp(-(1 - busy / SLOTS) * served)


def late(ahead: int, served: float) -> float:
    """Return the probability that fewer than `ahead` requests have been served when `served` are
    expected."""
    return math.exp(-served) * sum(served**k / math.factorial(k) for k in range(ahead))


KINDS = [
    kind(name, service_s, rate=rate)
    for name in ("M/M/c", "batching")
    for rate in (False, True)
    for service_s in SERVICES_S
]
HEADINGS = (
    "server",
    "service time",
    "load",
    "truth",
    "median claim",
    "claim / truth",
    "over +10%",
    "no claim",
    "median minutes",
    "longest",
)


def row(kind: Kind, searches: int) -> tuple[str, ...]:
    """Return a row of the table."""
    true = truth(kind)
    found = [searched(kind, seed) for seed in range(searches)]
    claims = [each.claimed or 0.0 for each in found]
    return (
        kind.name,
        f"{kind.service_s:g} s",
        "rate" if kind.rate else "concurrency",
        f"{true:.3g}",
        f"{median(claims):.3g}",
        f"{median(claims) / true:.2f}",
        f"{sum(claim > TOO_HIGH * true for claim in claims) / searches:.0%}",
        f"{sum(not claim for claim in claims) / searches:.0%}",
        f"{median(each.minutes for each in found):.0f}",
        f"{max(each.minutes for each in found):.0f}",
    )


def print_searches(
    about: str | None,
    headings: Sequence[str],
    rows: Mapping[str, Callable[[int], Sequence[str]]],
    *,
    searches: int,
) -> None:
    """Print a table with `rows`, by name, as the options of the command say. `searches`: of each
    row, by default."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--searches", type=int, default=searches, help="Searches of each row.")
    parser.add_argument(
        "--only", default="", help=f"Rows whose name has this text: {'; '.join(rows)}."
    )
    options = parser.parse_args()
    print(f"| {' | '.join(headings)} |")
    print("|---" * len(headings) + "|")
    for name, row_of in rows.items():
        if options.only in name:
            print(f"| {' | '.join(row_of(options.searches))} |", flush=True)


def main() -> None:
    """Print the table."""
    rows = {
        f"{each.name} {'rate' if each.rate else 'concurrency'} {each.service_s:g}": partial(
            row, each
        )
        for each in KINDS
    }
    print_searches(__doc__, HEADINGS, rows, searches=20)


if __name__ == "__main__":
    main()
