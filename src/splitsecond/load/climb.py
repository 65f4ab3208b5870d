"""Blocks that are decided while the run goes on: from step to step, for as long as there is something to decide.

A step is one load, and a condition like any other: warm-ups, then measured requests in a loop without a gap. After its
block the step is looked at. Where nothing is sure yet it gets another block of the same size, up to `LOOKS` in all;
then the next step is the one that `analysis.search` asks for. What was observed is read where the run keeps it, between
two blocks, when nothing is under way: so a decision costs the measurement nothing.

A step must be long enough to show what it is to show. It has as many requests as could decide it if all kept to the
limits; in a closed loop at least `ROUNDS` for each place, else most of it would be ramp and tail; in an open loop as
many as come in `OPEN_S`, since a queue that grows needs time to be seen.
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
from splitsecond.load.block import Block
from splitsecond.load.plan import Condition, Load, Plan, make_plan
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation

LOOKS = 4
"""Blocks of one step, at most."""
ROUNDS = 3
"""Measured requests for each place of a closed loop: the steady window should hold some answers in a row."""
OPEN_S = 20

OnVerdict = Callable[[ConditionFindings, Verdict], None]


class Climb:
    """The steps of a search for what one target bears: `slo` in at least `share` of the requests.

    `requests`: how many each block has; None: as many as it takes (see the file). `warmups` and `seed` as in
    `make_plan`.
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
        self.conditions: list[Condition] = []
        """Of the steps that have come to a verdict, in order. One that was cut short shows nothing."""
        self.share = share
        self._target, self._base_url = target, base_url
        self._search, self._slo = search, slo
        self._open_loop = open_loop
        self._requests, self._warmups, self._seed = requests, warmups, seed

    def beginning(self) -> Plan:
        """The plan as far as it is known before anything was sent: the first step's condition, and no block.

        Raises `CallerFault` for a load that makes no sense.
        """
        load = self._search.next()
        return Plan(conditions=self._part(load, 0).conditions if load else [], lanes=[])

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
            again = "-again" if load in self._search.verdicts else ""
            sent = 0, 0
            for look in range(LOOKS):
                step, block = self._next(load, look, again, *sent)
                sent = step.requests, step.warmups
                yield block
                row = condition_findings(
                    asked(step),
                    [o for o in observations if o.condition == step.condition],
                    [reading for reading in readings if reading.condition == step.condition],
                    self._slo,
                )
                verdict = judge(row, self.share)
                if verdict != "undecided":
                    break
            self.conditions.append(step)
            self._search.told(load, verdict)
            on_verdict(row, verdict)

    def _next(self, load: float, look: int, again: str, requests: int, warmups: int) -> tuple[Condition, Block]:
        """The step with one more block after so many requests and warm-ups, and the block."""
        plan = self._part(load, look)
        (condition,), ((block,),) = plan.conditions, plan.lanes
        condition = replace(
            condition,
            condition=condition.condition + again,
            requests=condition.requests + requests,
            warmups=condition.warmups + warmups,
        )
        block = replace(
            block,
            condition=condition.condition,
            first=requests + warmups,
            opening=False,  # it has answered before: that it does not any more is what a step is to find
            most_failures=fatal(condition.requests, self.share),
        )
        return condition, block

    def _part(self, load: float, look: int) -> Plan:
        """A plan of one block."""
        pressed = Load(rate=load) if self._open_loop else Load(concurrency=round(load))
        return make_plan(
            {self._target: self._base_url},
            [pressed],
            requests=self._requests or self._enough(load),
            warmups=self._warmups,
            blocks=1,
            seed=self._seed + look,
        )

    def _enough(self, load: float) -> int:
        return max(fewest(self.share), math.ceil(load * (OPEN_S if self._open_loop else ROUNDS)))
