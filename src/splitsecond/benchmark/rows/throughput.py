from collections import Counter

from msgspec import Struct

from splitsecond.core.catalog.price import MILLION
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.money.closed_early import CostRange
from splitsecond.core.observation import Observation

SCHEMA = "splitsecond.batch/1"


class BatchThroughput(Struct, kw_only=True):
    """Result of one batch. Rates cover the time from its start to its end.

    Of the `requests` in the file, `earlier` had a response already, `refused` failed for good and
    `left` were not sent. `again`: number of retries. `widest`: most requests in flight. `cuts`: how
    often a target refused load. `cost_usd` is expected, between `low_usd` and `high_usd`, because
    providers bill closed requests in different ways. `estimated` attempts were closed before their
    tokens were counted, or reported counts that cannot be true; `unpriced` ones are in no sum.
    """

    requests: int
    earlier: int
    answered: int
    refused: int
    left: int
    again: int
    seconds: float
    widest: int
    cuts: int
    attempts: dict[str, int]
    input_tokens: int
    output_tokens: int
    output_tokens_per_s: float | None
    requests_per_s: float | None
    cost_usd: float | None
    low_usd: float | None
    high_usd: float | None
    estimated: int
    usd_per_million: float | None
    unpriced: int
    stopped: str = ""


class TokenUsage:
    """Counter of the attempts of a batch while it runs. `cost` is the sum of the known costs.

    `answered` are the output tokens of responses that were used: not those of losers of a race.
    """

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()
        self.input = self.output = self.answered = self.estimated = self.unpriced = 0
        self.cost = CostRange()

    def add(self, o: Observation, cost: CostRange | None) -> None:
        self.attempts[o.target] += 1
        self.input += o.input_tokens or 0
        self.output += o.output_tokens or 0
        self.answered += o.output_tokens or 0 if o.ok and o.role != "loser" else 0
        if cost is None:
            self.unpriced += 1
        else:
            self.cost = self.cost.plus(cost)
            self.estimated += o.closed_early or o.token_source == "estimate"

    @property
    def usd_per_million(self) -> float | None:
        """Cost per million tokens, input and output; None unless the tokens and the cost of every
        attempt are known."""
        tokens = self.input + self.output
        return (
            self.cost.expected / tokens * MILLION
            if tokens and not self.unpriced + self.estimated
            else None
        )


def per_second(count: float, took_ns: int) -> float | None:
    return count * NS_PER_S / took_ns if took_ns > 0 else None
