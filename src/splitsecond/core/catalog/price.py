"""Prices of targets, and the cost of a request's tokens.

Prices are US dollars per million tokens, as providers publish them. They are floats: the cost of a
million requests is then exact to far less than a cent, and nothing is invoiced from here.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from splitsecond.core.catalog.ownership import Ownership

MILLION = 1_000_000
HOUR_FACTOR = 2.0
"""Price of a token written to the prompt cache for an hour, divided by that of other input:
Anthropic's."""
INPUT_SHARE = 0.75
"""Share of input tokens in a blended price: three for each output token, as Artificial Analysis
states prices."""


class Rates(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """US dollars per million tokens of each kind. `cached_usd`: input tokens read from the
    provider's prompt cache; `cache_write_usd`: input tokens written to it; None: as any other
    input. `cache_write_1h_usd`: those written for an hour; None: if written tokens have a price,
    `HOUR_FACTOR` times that of other input.
    """

    input_usd: float
    output_usd: float
    cached_usd: float | None = None
    cache_write_usd: float | None = None
    cache_write_1h_usd: float | None = None

    @property
    def of_hour_writes(self) -> float:
        """US dollars per million input tokens that are written to the cache for an hour."""
        usual = self.input_usd if self.cache_write_usd is None else HOUR_FACTOR * self.input_usd
        return _first(self.cache_write_1h_usd, usual)

    def of_turn(self, written: float) -> tuple[float, float, float]:
        """Return US dollars per new, cached and output token, if this share of the new ones is
        written to the cache."""
        new, cached = self.input_usd, self.cached_usd
        if cached is None:
            cached = new
        if written and self.cache_write_usd is not None:
            new += written * (self.cache_write_usd - new)
        return new / MILLION, cached / MILLION, self.output_usd / MILLION


class Tier(Rates, frozen=True, kw_only=True, omit_defaults=True):
    """The rates of all tokens of a request whose prompt is longer than `above_tokens`, cached
    tokens included."""

    above_tokens: int


class Price(Rates, frozen=True, kw_only=True, omit_defaults=True):
    """Price of one target: per token, `per_hour_usd` for a machine, or both. `owned`: what an hour
    of your own costs.

    `tiers` are sorted by length. `by_tier`: what an answer costs that another speed tier served, as
    a factor of this price, by the answer's word for that tier. `as_of`: the day (ISO) on which the
    price was known to be right; `source`: where it is from. A price per hour alone has rates of 0.
    """

    input_usd: float = 0.0
    output_usd: float = 0.0
    per_hour_usd: float | None = None
    owned: Ownership | None = None
    tiers: tuple[Tier, ...] = ()
    by_tier: Mapping[str, float] = {}
    as_of: str = ""
    source: str = ""

    @property
    def by_token(self) -> bool:
        """Whether tokens have a price; if not, use is free, or paid per hour."""
        return self.per_hour_usd is None or bool(self.input_usd or self.output_usd)

    @property
    def free(self) -> bool:
        return self.per_hour_usd is None and not (self.input_usd or self.output_usd)

    @property
    def blended_usd(self) -> float | None:
        mixed = INPUT_SHARE * self.input_usd + (1 - INPUT_SHARE) * self.output_usd
        return mixed if self.by_token else None

    def rates(self, input_tokens: int) -> Rates:
        rates: Rates = self
        for tier in self.tiers:
            if input_tokens > tier.above_tokens:
                rates = tier
        return rates

    def scaled(self, factor: float) -> "Price":
        return structs.replace(
            self,
            **_scaled(self, factor),
            tiers=tuple(structs.replace(each, **_scaled(each, factor)) for each in self.tiers),
        )

    def cost_usd(
        self,
        *,
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int = 0,
        cache_write_tokens: int = 0,
        cache_write_1h_tokens: int = 0,
        tier: str = "",
        longest_prompt: int | None = None,
    ) -> float:
        """Return the cost of one request in US dollars, without the price per hour.

        `input_tokens` includes tokens read from and written to the cache, `cache_write_tokens`
        those that were written for an hour, and `output_tokens` reasoning. A kind of token without
        its own price costs as much as other input. `tier`: the speed tier that served it, in the
        provider's word; "": not reported. `longest_prompt`: if the tokens are sums over several
        requests, the prompt that decides their rates.
        """
        if tier and (factor := self.by_tier.get(tier)) is not None:
            return factor * self.cost_usd(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_tokens=cached_tokens,
                cache_write_tokens=cache_write_tokens,
                cache_write_1h_tokens=cache_write_1h_tokens,
                longest_prompt=longest_prompt,
            )
        rates = self.rates(input_tokens if longest_prompt is None else longest_prompt)
        plain = max(input_tokens - cached_tokens - cache_write_tokens, 0)
        return (
            plain * rates.input_usd
            + cached_tokens * _first(rates.cached_usd, rates.input_usd)
            + (cache_write_tokens - cache_write_1h_tokens)
            * _first(rates.cache_write_usd, rates.input_usd)
            + cache_write_1h_tokens * rates.of_hour_writes
            + output_tokens * rates.output_usd
        ) / MILLION

    def dearest_usd(
        self,
        *,
        input_tokens: int,
        output_tokens: int,
        any_tier: bool = False,
        for_an_hour: bool = False,
    ) -> float:
        """Return the most that a request with these tokens can cost, in US dollars, without the
        price per hour.

        Its prompt may be written to the provider's cache, or `for_an_hour`. `any_tier`: any speed
        tier may serve it.
        """
        factor = max(1.0, *self.by_tier.values()) if any_tier and self.by_tier else 1.0
        return factor * max(
            self.cost_usd(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cache_write_tokens=written,
                cache_write_1h_tokens=written if for_an_hour else 0,
            )
            for written in (0, input_tokens)
        )


def _first(rate: float | None, fallback: float) -> float:
    return fallback if rate is None else rate


def _scaled(rates: Rates, factor: float) -> dict[str, float]:
    usd_by_name = {name: getattr(rates, name) for name in Rates.__struct_fields__}
    return {name: usd * factor for name, usd in usd_by_name.items() if usd is not None}
