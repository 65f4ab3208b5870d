"""Cost of observations, by prices that carry their day and source.

The cost of a row covers everything that was sent for it: warm-ups, failures and losers of a race
included. Its rates, per request and per million tokens, are those of its measured requests, with
their failures and losers. Warm-ups have shorter responses, and more of them the higher the
concurrency, so with them a million tokens would seem to cost less under load.

A price of "a million tokens" hides how many of them are input. `usd_per_million` is the cost
divided by all tokens of the responses, input and output: the row's own mix. On a machine paid by
the hour, tokens cost what the load makes of them: the hourly price divided by the tokens of an hour
at the row's system throughput.

Not every count is known. An attempt that failed before its first token with an error of the
provider costs nothing. An attempt that was closed early has no counts: its cost is estimated from
its prompt (as long as that of another attempt of the same call, otherwise of the same row) and the
tokens that arrived. Attempts that ended because the run was stopped are part of a row's cost but
not of its rates, because they have no response to share it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import floor, log10

from msgspec import Struct

from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import Observation

S_PER_HOUR = 3600

Prices = Mapping[str, Price]


class Bill(Struct, frozen=True):
    """Cost of attempts by the token. `estimated` of them lack counts; `unpriced` have no price, or
    nothing to estimate their counts from."""

    usd: float = 0.0
    attempts: int = 0
    estimated: int = 0
    unpriced: int = 0


def cost_usd(o: Observation, price: Price | None) -> float | None:
    """Return the cost of one attempt by the token; None if its price or its counts are unknown."""
    if price is None or not price.by_token:
        return None
    if o.unbilled:
        return 0.0
    if o.input_tokens is None or o.output_tokens is None:
        return None
    return price.cost_usd(
        input_tokens=o.input_tokens,
        output_tokens=o.output_tokens,
        cached_tokens=o.cached_tokens or 0,
        cache_write_tokens=o.cache_write_tokens or 0,
        cache_write_1h_tokens=o.cache_write_1h_tokens or 0,
        tier=o.tier,
    )


def bill(observations: Iterable[Observation], prices: Prices) -> Bill:
    costs = list(costs_usd(billed(observations), prices.get))
    return Bill(
        sum(usd or 0.0 for _, usd, _ in costs),
        len(costs),
        sum(estimated for _, _, estimated in costs),
        sum(usd is None for _, usd, _ in costs),
    )


def costs_usd(
    sent: Sequence[Observation], price: Callable[[str], Price | None]
) -> Iterator[tuple[Observation, float | None, bool]]:
    prompts: dict[str, int] = {}
    longest: dict[str, int] = {}
    for o in sent:
        if o.input_tokens is not None:
            prompts[o.call] = o.input_tokens
            longest[o.condition] = max(longest.get(o.condition, 0), o.input_tokens)
    for o in sent:
        target_price = price(o.target)
        usd, estimated = cost_usd(o, target_price), False
        if usd is None and target_price is not None and target_price.by_token:
            prompt = prompts.get(o.call, longest.get(o.condition))
            if prompt is not None:
                tokens = o.output_tokens or 0
                usd, estimated = (
                    target_price.cost_usd(input_tokens=prompt, output_tokens=tokens, tier=o.tier),
                    True,
                )
        yield o, usd, estimated


def run_cost_usd(observations: Iterable[Observation], prices: Prices) -> float | None:
    """Return the cost of a run; None if nothing in it has a known cost.

    Attempts are billed by the token. A machine paid by the hour is billed from the first request to
    it until the end of the last, whether it was busy or not.
    """
    sent = billed(observations)
    by_token = bill(sent, prices)
    by_hour = {target for target, price in prices.items() if price.per_hour_usd is not None}
    rented = grouped((o for o in sent if o.target in by_hour), lambda o: o.target)
    if by_token.unpriced == by_token.attempts and not rented:
        return None
    return by_token.usd + sum(
        (prices[target].per_hour_usd or 0.0)
        * (max(o.end_ns for o in each) - min(o.start_ns for o in each))
        / (S_PER_HOUR * NS_PER_S)
        for target, each in rented.items()
    )


def billed(observations: Iterable[Observation]) -> list[Observation]:
    every = list(observations)
    served = {o.call for o in every if o.role in ("winner", "loser")}
    return [o for o in every if o.call not in served or o.role in ("winner", "loser")]


def price_words(price: Price | None) -> str:
    if price is None:
        return ""
    if price.free:
        return "free"
    cached = f", ${price.cached_usd:g} cached" if price.cached_usd is not None else ""
    tokens = (
        f"${price.input_usd:g} in{cached}, ${price.output_usd:g} out per million tokens"
        if price.by_token
        else ""
    )
    hour = f"${price.per_hour_usd:.3g} per hour" if price.per_hour_usd is not None else ""
    if (own := price.owned) is not None:
        hour += (
            f" (owned: {usd(own.purchase_usd)} over {own.life_years:g} years, {own.watts:g} W at "
            f"{usd(own.usd_per_kwh)} per kWh, of it {usd(own.electricity_usd_per_hour)} "
            f"electricity)"
        )
    return ", ".join(filter(None, (tokens, hour)))


def usd_or_free(value: float | None) -> str:
    return "no price" if value is None else usd(value) if value else "free"


def usd(value: float | None) -> str:
    """Format US dollars with at least three significant digits, and cents: "$12.34", "$0.0123",
    "$1,234.00"."""
    if value is None:
        return "–"
    size = abs(value)
    decimals = 2 if size >= 0.995 or not size else min(2 - floor(log10(size)), 9)
    return f"{'−' if value < 0 else ''}${size:,.{decimals}f}"


def other_tier(o: Observation, price: Price | None) -> bool:
    return price is not None and o.tier in price.by_tier
