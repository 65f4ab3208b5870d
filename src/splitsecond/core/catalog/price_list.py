"""Access to the public price list `genai-prices`, which others keep up to date. Only this file
imports it.

The import takes 0.3 s and 30 MB, mostly for libraries that it needs for other purposes, so it
happens at the first use.
"""

from datetime import date
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from splitsecond.core import clock
from splitsecond.core.catalog.model import CatalogModel
from splitsecond.core.catalog.price import Price, Tier
from splitsecond.core.loading import loading

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

_KINDS = {
    "input_usd": "input_mtok",
    "output_usd": "output_mtok",
    "cached_usd": "cache_read_mtok",
    "cache_write_usd": "cache_write_mtok",
}
"""The names of the rates here, and in the list."""


@cache
def _library() -> ModuleType:
    with loading():
        from genai_prices import data_snapshot

        data_snapshot.get_snapshot()
    return data_snapshot


def listed_model(provider: str, model: str) -> CatalogModel:
    try:
        _, entry = _library().get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return CatalogModel()
    return CatalogModel(price=_price(entry, _as_of()), context_tokens=entry.context_window)


def models(provider: str) -> dict[str, CatalogModel]:
    library = _library()
    entry = library.find_provider_by_id(library.get_snapshot().providers, provider)
    current = [model for model in (entry.models if entry else ()) if not model.deprecated]
    as_of = _as_of()
    priced = [
        (
            _request_name(model),
            CatalogModel(price=_price(model, as_of), context_tokens=model.context_window),
        )
        for model in current
    ]
    return {name: each for name, each in priced if each.price and each.price.output_usd}


def _request_name(model: "ModelInfo") -> str:
    if model.is_match(model.id):
        return model.id
    exact: str | None = getattr(model.match, "equals", None)
    return exact or model.id


def _price(model: "ModelInfo", as_of: str) -> Price | None:
    import genai_prices

    prices = model.get_prices(clock.wall_time()) if model.prices else None
    if prices is None or prices.input_mtok is None:
        return None
    starts = sorted(
        {
            tier.start
            for kind in _KINDS.values()
            for tier in getattr(getattr(prices, kind), "tiers", ())
        }
    )
    return Price(
        **_rates(prices, 0),
        tiers=tuple(Tier(above_tokens=start, **_rates(prices, start + 1)) for start in starts),
        as_of=as_of,
        source=f"genai-prices {genai_prices.__version__}",
    )


def _rates(prices: "ModelPrice", input_tokens: int) -> dict[str, Any]:
    rates = {}
    for ours, theirs in _KINDS.items():
        rate = getattr(prices, theirs)
        if hasattr(rate, "tiers"):  # the last tier below the length applies to all tokens
            rate = ([rate.base] + [tier.price for tier in rate.tiers if input_tokens > tier.start])[
                -1
            ]
        if rate is not None:
            rates[ours] = float(rate)
    return {"output_usd": 0.0} | rates


def _as_of() -> str:
    from genai_prices.data_snapshot import get_snapshot

    today = clock.wall_time().date()
    changes = (
        getattr(conditional.constraint, "start_date", date.min)
        for provider in get_snapshot().providers
        for model in provider.models
        if isinstance(model.prices, list)
        for conditional in model.prices
    )
    return max((day for day in changes if day <= today), default=date.min).isoformat()
