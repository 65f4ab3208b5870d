"""Cost of token counts. The gateway uses it, so it imports neither numpy nor a database."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from splitsecond.core.catalog.price import Price

if TYPE_CHECKING:
    from splitsecond.log.store.log import SpentTokens


def spent_usd(used: "Iterable[SpentTokens]", price: Callable[[str], Price | None]) -> float:
    """Return what the tokens cost in US dollars; targets without a price count as free."""
    total = 0.0
    for tokens in used:
        if (rates := price(tokens.target)) is not None and rates.by_token:
            total += rates.cost_usd(
                input_tokens=tokens.input_tokens,
                output_tokens=tokens.output_tokens,
                cached_tokens=tokens.cached_tokens,
                cache_write_tokens=tokens.cache_write_tokens,
                cache_write_1h_tokens=tokens.cache_write_1h_tokens,
                tier=tokens.tier,
                longest_prompt=tokens.longest_prompt,
            )
    return total
