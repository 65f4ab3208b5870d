"""Spending by target, model, route, client or day, and how much of it was wasted.

The cost of a call is that of all its attempts, at today's prices. `lost_usd` went to attempts whose
response nobody received: losers of a race or a hedge, discarded drafts of small models, broken
responses. What an attempt cost that we closed early depends on the provider's rule
(`closed_early`); `low_usd` and `high_usd` are the bounds of `usd`, where an answer can be as long
as the target's longest.

A machine paid by the hour has no price per token. It is listed with its cost if it ran all of the
time (`rented_usd`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct, convert
from msgspec.structs import replace

from splitsecond.core.catalog.model_names import identify
from splitsecond.core.catalog.price import MILLION, Price
from splitsecond.core.clock import US_PER_DAY
from splitsecond.core.money.closed_early import BillingRule
from splitsecond.core.money.cost import S_PER_HOUR
from splitsecond.core.timing.columns import (
    SOURCES,
    UNKNOWN,
    AttemptColumns,
    AttemptLabel,
    Floats,
    Integers,
    Mask,
)
from splitsecond.log.production.price_table import PriceTable, tier_factors
from splitsecond.log.statistics.value_counts import ValueCounts, distinct, median
from splitsecond.log.store.log import StatedCost

SCHEMA = "splitsecond.cost/1"
DAYS_PER_MONTH = 30

By = Literal["target", "model", "provider", "route", "client", "team", "tag", "day"]
Pricing = Callable[[str], Price | None]

MAX_WAITING = 200_000
"""Attempts that wait for others of their call. Attempts of one call are written together, so few
wait."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ESTIMATE = SOURCES.index("estimate")
_STOPS, _BILLS_ON = 1, 2
"""A provider's rule on requests that we close; 0: not known."""
_NAMES: Mapping[str, Callable[[AttemptLabel], str]] = {
    "target": lambda label: label.target,
    "model": lambda label: identify(label.target).model,
    "provider": lambda label: identify(label.target).provider,
    "route": lambda label: label.route,
    "client": lambda label: label.client,
    "team": lambda label: label.team or "no team",
    "tag": lambda label: label.tags or "no tag",
}
"""Names of rows that follow from an attempt's names."""


class Spending(Struct, kw_only=True):
    """Spending under one name, in US dollars. `calls` had an attempt here; `attempts` counts all
    attempts.

    `estimated` attempts have no token counts. `unpriced` attempts have no known price, or nothing
    to estimate their counts from, and are in no sum. `other_tier`: attempts that another speed tier
    served than the name of the target says; they cost what that tier costs. `cache_saved_usd`: what
    cached input tokens would have cost more, minus the extra cost of filling the cache; negative
    for a loss. `rented_usd`: machines paid by the hour, not part of `usd`. `usd_per_million`: per
    million tokens, input and output, of attempts with counts. `tokens_per_usd`: output tokens for a
    dollar. `stated_usd`: what imported logs state (None: they do not). `tps`: median TPS of
    responses; `cost_adjusted_tps`: TPS ÷ US dollars per million tokens. All rates are None if
    nothing has a price.
    """

    name: str
    calls: int = 0
    attempts: int = 0
    usd: float = 0.0
    low_usd: float = 0.0
    high_usd: float = 0.0
    lost_usd: float = 0.0
    cache_saved_usd: float = 0.0
    rented_usd: float = 0.0
    stated_usd: float | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    estimated: int = 0
    unpriced: int = 0
    other_tier: int = 0

    usd_per_call: float | None = None
    usd_per_million: float | None = None
    tokens_per_usd: float | None = None
    tps: float | None = None
    cost_adjusted_tps: float | None = None


class UsualLengths:
    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int, int]] = {}

    def add(self, columns: AttemptColumns) -> None:
        has_input = columns.input_tokens > 0
        count = len(columns.labels)
        prompts = np.bincount(columns.label[has_input], minlength=count).tolist()
        tokens = np.bincount(
            columns.label[has_input], columns.input_tokens[has_input], count
        ).tolist()
        longest = np.zeros(count, np.int64)
        np.maximum.at(longest, columns.label, columns.output_tokens)
        for label, *more in zip(columns.labels, prompts, tokens, longest.tolist(), strict=True):
            before = self._found.get(label.target, (0, 0, 0))
            self._found[label.target] = (
                before[0] + more[0],
                before[1] + round(more[1]),
                max(before[2], more[2]),
            )

    def prompt(self, target: str) -> int:
        prompts, tokens, _ = self._found.get(target, (0, 0, 0))
        return tokens // prompts if prompts else UNKNOWN

    def longest(self, target: str) -> int:
        return self._found.get(target, (0, 0, 0))[2]


class _Costs(NamedTuple):
    low: Floats
    expected: Floats
    high: Floats
    cache_saved: Floats
    known: Mask
    estimated: Mask


