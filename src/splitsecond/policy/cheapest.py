"""`cheapest(a, b, ..., within="voice")`: the cheapest branch that is quick enough.

What it does. For each branch this call is priced: its prompt (guessed from its bytes) and as many output tokens as
answers have lately, each at the price of its target. The cheapest is asked whose p95 of the time to first token, as
measured here, keeps the limit: `within` names a use (edge 100 ms, translation 200, voice 300, completion 500, chat
3000, batch 10000), `ttft="300ms"` says it as a time; of both the shorter counts. Where none keeps it, the one with the
shortest p95 is asked. Without a limit it is simply the cheapest that is well. A target without a known price comes
last, and the note of the choice says so. A machine that is paid by the hour costs nothing more for a call.

Cheaper ones that were never measured, or not lately, are tried now and then: up to one call in fifty, and ten from the
start, so that a new target is known soon. Where no branch keeps the limit, one that was never measured may.

What it costs. Patience: everybody gets answers that are just quick enough.

When it helps. Where quicker than some limit is worth nothing: voice, chat, nightly work.

When it hurts. Where speed is worth money without a limit (then `fastest`), and where the cheap model is a worse one.

Where it stands. Inside `fallback`; around `limit`, `retry` and `deadline`. A branch that is a policy is judged by its
first target that is well; a `race` costs what all of its targets cost, and is as quick as the best.
"""

from collections.abc import Iterator, Sequence
from math import inf

from splitsecond import clock
from splitsecond.policy.choosing.branch import Branch, Choice, ask_in_turn, branches, in_order
from splitsecond.policy.choosing.exploring import Exploring
from splitsecond.policy.choosing.glance import Glance, about
from splitsecond.policy.choosing.prompt_size import input_tokens, output_tokens
from splitsecond.policy.choosing.speed import Speeds
from splitsecond.policy.race import Race
from splitsecond.policy.settings import duration, use, written
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service
from splitsecond.timing.uses import USES

AT = 0.95
"""The quantile that a limit is held against."""


def cheapest(
    *services: Service,
    within: str | None = None,
    ttft: str | None = None,
    standing: Standing | None = None,
    names: Sequence[Sequence[str]] = (),
) -> Service:
    """The service that asks the cheapest of `services` that is quick enough for the use `within`, or for `ttft`."""
    limits_ns = [] if within is None else [USES[use("within", within)] * clock.NS_PER_MS]
    if ttft is not None:
        limits_ns.append(duration("ttft", ttft))
    given = branches(services, names, best=(Race,))
    return Cheapest(given, within, ttft, min(limits_ns, default=inf), standing or Standing())


class Offer:
    """What a branch asks for one call (`cost` in US dollars, infinite: not known), and its p95 of TTFT."""

    __slots__ = ("age_ns", "branch", "cost", "ttft_ns")

    def __init__(self, branch: Branch, cost: float, ttft_ns: float | None, age_ns: float) -> None:
        self.branch = branch
        self.cost = cost
        self.ttft_ns = ttft_ns
        self.age_ns = age_ns

    def __str__(self) -> str:
        return f"{self.branch.label}, " + ("price unknown" if self.cost == inf else f"{self.cost:.2g} USD")


class Cheapest:
    """See `cheapest`."""

    def __init__(
        self,
        among: Sequence[Branch],
        within: str | None,
        ttft: str | None,
        limit_ns: float,
        standing: Standing,
    ) -> None:
        self._branches = among
        self._within = within
        self._ttft = ttft
        self._limit_ns = limit_ns
        self._standing = standing
        self._speeds = Speeds(standing, by="ttft", at=AT)
        self._exploring = Exploring()
        self._lately: Glance[list[Offer]] = Glance()

    def __repr__(self) -> str:
        services = [branch.service for branch in self._branches]
        return written("cheapest", services, within=self._within, ttft=self._ttft)

    async def __call__(self, call: Call) -> Reply:
        return await ask_in_turn(call, self._choices(call))

    def _choices(self, call: Call) -> Iterator[Choice]:
        well = [branch for branch in self._branches if branch.available(self._standing)]
        if not well:
            yield from in_order(self._branches, "cheapest, none is well")
            return
        now_ns = clock.now_ns()
        offers = self._offers(call, well, now_ns)
        quick = [offer for offer in offers if offer.ttft_ns is not None and offer.ttft_ns <= self._limit_ns]
        unknown = [offer for offer in offers if offer.ttft_ns is None]
        if self._limit_ns != inf and not quick and not unknown:
            for prospect in self._speeds.ranked(call, well):
                yield prospect.branch, f"cheapest, none is quick enough: {prospect}"
            return
        if self._limit_ns != inf:
            offers = [*self._explored(offers, quick, now_ns), *quick, *unknown]
        for offer in dict.fromkeys(offers):
            yield offer.branch, f"cheapest: {offer}"

    def _explored(self, offers: Sequence[Offer], quick: Sequence[Offer], now_ns: int) -> list[Offer]:
        """The cheaper offer whose turn it is to be tried, if one is."""
        self._exploring.called()
        cheaper = offers[: offers.index(quick[0])] if quick else []
        turn = self._exploring.turn(((offer.branch, offer.age_ns) for offer in cheaper), now_ns)
        return [offer for offer in cheaper if offer.branch is turn]

    def _offers(self, call: Call, among: Sequence[Branch], now_ns: int) -> Sequence[Offer]:
        """One of each, the cheapest first."""
        tokens_in = about(input_tokens(call))
        tokens_out = output_tokens(call, self._speeds.usual_output(call, among, now_ns))
        key = call.stream, tokens_in, tokens_out, *among
        offers = self._lately.get(key, now_ns)
        if offers is None:
            offers = [self._offer(branch, tokens_in, tokens_out, stream=call.stream) for branch in among]
            offers.sort(key=lambda offer: offer.cost)
            self._lately.put(key, offers)
        return offers

    def _offer(self, branch: Branch, tokens_in: int, tokens_out: int, *, stream: bool) -> Offer:
        standing, found = self._standing, branch.estimates(self._standing, stream=stream)
        cost = branch.cost_usd(standing, tokens_in, tokens_out)
        p95 = [(ns, each.age_ns) for each in found if (ns := each.ttft_ns(AT, input_tokens=tokens_in)) is not None]
        ttft_ns, age_ns = min(p95, default=(None, inf))
        return Offer(branch, inf if cost is None else cost, ttft_ns, age_ns)
