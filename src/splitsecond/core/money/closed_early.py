"""Cost of attempts that we closed before their end: losers of races, exceeded deadlines, clients
that left.

What a provider bills for the output that it had not sent yet depends on its rule
(`closing_stops_billing` in the catalogue). If closing stops the billing, only the tokens that
arrived are billed. If not, the answer is generated and billed to its end: probably as long as the
answer of the same call that was complete, and at most as long as the client's limit. If the rule is
not known, both are possible.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec import Struct, structs

from splitsecond.core.observation import Observation

BillingRule = Callable[[str], bool | None]
"""Whether closing stops the billing, by target; None: not known."""


class Billing(Struct, frozen=True):
    """What attempts cost: `usd` returns the cost of one in US dollars, None if it is not known;
    `closing_stops` the rule for those that are closed early."""

    usd: Callable[[Observation], float | None] = lambda attempt: None
    closing_stops: BillingRule = lambda target: None


class CostRange(NamedTuple):
    low: float = 0.0
    expected: float = 0.0
    high: float = 0.0

    def plus(self, other: "CostRange") -> "CostRange":
        return CostRange(
            self.low + other.low, self.expected + other.expected, self.high + other.high
        )

    @property
    def exact(self) -> bool:
        return self.low == self.high


def cost_range(
    o: Observation, billing: Billing, *, whole_tokens: int, most_tokens: int
) -> CostRange | None:
    """Return what an attempt may have cost; None if its price or its prompt's length is not known.

    `whole_tokens`: the probable length of the complete answer. `most_tokens`: the most tokens that
    it could have had.
    """
    if not o.closed_early:
        usd = billing.usd(o)
        return None if usd is None else CostRange(usd, usd, usd)
    seen = o.output_tokens or 0
    stops = billing.closing_stops(o.target)
    most = seen if stops else max(most_tokens, seen)
    billed = max(min(whole_tokens, most), seen) if stops is False else seen
    low, expected, high = (
        billing.usd(structs.replace(o, output_tokens=tokens)) for tokens in (seen, billed, most)
    )
    return (
        None if low is None or expected is None or high is None else CostRange(low, expected, high)
    )


def attempt_cost(
    o: Observation,
    attempts: Iterable[Observation],
    billing: Billing,
    *,
    usual_tokens: int,
    output_limit: int | None,
) -> CostRange | None:
    every = list(attempts)
    if o.input_tokens is None:
        prompt = next((each.input_tokens for each in every if each.input_tokens is not None), None)
        o = structs.replace(o, input_tokens=prompt)
    whole_tokens = complete_tokens(every) or usual_tokens
    return cost_range(
        o, billing, whole_tokens=whole_tokens, most_tokens=output_limit or whole_tokens
    )


def complete_tokens(attempts: Iterable[Observation]) -> int | None:
    return max(
        (o.output_tokens for o in attempts if o.ok and o.output_tokens is not None), default=None
    )
