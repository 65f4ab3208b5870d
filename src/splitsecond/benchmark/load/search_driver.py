"""The driver of a capacity search: it chooses each block of requests by the results of the blocks
before.

A step of the search is one load, judged after each of its blocks. The first try ends when the load
fails or is promising, after at most `FIRST_ROUNDS` rounds; then `benchmark.statistics.search`
chooses the next load. A promising load that turns out to be the heaviest is tried again, for up to
`ROUNDS` rounds more.

In an open loop and with sessions, the times of a block are those of `plan`, by the mean duration of
the responses at the heaviest lighter load, or before there is one, of the pilot.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from splitsecond.benchmark.findings.capacity import batches_of, judge
from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.plan import (
    EXPECTED_S,
    PLAN_BY_DEFAULT,
    TURNS,
    Condition,
    PlannedLoad,
    PlanSettings,
    RunPlan,
    make_plan,
)
from splitsecond.benchmark.rows.condition import condition_findings
from splitsecond.benchmark.rows.records import AskedCondition, ConditionFindings
from splitsecond.benchmark.rows.slo import Slo
from splitsecond.benchmark.statistics.search import Search, Verdict
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.wording import counted_as, limits, percent
from splitsecond.log.statistics.proportion import fatal, fewest
from splitsecond.log.statistics.summary import MIN_ROUNDS

ROUNDS = 12
FIRST_ROUNDS = 4
MIN_REQUESTS = 20
PER_SLOT = 3
WARMUP_RESPONSES = 5
"""Warm-up of a block of an open loop, in responses: a search has many blocks, and those of a bench
take longer."""
OnVerdict = Callable[[ConditionFindings, Verdict], None]


class LoadSearchDriver:
    """The steps of a search for the highest load at which at least `share` of the requests meet
    `slo`.

    Of the `settings`, `requests` are those of each block (None: as many as it needs), and with
    `over_s`, the `ROUNDS` of the second try begin at even distances over this time; `warmups`,
    `seed` and `sessions` are as in `make_plan`. `pilot_s`: the duration of a response alone, if it
    is known. Raises `CallerFault` if so few requests can never decide a step.
    """

    def __init__(
        self,
        target: str,
        base_url: str,
        search: Search,
        slo: Slo,
        share: float,
        settings: PlanSettings = PLAN_BY_DEFAULT,
        *,
        open_loop: bool = False,
    ) -> None:
        requests, over_s = settings.requests, settings.over_s
        if requests is not None and requests * ROUNDS < fewest(share, ROUNDS):
            raise CallerFault(
                f"{ROUNDS} times {counted_as(requests, 'request')} cannot show that "
                f"{percent(share)} meet "
                f"the limits: that takes at least {fewest(share, ROUNDS):,} requests",
                kind="bad_load",
                hint=f"Use -n {math.ceil(fewest(share, ROUNDS) / ROUNDS)} or more.",
            )
        self.share = share
        self._target, self._base_url = target, base_url
        self._search, self._slo = search, slo
        self.open_loop = open_loop
        self._settings = settings
        self._apart_s = 0.0 if over_s is None else over_s / (ROUNDS - 1)
        self._first_rounds = MIN_ROUNDS if settings.sessions else FIRST_ROUNDS
        self.pilot_s: float | None = None
        self._begun: dict[tuple[float, str], Condition] = {}
        self._rounds: dict[tuple[float, str], int] = {}
        self._done: dict[str, Condition] = {}
        self._took_ns = 0
        self._round_ns = 0
        self._confirmed = 0

    @property
    def conditions(self) -> list[Condition]:
        return list(self._done.values())

    @property
    def status(self) -> str:
        low, high = self._search.remaining
        unit = "requests/s" if self.open_loop else "concurrency"
        between = f"{low:g} to {high:g}" if low < high else f"{low:g}"
        left = (
            f", about {self.seconds_left // 60}:{self.seconds_left % 60:02d} left"
            if self.seconds_left
            else ""
        )
        return (
            f"{limits(self._slo.limits)} in {percent(self.share)} of requests: {unit} "
            f"{between}{left}"
        )

    @property
    def seconds_left(self) -> int:
        """About how long the search will still take, at the pace so far; 0 before the first
        verdict."""
        if self._confirmed:
            return round(self._round_ns * (ROUNDS - self._confirmed) / NS_PER_S)
        rounds = sum(self._rounds.values())
        if not self._done or not rounds:
            return 0
        to_come = self._search.loads_left() * rounds / len(self._done) + ROUNDS
        return round(self._took_ns / rounds * to_come / NS_PER_S)

    def beginning(self) -> RunPlan:
        """Return the plan before anything was sent: the first step's condition, and no block.

        Raises `CallerFault` for an impossible load.
        """
        load = self._search.next()
        return RunPlan(conditions=self._part(load, None, 0).conditions if load else [], lanes=[])

    def blocks(
        self,
        describe: Callable[[Condition], AskedCondition],
        observations: Sequence[Observation],
        readings: Sequence[InstrumentReading],
        on_verdict: OnVerdict,
    ) -> Iterator[RequestBlock]:
        began_ns = clock.now_ns()
        while (load := self._search.next()) is not None:
            confirms = self._search.confirms(load)
            again = "-again" if self._search.verdicts.get(load) == "invalid" else ""
            response_s = self._response_s(load, observations)
            self._confirmed = 0
            for number in range(1, (ROUNDS if confirms else self._first_rounds) + 1):
                step, block = self._next(load, again, response_s)
                yield replace(block, apart_s=self._apart_s) if confirms and number > 1 else block
                now_ns = clock.now_ns() - began_ns
                self._took_ns, self._round_ns = now_ns, now_ns - self._took_ns
                self._confirmed = number if confirms else 0
                own = [o for o in observations if o.condition == step.condition]
                row = condition_findings(
                    describe(step),
                    own,
                    [reading for reading in readings if reading.condition == step.condition],
                    self._slo,
                    searched=True,
                    summaries=False,
                )
                verdict = judge(
                    row, batches_of(own, self._slo, open_loop=self.open_loop), self.share
                )
                if verdict not in ("undecided", "promising") or (
                    verdict == "promising" and not confirms
                ):
                    break
            self._done[step.condition] = step
            self._search.record(load, verdict)
            on_verdict(row, verdict)

    def _next(
        self, load: float, again: str, response_s: float | None
    ) -> tuple[Condition, RequestBlock]:
        before = self._begun.get((load, again))
        requests, warmups, cooldowns = (
            (before.requests, before.warmups, before.cooldowns) if before else (0, 0, 0)
        )
        rounds = self._rounds.get((load, again), 0) + 1
        part = self._part(load, response_s, seed=self._settings.seed + requests)
        (step,), ((block,),) = part.conditions, part.lanes
        name, first = step.condition + again, requests + warmups + cooldowns
        requests, warmups = requests + step.requests, warmups + step.warmups
        step = self._begun[load, again] = replace(
            step,
            condition=name,
            requests=requests,
            warmups=warmups,
            cooldowns=cooldowns + step.cooldowns,
        )
        self._rounds[load, again] = rounds
        return step, replace(
            block,
            condition=name,
            first=first,
            round=rounds,
            opening=False,  # the target has answered before; that it stops answering is a result
            most_failures=fatal(requests, self.share),
        )

    def _part(self, load: float, response_s: float | None, seed: int) -> RunPlan:
        settings = self._settings
        warmups = settings.warmups
        if warmups is None and self.open_loop:
            warmups = max(1, math.ceil(load * (response_s or EXPECTED_S) * WARMUP_RESPONSES))
        least = (
            MIN_REQUESTS
            if self.open_loop
            else max(MIN_REQUESTS, (TURNS if settings.sessions else PER_SLOT) * round(load))
        )
        return make_plan(
            {self._target: self._base_url},
            [PlannedLoad(rate=load) if self.open_loop else PlannedLoad(concurrency=round(load))],
            PlanSettings(
                requests=settings.requests or least,
                warmups=warmups,
                blocks=1,
                seed=seed,
                response_s=response_s,
                extend=settings.requests is None,
                sessions=settings.sessions,
            ),
        )

    def _response_s(self, load: float, observations: Sequence[Observation]) -> float | None:
        lighter = [step for step in self._done.values() if _size(step) < load]
        if not (self.open_loop or self._settings.sessions) or not lighter:
            return self.pilot_s
        name = max(lighter, key=_size).condition
        took_ns = [
            o.response_ns for o in observations if o.condition == name and o.response_ns is not None
        ]
        return float(np.mean(took_ns)) / NS_PER_S if took_ns else self.pilot_s


def _size(step: Condition) -> float:
    return step.load.rate or step.load.concurrency or 0
