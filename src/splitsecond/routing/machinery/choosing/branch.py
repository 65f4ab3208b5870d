"""Branches of the policies that choose, and the loop that asks the chosen ones.

A branch that is a policy itself is represented by one of its targets: the first that is available,
because that one mostly answers.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from math import sqrt

from msgspec.structs import replace

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.service import Call, Notes, Reply, RoutingChoice, Service
from splitsecond.routing.machinery.fault_handling import all_failed, only_probed, remedy, unsent
from splitsecond.routing.targets.estimate import SpeedEstimate
from splitsecond.routing.targets.samples import NEVER_NS
from splitsecond.routing.targets.target_states import TargetStates

FAILURE_SMOOTHING = 32
"""One call counts for one part in so many of the failure share."""
FAILURE_HALF_LIFE_NS = 30 * clock.NS_PER_S
FAILURE_COST = 5
"""The cost of a failure, in answers: a target that fails every fifth call must be twice as fast to
be chosen."""
MAX_CROWDING = 2.0
"""A branch that is better by more than this factor gets all calls at once."""
USUAL_HALF_LIFE_NS = 3 * clock.NS_PER_S
"""How fast a new number of requests in flight becomes the usual one; by then its effect on the
speed shows."""


class Branch:
    """`service`, over the targets with these `names`. `by_best`: it is as good as the best of them.

    `place`: where it is among the branches of its policy, from 0.

    A branch without names (of a policy that is built in Python) counts as one target about which
    nothing is known.
    """

    def __init__(
        self, service: Service, names: Sequence[str], *, place: int = 0, by_best: bool = False
    ) -> None:
        self.service = service
        self.names = tuple(names) or (repr(service),)
        self.label = self.names[0] if len(self.names) == 1 else repr(service)
        self.place = place
        self.last_asked_ns = NEVER_NS
        self._by_best = by_best
        self._failing, self._failing_ns = 0.0, 0
        self._usual, self._usual_ns = 0.0, 0

    def failure_share(self, now_ns: int) -> float:
        share = self._failing
        return share * 2.0 ** ((self._failing_ns - now_ns) / FAILURE_HALF_LIFE_NS) if share else 0.0

    def record_call(self, now_ns: int, *, failed: bool) -> None:
        if failed or self._failing:
            share = self.failure_share(now_ns)
            self._failing, self._failing_ns = share + (failed - share) / FAILURE_SMOOTHING, now_ns

    def slowdown(self, in_flight: int, now_ns: int) -> float:
        """Return by how much longer an answer takes because the branch has more requests in flight
        than usual, and because calls of it have failed."""
        usual, factor = self._usual, 1.0
        if in_flight or usual:
            self._usual += (in_flight - usual) * (
                1 - 2.0 ** ((self._usual_ns - now_ns) / USUAL_HALF_LIFE_NS)
            )
            if in_flight > 2:  # two are never more than usual
                # the deviation of a Poisson number is its root
                factor = min(max(in_flight / (usual + 2 * sqrt(usual) + 2), 1.0), MAX_CROWDING)
        self._usual_ns = now_ns
        return factor * (1 + FAILURE_COST * self.failure_share(now_ns)) if self._failing else factor

    def available(self, states: TargetStates, call: Call) -> bool:
        names, client = self.names, call.client
        if len(names) == 1:
            return states.available(names[0], client)
        return any(states.available(name, client) for name in names)

    def representatives(self, states: TargetStates) -> Sequence[str]:
        if len(self.names) == 1:
            return self.names
        available = list(filter(states.available, self.names)) or self.names
        return available if self._by_best else available[:1]

    def estimates(self, states: TargetStates, *, stream: bool) -> list[SpeedEstimate]:
        estimates = [states.estimate(name, stream=stream) for name in self.representatives(states)]
        return [estimate for estimate in estimates if estimate is not None]

    def cost_usd(self, states: TargetStates, input_tokens: int, output_tokens: int) -> float | None:
        costs = [
            states.info(name).cost_usd(input_tokens, output_tokens)
            for name in self.representatives(states)
        ]
        known_costs = [cost for cost in costs if cost is not None]
        return sum(known_costs) if len(known_costs) == len(costs) else None

    def in_flight(self, states: TargetStates) -> int:
        names = self.names
        if len(names) == 1:
            return states.in_flight(names[0])
        return sum(map(states.in_flight, names))


def usual_output_tokens(call: Call, among: Iterable[Branch], states: TargetStates) -> list[float]:
    estimates = [each for branch in among for each in branch.estimates(states, stream=call.stream)]
    return [tokens for each in estimates if (tokens := each.output_tokens()) is not None]


UNKNOWN_ODDS = 0.0
Choice = tuple[Branch, str, float, Sequence[Branch]]
"""A branch, why it was chosen, with which probability, and the branches that were available.

The probability is `UNKNOWN_ODDS` where the branch was explored or drawn from the uncertainty of
estimates, because then no exact one is known.
"""


def in_order(
    among: Iterable[Branch], why: str, odds: float = 1.0, available: Sequence[Branch] = ()
) -> Iterator[Choice]:
    return ((branch, f"{why}: {branch.label}", odds, available) for branch in among)


async def ask_in_turn(call: Call, choices: Iterable[Choice]) -> Reply:
    """Return the reply of the first branch that is not down, and note the choice in the call.

    The next branch is asked only if nothing was sent to a branch, because it is unavailable or its
    API format cannot express the request, or if the call was its probe, so that probes fail no
    call. Raises the fault of the branches, or `AllFailed` for several.
    """
    refusals: list[Fault] = []
    for branch, why, odds, available in choices:
        call.notes.chosen = why
        if not call.notes.attempts:
            note_choice(call.notes, branch, odds, available)
        before_ns, branch.last_asked_ns = branch.last_asked_ns, clock.now_ns()
        try:
            reply = await branch.service(call)
        except asyncio.CancelledError:
            # previews cancel all their calls, and must count as many explorations
            branch.last_asked_ns = before_ns
            raise
        except Fault as fault:
            if not unsent(fault):
                branch.record_call(clock.now_ns(), failed=remedy(fault) != "change")
                if not only_probed(fault):
                    raise
            refusals.append(fault.without_traceback())
            if call.notes.choice is not None:  # another branch is asked than the one chosen
                call.notes.choice = replace(call.notes.choice, odds=UNKNOWN_ODDS)
            if call.deadline_ns is not None and clock.now_ns() >= call.deadline_ns:
                break
        else:
            branch.record_call(clock.now_ns(), failed=False)
            return reply
    raise refusals[0] if len(refusals) == 1 else all_failed(refusals)


def note_choice(notes: Notes, branch: Branch, odds: float, available: Sequence[Branch]) -> None:
    """Note a choice for the log. Of choices within choices, the place is that of the outer one, and
    the probability is that of all together."""
    outer = notes.choice
    if outer is None:
        mask = 0
        for each in available:
            mask |= 1 << each.place
        notes.choice = RoutingChoice(branch.place, mask, odds)
    else:
        notes.choice = RoutingChoice(outer.place, outer.available, outer.odds * odds)
