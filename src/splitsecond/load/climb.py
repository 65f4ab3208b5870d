"""Blocks that are decided while the run goes on: from step to step, for as long as there is something to decide.

A step is one load, and a condition like any other: warm-ups, then measured requests in a loop without a gap. After its
block the step is looked at. Where nothing is sure yet it gets another block, up to `LOOKS` in all; then the next step
is the one that `analysis.search` asks for. What was observed is read where the run keeps it, between two blocks, when
nothing is under way: so a decision costs the measurement nothing.

A block must be long enough to show what it is to show. It has as many requests as could decide the step if all kept to
the limits; in a closed loop at least `ROUNDS` for each place, else most of it would be ramp and tail; in an open loop
as many as come in `OPEN_S`, since a queue that grows needs time to be seen. On the way up a step begins with a block of
`SCOUTS`, which is enough where no more of them miss than may.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from splitsecond.analysis.asked import AskedCondition
from splitsecond.analysis.capacity import judge
from splitsecond.analysis.condition import condition_findings
from splitsecond.analysis.findings import ConditionFindings
from splitsecond.analysis.proportion import fatal, fewest
from splitsecond.analysis.search import Search, Verdict
from splitsecond.analysis.slo import Slo
from splitsecond.analysis.wording import counted_as, percent
from splitsecond.errors import CallerFault
from splitsecond.load.block import Block
from splitsecond.load.plan import Condition, Load, Plan, make_plan
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation

LOOKS = 4
"""Blocks of one step, at most."""
SCOUTS = 20
ROUNDS = 3
"""Measured requests for each place of a closed loop: the steady window should hold some answers in a row."""
OPEN_S, OPEN_SCOUTS_S = 20, 5

OnVerdict = Callable[[ConditionFindings, Verdict], None]


class Climb:
    """The steps of a search for what one target bears: `slo` in at least `share` of the requests.

    `requests`: how many each block has; None: as many as it takes (see the file). `warmups` and `seed` as in
    `make_plan`. Raises `CallerFault` where so few requests could never decide anything.
    """

    def __init__(
        self,
        target: str,
        base_url: str,
        search: Search,
        slo: Slo,
        share: float,
        *,
        open_loop: bool = False,
        requests: int | None = None,
        warmups: int | None = None,
        seed: int = 0,
    ) -> None:
        if requests is not None and requests * LOOKS < fewest(share):
            raise CallerFault(
                f"{LOOKS} times {counted_as(requests, 'request', 'requests')} cannot show that {percent(share)} keep "
                f"to the limits: it takes {fewest(share)} that all do",
                kind="bad_load",
                hint=f"Ask for {math.ceil(fewest(share) / LOOKS)} or more with -n.",
            )
        self.share = share
        self._target, self._base_url = target, base_url
        self._search, self._slo = search, slo
        self._open_loop = open_loop
        self._requests, self._warmups, self._seed = requests, warmups, seed
        self._begun: dict[tuple[float, str], Condition] = {}
        self._done: dict[str, Condition] = {}

    @property
    def conditions(self) -> list[Condition]:
        """Those of the steps that have come to a verdict, in order. One that was cut short shows nothing."""
        return list(self._done.values())

    def beginning(self) -> Plan:
        """The plan as far as it is known before anything was sent: the first step's condition, and no block.

        Raises `CallerFault` for a load that makes no sense.
        """
        load = self._search.next()
        return Plan(conditions=self._part(load, 1, 0).conditions if load else [], lanes=[])

    def blocks(
        self,
        asked: Callable[[Condition], AskedCondition],
        observations: Sequence[Observation],
        readings: Sequence[InstrumentReading],
        on_verdict: OnVerdict,
    ) -> Iterator[Block]:
        """The blocks, each decided when it is asked for, by what `observations` and `readings` hold by then.

        `on_verdict` is told of each step that is done.
        """
        while (load := self._search.next()) is not None:
            climbs = self._search.climbs(load)
            again = "-again" if self._search.verdicts.get(load) == "invalid" else ""
            for look in range(LOOKS):
                step, block = self._next(load, again, scouts=climbs and look == 0)
                yield block
                row = condition_findings(
                    asked(step),
                    [o for o in observations if o.condition == step.condition],
                    [reading for reading in readings if reading.condition == step.condition],
                    self._slo,
                )
                verdict = judge(row, self.share)
                if verdict not in ("undecided", "promising") or (climbs and verdict == "promising"):
                    break
            self._done[step.condition] = step
            self._search.told(load, verdict)
            on_verdict(row, verdict)

    def _next(self, load: float, again: str, *, scouts: bool) -> tuple[Condition, Block]:
        """The step with one block more, and the block."""
        enough = self._requests or (self._scouts(load) if scouts else self._enough(load))
        before = self._begun.get((load, again))
        requests, warmups = (before.requests, before.warmups) if before else (0, 0)
        part = self._part(load, enough, seed=self._seed + requests)
        (step,), ((block,),) = part.conditions, part.lanes
        name, first = step.condition + again, requests + warmups
        requests, warmups = requests + step.requests, warmups + step.warmups
        step = self._begun[load, again] = replace(step, condition=name, requests=requests, warmups=warmups)
        return step, replace(
            block,
            condition=name,
            first=first,
            opening=False,  # it has answered before: that it does not any more is what a step is to find
            most_failures=fatal(requests, self.share),
        )

    def _part(self, load: float, requests: int, seed: int) -> Plan:
        """A plan of one block."""
        return make_plan(
            {self._target: self._base_url},
            [Load(rate=load) if self._open_loop else Load(concurrency=round(load))],
            requests=requests,
            warmups=self._warmups,
            blocks=1,
            seed=seed,
        )

    def _scouts(self, load: float) -> int:
        return max(SCOUTS, math.ceil(load * (OPEN_SCOUTS_S if self._open_loop else ROUNDS)))

    def _enough(self, load: float) -> int:
        return max(fewest(self.share), math.ceil(load * (OPEN_S if self._open_loop else ROUNDS)))
