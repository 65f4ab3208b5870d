"""Prices as arrays, for the cost of millions of attempts at a time."""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from splitsecond.core.catalog.price import MILLION, Price
from splitsecond.core.timing.columns import AttemptColumns, AttemptLabel, Floats, Integers, Mask


class PriceTable(Struct, frozen=True):
    """Prices of targets, by their numbers: whether their tokens have a price, where their tiers
    begin (targets × tiers; none: infinity), and their rates for plain and cached tokens, for those
    written to the cache, for those written for an hour, and for output tokens (targets × tiers + 1
    × 5)."""

    by_token: Mask
    above_tokens: Floats
    rates: Floats

    @classmethod
    def of(cls, prices: Sequence[Price | None]) -> "PriceTable":
        filled = [price or Price() for price in prices]
        tiers = max((len(price.tiers) for price in filled), default=0)
        above, rates = np.full((len(filled), tiers), np.inf), np.zeros((len(filled), tiers + 1, 5))
        for number, price in enumerate(filled):
            above[number, : len(price.tiers)] = [tier.above_tokens for tier in price.tiers]
            for place, tier in enumerate([price, *price.tiers]):
                cached, written = (
                    tier.input_usd if usd is None else usd
                    for usd in (tier.cached_usd, tier.cache_write_usd)
                )
                rates[number, place] = (
                    tier.input_usd,
                    cached,
                    written,
                    tier.of_hour_writes,
                    tier.output_usd,
                )
        return cls(
            np.array([price is not None and price.by_token for price in prices], bool), above, rates
        )

    def tiers(self, targets: Integers, input_tokens: Integers) -> Integers:
        place = np.zeros(len(targets), np.int64)
        for above in self.above_tokens.T:
            place += input_tokens > above[targets]
        return place

    def rates_of(self, targets: Integers, input_tokens: Integers) -> Floats:
        rates: Floats = self.rates[targets, self.tiers(targets, input_tokens)].T
        return rates

    def costs_usd(self, targets: Integers, columns: AttemptColumns) -> Floats:
        return self.cost_usd(
            targets,
            columns.input_tokens,
            columns.cached_tokens,
            columns.cache_write_tokens,
            columns.cache_write_1h_tokens,
            columns.output_tokens,
        )

    def cost_usd(
        self,
        targets: Integers,
        prompt: Integers,
        cached: Integers,
        written: Integers,
        hour: Integers,
        output: Integers,
    ) -> Floats:
        """Return the cost of attempts; of the tokens `written` to the cache, `hour` are kept for an
        hour."""
        rates = self.rates_of(targets, prompt)
        plain = np.maximum(prompt - cached - written, 0)
        cost: Floats = (
            plain * rates[0] + cached * rates[1] + (written - hour) * rates[2] + hour * rates[3]
        )
        cost += output * rates[4]
        return cost / MILLION


def tier_factors(price: Callable[[str], Price | None], labels: Sequence[AttemptLabel]) -> Floats:
    prices = [(label.tier, price(label.target)) for label in labels]
    return np.array(
        [1.0 if price is None else price.by_tier.get(tier, 1.0) for tier, price in prices]
    )
