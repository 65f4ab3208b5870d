"""A branch as the policies that choose see it, and how those that they have chosen are asked.

A branch that is a policy itself is judged by one of its targets: the first that is well, since that is the one which
mostly answers. Where all of its targets are asked for each call (`race`), or the best of them is (`fastest`), it is
judged by the best.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import sqrt

from splitsecond import clock
from splitsecond.errors import Fault
from splitsecond.policy.remedy import all_failed, ejected, only_tried, remedy
from splitsecond.policy.targets.estimate import Estimate
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service

FAILING_CALLS = 32
"""One call counts for so much (one part in so many) of the share that fails."""
FAILING_HALF_LIFE_NS = 30 * clock.NS_PER_S
USUAL_HALF_LIFE_NS = 3 * clock.NS_PER_S
"""How fast a new number of requests under way becomes the usual one: when it is seen what it does to the speed."""


class Branch:
    """`service`, over the targets with these `names`. `by_best`: it is as good as the best of them.

    Without names (a policy that is put together in Python) it is a target that nothing is known of.
    """

    def __init__(self, service: Service, names: Sequence[str], *, by_best: bool = False) -> None:
        self.service = service
        self.names = tuple(names) or (repr(service),)
        self.label = self.names[0] if len(self.names) == 1 else repr(service)
        self.asked_ns = 0
        """When it was asked last."""
        self._by_best = by_best
        self._failing, self._failing_ns = 0.0, 0
        self._usual, self._usual_ns = 0.0, 0

    def failing(self, now_ns: int) -> float:
        """The share of the calls lately that failed here before their first token."""
        share = self._failing
        return share * 2.0 ** ((self._failing_ns - now_ns) / FAILING_HALF_LIFE_NS) if share else 0.0

    def ended(self, now_ns: int, *, failed: bool) -> None:
        """A call has got its first token, or has `failed` before."""
        if failed or self._failing:
            share = self.failing(now_ns)
            self._failing, self._failing_ns = share + (failed - share) / FAILING_CALLS, now_ns

    def crowded(self, standing: Standing, now_ns: int) -> float:
        """How many times more requests are under way at its targets than usual, and than chance brings; else 1.

        To be asked each time that calls are given out.
        """
        under_way, usual = self.in_flight(standing), self._usual
        self._usual += (under_way - usual) * (1 - 2.0 ** ((self._usual_ns - now_ns) / USUAL_HALF_LIFE_NS))
        self._usual_ns = now_ns
        return max(under_way / (usual + 2 * sqrt(usual) + 2), 1.0)  # a Poisson number strays by its root

    def available(self, standing: Standing) -> bool:
        """Whether one of its targets is well."""
        names = self.names
        return standing.available(names[0]) if len(names) == 1 else any(map(standing.available, names))

    def judged_by(self, standing: Standing) -> Sequence[str]:
        """The targets by whose figures it is judged; those that are well, if any are."""
        if len(self.names) == 1:
            return self.names
        well = list(filter(standing.available, self.names)) or self.names
        return well if self._by_best else well[:1]

    def estimates(self, standing: Standing, *, stream: bool) -> list[Estimate]:
        """How fast those are by whom it is judged, as far as that is known."""
        known = [standing.estimate(name, stream=stream) for name in self.judged_by(standing)]
        return [estimate for estimate in known if estimate is not None]

    def cost_usd(self, standing: Standing, input_tokens: int, output_tokens: int) -> float | None:
        """What an answer costs at those by whom it is judged; None where a price is not known."""
        costs = [standing.facts(name).cost_usd(input_tokens, output_tokens) for name in self.judged_by(standing)]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    def in_flight(self, standing: Standing) -> int:
        """Requests under way at its targets."""
        return sum(map(standing.in_flight, self.names))


def branches(
    services: Sequence[Service], names: Sequence[Sequence[str]], *, best: tuple[type, ...] = ()
) -> list[Branch]:
    """A branch for each service. `best`: the types of policies that are judged by the best of their targets."""
    given = list(names) or [()] * len(services)
    return [
        Branch(service, inside, by_best=isinstance(service, best))
        for service, inside in zip(services, given, strict=True)
    ]


Choice = tuple[Branch, str]
"""A branch, and why it was chosen."""


def in_order(among: Iterable[Branch], why: str) -> Iterator[Choice]:
    """All of them as they stand."""
    return ((branch, f"{why}: {branch.label}") for branch in among)


async def ask_in_turn(call: Call, choices: Iterable[Choice]) -> Reply:
    """The reply of the first.

    The next is asked only where that branch was known to be ill: nothing was sent, as its targets are down, or the call
    was to find out whether one still is, so that nobody's call fails for that. What to do about any other failure is
    for the policies around. Raises what they raised, `AllFailed` where that were several.
    """
    refusals: list[Fault] = []
    for branch, why in choices:
        call.notes.chosen = why
        branch.asked_ns = clock.now_ns()
        try:
            reply = await branch.service(call)
        except Fault as fault:
            if not ejected(fault):
                branch.ended(clock.now_ns(), failed=remedy(fault) != "change")
                if not only_tried(fault):
                    raise
            refusals.append(fault.kept())
            if call.deadline_ns is not None and clock.now_ns() >= call.deadline_ns:
                break
        else:
            branch.ended(clock.now_ns(), failed=False)
            return reply
    raise refusals[0] if len(refusals) == 1 else all_failed(refusals)
