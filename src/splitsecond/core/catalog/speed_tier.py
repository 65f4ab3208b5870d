"""Speed tiers: faster or cheaper service of the same model, for another price.

A tier is a part of a target's name: `anthropic/claude-opus-5@fast` is a target beside
`anthropic/claude-opus-5`, with a price and statistics of its own. The answer names the tier that
served it, which may be another one.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from msgspec import Struct, structs

from splitsecond.core.catalog.price import Price

SEPARATOR = "@"


class TierPrice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of a tier for the models that match one of `models`: `factor` times their standard
    price."""

    models: tuple[str, ...]
    factor: float


class SpeedTier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One speed tier of a provider.

    `field`: the field of a request that names the tier; `value`: its value there. `betas`: the beta
    features that it needs (Anthropic). `granted`: the words by which an answer says that this tier
    served it. `prices`: the first entry that matches a model counts; a model without one has no
    known price. `checked`: the day on which `source` said so.
    """

    field: str
    value: str
    granted: tuple[str, ...]
    betas: str = ""
    prices: tuple[TierPrice, ...] = ()
    source: str = ""
    checked: str = ""

    def factor(self, model: str) -> float | None:
        for price in self.prices:
            if any(fnmatchcase(model, pattern) for pattern in price.models):
                return price.factor
        return None

    @property
    def quirks(self) -> dict[str, object]:
        return {"extra_fields": {self.field: self.value}} | (
            {"betas": self.betas} if self.betas else {}
        )


def tier_price(
    standard: Price,
    model: str,
    name: str,
    tiers: Mapping[str, SpeedTier],
    standard_words: tuple[str, ...],
) -> Price | None:
    factor = tiers[name].factor(model) if name else 1.0
    if factor is None:
        return None
    by_tier = factors(model, name, tiers, standard_words)
    if not name:
        return structs.replace(standard, by_tier=by_tier)
    source = f"{standard.source}, {factor:g} times the standard price"
    return structs.replace(standard.scaled(factor), by_tier=by_tier, source=source)


def factors(
    model: str, name: str, tiers: Mapping[str, SpeedTier], standard_words: tuple[str, ...]
) -> dict[str, float]:
    own = tiers[name].factor(model) if name else 1.0
    if own is None:
        return {}
    served = dict.fromkeys(standard_words, 1.0)
    for tier in tiers.values():
        if (factor := tier.factor(model)) is not None:
            served |= dict.fromkeys(tier.granted, factor)
    return {word: factor / own for word, factor in served.items() if factor != own}
