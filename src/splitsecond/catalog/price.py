"""What a target costs: a price, and the money that a request's tokens amount to.

Prices are US dollars for a million tokens, as providers print them. Floats hold them: a bill of a million requests is
then exact to far less than a cent, and no bill is paid from here.
"""

from msgspec import Struct

MILLION = 1_000_000
INPUT_SHARE = 0.75
"""Of a blended million tokens: three of input for each of output, as Artificial Analysis states prices."""


class Rates(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """US dollars for a million tokens of each kind. `cached_usd` is that of input tokens that were read from the
    provider's prompt cache, `cache_write_usd` that of input tokens written to it; None: as any other input.
    """

    input_usd: float
    output_usd: float
    cached_usd: float | None = None
    cache_write_usd: float | None = None


class Tier(Rates, frozen=True, kw_only=True, omit_defaults=True):
    """The rates of all tokens of a request whose prompt is longer than `above_tokens`, cached tokens included."""

    above_tokens: int


class Price(Rates, frozen=True, kw_only=True, omit_defaults=True):
    """The price of one target: by the token, or `per_hour_usd` for a machine of one's own, or both.

    `tiers` are sorted by length. `as_of`: the day (ISO) on which it was known to be right; `source`: who says so. A
    price by the hour alone has rates of 0.
    """

    input_usd: float = 0.0
    output_usd: float = 0.0
    per_hour_usd: float | None = None
    tiers: tuple[Tier, ...] = ()
    as_of: str = ""
    source: str = ""

    @property
    def by_token(self) -> bool:
        """Whether tokens have a price; without one it is free, or paid by the hour."""
        return self.per_hour_usd is None or bool(self.input_usd or self.output_usd)

    @property
    def blended_usd(self) -> float | None:
        """A million tokens, `INPUT_SHARE` of them input, none from a cache; None where tokens have no price."""
        mixed = INPUT_SHARE * self.input_usd + (1 - INPUT_SHARE) * self.output_usd
        return mixed if self.by_token else None

    def rates(self, input_tokens: int) -> Rates:
        """The rates of a request with a prompt of this length."""
        found: Rates = self
        for tier in self.tiers:
            if input_tokens > tier.above_tokens:
                found = tier
        return found

    def cost_usd(
        self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0, cache_write_tokens: int = 0
    ) -> float:
        """The money for one request. `input_tokens` includes both kinds of cached ones, `output_tokens` reasoning.

        Where a kind of token has no price of its own, it costs what other input costs. What is paid by the hour is
        not in it.
        """
        rates = self.rates(input_tokens)
        plain = max(input_tokens - cached_tokens - cache_write_tokens, 0)
        return (
            plain * rates.input_usd
            + cached_tokens * _or(rates.cached_usd, rates.input_usd)
            + cache_write_tokens * _or(rates.cache_write_usd, rates.input_usd)
            + output_tokens * rates.output_usd
        ) / MILLION


def _or(own: float | None, other: float) -> float:
    return other if own is None else own
