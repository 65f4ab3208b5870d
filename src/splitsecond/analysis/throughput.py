"""What a batch came to: answers, tokens, money, and how fast that was in all."""

from collections import Counter

from msgspec import Struct

from splitsecond.catalog.price import MILLION
from splitsecond.clock import NS_PER_S
from splitsecond.timing.observation import Observation

SCHEMA = "splitsecond.batch/1"


class Throughput(Struct, kw_only=True):
    """Of one batch. Rates are by the time from its start to its end.

    `requests` stood in the file; `earlier` of them had an answer already, `answered` got one now, `refused` failed for
    good, `left` were not asked. `again`: how often one was asked again. `attempts` by target, those of a policy
    included. `widest`: the most that were under way at once, `cuts`: how often load was complained of.
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
    usd_per_million: float | None
    unpriced: int
    stopped: str = ""


class Tokens:
    """The attempts of a batch, counted while it runs. `usd` is what those with a known cost came to."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()
        self.input = self.output = self.unpriced = 0
        self.usd = 0.0

    def add(self, o: Observation, usd: float | None) -> None:
        """One more attempt, and what it cost."""
        self.attempts[o.target] += 1
        self.input += o.input_tokens or 0
        self.output += o.output_tokens or 0
        self.usd += usd or 0.0
        self.unpriced += usd is None

    @property
    def usd_per_million(self) -> float | None:
        """By all tokens, where every attempt has a known cost."""
        tokens = self.input + self.output
        return self.usd / tokens * MILLION if tokens and not self.unpriced else None


def per_second(count: int, took_ns: int) -> float | None:
    """So many in that time; None where there was none."""
    return count * NS_PER_S / took_ns if took_ns > 0 else None