class SpendingLedger:
    """Accumulator of attempts, in any order; `rows` and `total` return their spending.

    `price` returns the price of a target, None if unknown. `usual`: the lengths of all attempts
    that will be added.
    """

    def __init__(
        self,
        price: Pricing,
        usual: UsualLengths,
        by: By = "target",
        *,
        stops_billing: BillingRule = lambda target: None,
    ) -> None:
        self._price = price
        self._usual = usual
        self._by = by
        self._stops_billing = stops_billing
        self._names: dict[str, int] = {}
        self._sums: defaultdict[str, Floats] = defaultdict(lambda: np.zeros(0))
        self._stated: dict[str | None, float] = {}
        self._calls = 0
        self._machines: defaultdict[str, set[str]] = defaultdict(set)
        self._tps = ValueCounts()
        self._waiting: AttemptColumns | None = None
        self._targets: dict[str, _Target] = {}

    def add(self, columns: AttemptColumns) -> None:
        """Add attempts. Those of calls with several wait until all of the call are there."""
        several = columns.attempts > 1
        if not several.any():
            self._count(columns, np.arange(len(columns.label)))
            return
        alone = columns.taken(~several)
        self._count(alone, np.arange(len(alone.label)))
        parts = [columns.taken(several)]
        waiting = AttemptColumns.joined(parts if self._waiting is None else [self._waiting, *parts])
        calls, sizes = _grouped(waiting)
        late = (sizes[calls] < waiting.attempts) & (len(waiting.label) <= MAX_WAITING)
        self._count(waiting.taken(~late), distinct(calls[~late])[1])
        self._waiting = waiting.taken(late).compact()

    def add_stated(self, stated: Iterable[StatedCost]) -> None:
        for each in stated:
            label = AttemptLabel(
                each.target, each.client, each.route, team=each.team, tags=each.tags
            )
            name = _day(each.day) if self._by == "day" else _NAMES[self._by](label)
            for key in (name, None):  # None: all
                self._stated[key] = self._stated.get(key, 0.0) + each.usd

    def rows(self, span_s: float) -> list[Spending]:
        self._finish()
        rows = [
            self._figured(name, number, self._machines[name], span_s)
            for name, number in self._names.items()
        ]
        if self._by == "day":
            return sorted(rows, key=lambda row: row.name)
        return sorted(rows, key=lambda row: (-row.usd - row.rented_usd, row.name))

    def total(self, span_s: float) -> Spending:
        self._finish()
        machines = {target for targets in self._machines.values() for target in targets}
        return self._figured("all", None, machines, span_s)

    def _finish(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._count(waiting, _grouped(waiting)[0])

    def _count(self, columns: AttemptColumns, calls: Integers) -> None:
        if not len(calls):
            return
        self._calls += int(calls.max()) + 1
        targets = [self._target(label.target) for label in columns.labels]
        names = self._named(columns)
        costs = self._costs(columns, targets, calls)
        rented = np.array([target.rented for target in targets])[columns.label]
        tiers = [
            t.price is not None and label.tier in t.price.by_tier
            for label, t in zip(columns.labels, targets, strict=True)
        ]
        lost = columns.losers | (columns.outcomes != 0)
        pairs, _ = distinct(calls * len(self._names) + names)
        self._sum("calls", pairs % len(self._names))
        self._sum("attempts", names)
        self._sum("usd", names, costs.expected)
        self._sum("low_usd", names, costs.low)
        self._sum("high_usd", names, costs.high)
        self._sum("lost_usd", names, costs.expected * lost)
        self._sum("cache_saved_usd", names, costs.cache_saved)
        self._sum("input_tokens", names, np.maximum(columns.input_tokens, 0))
        self._sum("cached_tokens", names, columns.cached_tokens)
        self._sum("output_tokens", names, np.maximum(columns.output_tokens, 0))
        self._sum("estimated", names, costs.estimated)
        self._sum("unpriced", names, ~costs.known & ~rented)
        self._sum("other_tier", names, np.array(tiers)[columns.label])
        if rented.any():
            places = list(self._names)
            pairs, _ = distinct(names[rented] * len(columns.labels) + columns.label[rented])
            for name, label in (divmod(pair, len(columns.labels)) for pair in pairs.tolist()):
                self._machines[places[name]].add(columns.labels[label].target)
        self._tps.add(names, np.where(columns.outcomes == 0, columns.tps, np.nan))

    def _costs(self, columns: AttemptColumns, targets: "list[_Target]", calls: Integers) -> _Costs:
        table, place = PriceTable.of([target.price for target in targets]), columns.label
        factor = tier_factors(self._price, columns.labels)[place]
        has_tokens = (columns.input_tokens != UNKNOWN) & (columns.output_tokens != UNKNOWN)
        has_tokens &= columns.sources != _ESTIMATE
        seen = np.maximum(columns.output_tokens, 0)
        complete = np.where(
            (columns.outcomes == 0) & (columns.output_tokens != UNKNOWN),
            columns.output_tokens,
            UNKNOWN,
        )
        prompt, whole = _most(columns.input_tokens, calls), _most(complete, calls)
        usual, longest, stops = (
            np.array([getattr(target, name) for target in targets])[place]
            for name in ("prompt", "longest", "stops")
        )
        prompt = np.where(columns.input_tokens != UNKNOWN, columns.input_tokens, prompt)
        prompt = np.where(prompt > 0, prompt, np.maximum(usual, prompt))
        by_token = table.by_token[place]
        paid = by_token & ~columns.unbilled
        estimated = paid & ~has_tokens & (prompt != UNKNOWN)
        has_cost = columns.unbilled | (paid & has_tokens) | estimated
        rates = table.rates_of(place, np.where(has_tokens, columns.input_tokens, prompt))
        plain = (prompt * rates[0] + seen * rates[4]) / MILLION * factor
        exact = table.costs_usd(place, columns) * factor
        low = np.where(paid & has_tokens, exact, np.where(estimated, plain, 0.0))
        # What is billed for output that had not arrived when we closed the request: see
        # `closed_early.cost_range`.
        early = paid & has_cost & columns.closed_early
        whole = np.where(whole == UNKNOWN, longest, whole)
        most = np.where(stops == _STOPS, seen, np.maximum(np.maximum(whole, longest), seen))
        billed = np.where(stops == _BILLS_ON, np.maximum(np.minimum(whole, most), seen), seen)
        per_token = np.where(early, rates[4] / MILLION * factor, 0.0)
        used_cache = columns.cached_tokens + columns.cache_write_tokens > 0
        saved = np.where(paid & has_tokens & used_cache, plain - exact, 0.0)
        return _Costs(
            low,
            low + (billed - seen) * per_token,
            low + (most - seen) * per_token,
            saved,
            has_cost,
            estimated,
        )

    def _target(self, name: str) -> "_Target":
        target = self._targets.get(name)
        if target is None:
            price = self._price(name)
            stops = {True: _STOPS, False: _BILLS_ON, None: 0}[self._stops_billing(name)]
            rented = price is not None and price.per_hour_usd is not None
            target = _Target(
                price, rented, stops, self._usual.prompt(name), self._usual.longest(name)
            )
            self._targets[name] = target
        return target

    def _named(self, columns: AttemptColumns) -> Integers:
        if self._by == "day":
            days, place = distinct(columns.came_us // US_PER_DAY)
            return np.array([self._number(_day(day)) for day in days.tolist()], np.int64)[place]
        used = distinct(columns.label)[0].tolist()
        numbers = np.zeros(len(columns.labels), np.int64)
        numbers[used] = [self._number(_NAMES[self._by](columns.labels[place])) for place in used]
        return numbers[columns.label]

    def _number(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def _sum(
        self, field: str, names: Integers, values: Floats | Integers | Mask | None = None
    ) -> None:
        new = np.bincount(names, values, len(self._names)).astype(np.float64)
        old = self._sums[field]
        new[: len(old)] += old
        self._sums[field] = new

    def _figured(
        self, name: str, number: int | None, machines: Iterable[str], span_s: float
    ) -> Spending:
        sums = {
            field: float(each.sum() if number is None else each[number])
            for field, each in self._sums.items()
        }
        counts = {
            field: each if field.endswith("usd") else round(each) for field, each in sums.items()
        }
        if number is None:  # a call that two names attempted is one call
            counts["calls"] = self._calls
        row = convert({"name": name, **counts}, Spending)
        tokens, priced = row.input_tokens + row.output_tokens, row.usd > 0 or not row.unpriced
        per_million = row.usd / tokens * MILLION if priced and tokens else None
        tps = None if number is None else median(self._tps.of([number]))
        return replace(
            row,
            stated_usd=self._stated.get(None if number is None else name),
            rented_usd=self._rent(machines, span_s / S_PER_HOUR),
            usd_per_call=row.usd / row.calls if priced else None,
            usd_per_million=per_million,
            tokens_per_usd=row.output_tokens / row.usd if row.usd else None,
            tps=tps,
            cost_adjusted_tps=tps / per_million if tps is not None and per_million else None,
        )

    def _rent(self, targets: Iterable[str], hours: float) -> float:
        """Return the rent of the machines of `targets`; models of one provider share a machine."""
        dearest: dict[str, float] = {}
        for target in targets:
            price, provider = self._price(target), target.partition("/")[0]
            per_hour = price.per_hour_usd if price is not None else None
            dearest[provider] = max(dearest.get(provider, 0.0), per_hour or 0.0)
        return sum(dearest.values()) * hours


def _day(number: int) -> str:
    return f"{_EPOCH + timedelta(days=number):%Y-%m-%d}"


class _Target(NamedTuple):
    price: Price | None
    rented: bool
    stops: int
    prompt: int
    longest: int


def _grouped(columns: AttemptColumns) -> tuple[Integers, Integers]:
    order = np.lexsort((columns.call, columns.came_us))
    new = (np.diff(columns.came_us[order], prepend=-1) != 0) | (
        np.diff(columns.call[order], prepend=-1) != 0
    )
    calls = np.empty(len(order), np.int64)
    calls[order] = np.cumsum(new) - 1
    return calls, np.bincount(calls)


def _most(values: Integers, calls: Integers) -> Integers:
    largest = np.full(len(calls), UNKNOWN)
    np.maximum.at(largest, calls, values)
    return largest[calls]


def per_month(usd: float, span_s: float) -> float:
    return usd * DAYS_PER_MONTH * 24 * S_PER_HOUR / span_s
