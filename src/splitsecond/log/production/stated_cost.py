from collections.abc import Callable, Sequence

import numpy as np

from splitsecond.core.catalog.price import Price
from splitsecond.core.money.cost import usd
from splitsecond.core.timing.columns import UNKNOWN, AttemptColumns
from splitsecond.core.wording import counted_as
from splitsecond.log.production.price_table import PriceTable, tier_factors
from splitsecond.log.store.log import StatedCost


class StatedComparison:
    """Accumulator of attempts; `statements` compares what they cost with what their logs state."""

    def __init__(self, price: Callable[[str], Price | None], stated: Sequence[StatedCost]) -> None:
        self._price = price
        self._stated = stated
        self._computed_usd = 0.0

    def add(self, columns: AttemptColumns) -> None:
        stated = np.array([label.stated for label in columns.labels], bool)
        if not stated.any():
            return
        prices = PriceTable.of([self._price(label.target) for label in columns.labels])
        comparable = stated & prices.by_token
        has_tokens = (columns.input_tokens != UNKNOWN) & (columns.output_tokens != UNKNOWN)
        costs = prices.costs_usd(columns.label, columns)
        costs *= tier_factors(self._price, columns.labels)[columns.label]
        self._computed_usd += float(
            costs[comparable[columns.label] & has_tokens & ~columns.unbilled].sum()
        )

    def statements(self) -> list[str]:
        """Return the comparison as sentences; none if no log states a cost."""
        priced = [each for each in self._stated if self._by_token(each.target)]
        others = [each for each in self._stated if not self._by_token(each.target)]
        sentences = []
        if calls := sum(each.calls for each in priced):
            stated_usd = sum(each.usd for each in priced)
            difference = ""
            if stated_usd:
                share = (self._computed_usd - stated_usd) / stated_usd
                sign = "−" if share < 0 else "+"
                difference = f", {sign}{abs(share):.1%}"
            sentences.append(
                f"The imported log states {usd(stated_usd)} for {counted_as(calls, 'call')}; our "
                f"prices give {usd(self._computed_usd)}{difference}."
            )
        if other_usd := sum(each.usd for each in others):
            calls = sum(each.calls for each in others)
            sentences.append(
                f"The imported log states {usd(other_usd)} for {counted_as(calls, 'call')} whose "
                "price per token is not known here."
            )
        return sentences

    def _by_token(self, target: str) -> bool:
        price = self._price(target)
        return price is not None and price.by_token
