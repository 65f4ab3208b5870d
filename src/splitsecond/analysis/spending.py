"""Where the money of some days went, by target, model, route, client or day, and how much of it bought nothing.

The cost of a call is that of all of its attempts, by the prices of today: an answer that lost a race was bought, too.
`lost_usd` is what went to attempts that gave no answer to anybody: losers of a race or a hedge, small models whose
draft was thrown away, answers that broke. What cannot be known is estimated as in `cost`, and counted; a prompt whose
length nobody said is taken to be as long as those of the target are on average.

A machine that is paid by the hour has no price for a token. It is listed with what it costs if it ran for all of the
time (`rented_usd`), and so what its tokens cost depends on how many there were.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct, structs

from splitsecond.analysis.cost import S_PER_HOUR, cost_usd, costs_usd
from splitsecond.analysis.production import NAMES
from splitsecond.catalog.price import MILLION, Price
from splitsecond.timing.observation import Observation

SCHEMA = "splitsecond.cost/1"
DAYS_PER_MONTH = 30

By = Literal["target", "model", "provider", "route", "client", "day"]
Pricing = Callable[[str], Price | None]


class Spending(Struct, kw_only=True):
    """Of one name. Money is US dollars; `calls` are those that had an attempt here, `attempts` all of them.

    `estimated` attempts did not say their counts, `unpriced` have no known price, or nothing to guess their counts by,
    and are in none of the sums. `cache_saved_usd`: what cached input tokens would have cost more, less what filling the
    cache cost more; below 0 it was a loss. `rented_usd`: of machines by the hour, beside `usd`. `usd_per_million`: by
    all tokens of attempts that said their counts, input and output. Both rates are None where nothing has a price.
    """

    name: str
    calls: int = 0
    attempts: int = 0
    usd: float = 0.0
    lost_usd: float = 0.0
    cache_saved_usd: float = 0.0
    rented_usd: float = 0.0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    estimated: int = 0
    unpriced: int = 0

    usd_per_call: float | None = None
    usd_per_million: float | None = None


class Ledger:
    """The calls of some days. `add` them one by one; `total` and `rows` are what they come to."""

    def __init__(self, price: Pricing, by: By = "target") -> None:
        self._total = Spending(name="all")
        self._price = price
        self._by = by
        self._rows: dict[str, Spending] = {}
        self._prompts: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))  # how many, and their tokens
        self._machines: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, moment: datetime, attempts: Iterable[Observation], *, route: str, client: str) -> None:
        """A call that came in at `moment`, with everything that was sent for it."""
        seen: dict[str, Spending] = {}
        for o, usd, estimated in costs_usd(list(attempts), self._price):
            name = self._name(moment, o.target, route, client)
            row = self._rows.setdefault(name, Spending(name=name))
            seen[name] = row
            price = self._price(o.target)
            if o.input_tokens:
                prompts, tokens = self._prompts[o.target]
                self._prompts[o.target] = prompts + 1, tokens + o.input_tokens
            elif usd is None and (usd := self._guessed_usd(o, price)) is not None:
                estimated = True
            if price is not None and price.per_hour_usd is not None:
                self._machines[name].add(o.target)
            for each in (row, self._total):
                self._count(each, o, usd, estimated=estimated, price=price)
        for each in (*seen.values(), *([self._total] if seen else [])):
            each.calls += 1

    def rows(self, span_s: float) -> list[Spending]:
        """One for each name, the dearest first (days in their order). `span_s`: the time that is looked at."""
        rows = [self._figured(row, self._machines[name], span_s) for name, row in self._rows.items()]
        if self._by == "day":
            return sorted(rows, key=lambda row: row.name)
        return sorted(rows, key=lambda row: (-row.usd - row.rented_usd, row.name))

    def total(self, span_s: float) -> Spending:
        """All of it."""
        machines = {target for targets in self._machines.values() for target in targets}
        return self._figured(self._total, machines, span_s)

    def _figured(self, row: Spending, machines: Iterable[str], span_s: float) -> Spending:
        tokens, priced = row.input_tokens + row.output_tokens, row.unpriced < row.attempts
        return structs.replace(
            row,
            rented_usd=self._rent(machines, span_s / S_PER_HOUR),
            usd_per_call=row.usd / row.calls if priced else None,
            usd_per_million=row.usd / tokens * MILLION if priced and tokens else None,
        )

    def _guessed_usd(self, o: Observation, price: Price | None) -> float | None:
        prompts, tokens = self._prompts[o.target]
        if price is None or not price.by_token or not prompts:
            return None
        return price.cost_usd(input_tokens=tokens // prompts, output_tokens=o.output_tokens or 0)

    def _rent(self, targets: Iterable[str], hours: float) -> float:
        """Models of one provider share its machine."""
        dearest: dict[str, float] = {}
        for target in targets:
            price, provider = self._price(target), target.partition("/")[0]
            per_hour = price.per_hour_usd if price is not None else None
            dearest[provider] = max(dearest.get(provider, 0.0), per_hour or 0.0)
        return sum(dearest.values()) * hours

    def _name(self, moment: datetime, target: str, route: str, client: str) -> str:
        match self._by:
            case "route":
                return route
            case "client":
                return client
            case "day":
                return f"{moment:%Y-%m-%d}"
        return NAMES[self._by](target)

    def _count(self, row: Spending, o: Observation, usd: float | None, *, estimated: bool, price: Price | None) -> None:
        row.attempts += 1
        row.estimated += estimated
        row.input_tokens += o.input_tokens or 0
        row.cached_tokens += o.cached_tokens or 0
        row.output_tokens += o.output_tokens or 0
        if usd is None:
            rented = price is not None and price.per_hour_usd is not None
            row.unpriced += not rented
            return
        row.usd += usd
        if o.role == "loser" or not o.ok:
            row.lost_usd += usd
        if o.cached_tokens or o.cache_write_tokens:
            plain = cost_usd(structs.replace(o, cached_tokens=0, cache_write_tokens=0), price)
            row.cache_saved_usd += (plain or usd) - usd


def per_month(usd: float, span_s: float) -> float:
    """What so much in `span_s` seconds comes to in 30 days."""
    return usd * DAYS_PER_MONTH * 24 * S_PER_HOUR / span_s
