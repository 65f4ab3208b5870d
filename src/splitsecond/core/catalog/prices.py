"""Prices of targets: from the configuration, then the public price list, then the catalogue's own
files.

The list comes before the files because others keep it up to date; a file states a price only if the
list lacks it.

Run as a program (`lookup_in_child`), this module reads a `PriceQuery` from standard input and
prints a `PriceLookup`, both as JSON: a process that must stay small leaves the import of the list,
30 MB, to a child.
"""

import difflib
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct, structs

from splitsecond.core.catalog import price_list
from splitsecond.core.catalog.model import CatalogModel
from splitsecond.core.catalog.model_names import model_name
from splitsecond.core.catalog.price import Price
from splitsecond.core.catalog.provider import (
    TYPO_RATIO,
    Provider,
    is_foreign,
    provider,
    split_target,
)
from splitsecond.core.catalog.speed_tier import tier_price
from splitsecond.core.errors import CallerFault
from splitsecond.core.loading import module_command

CHILD_S = 30.0
"""Timeout of the child process. It needs one second on a slow machine."""


def price(target: str, overrides: Mapping[str, Price] | None = None) -> Price | None:
    """Return the price of "provider/model" at this hour; None if unknown (your own server, a
    simulator).

    `overrides`: prices by target, or by provider as "provider/*".
    """
    own_prices = overrides or {}
    return (
        own_prices.get(target)
        or own_prices.get(target.partition("/")[0] + "/*")
        or listing(target).price
    )


def prices(
    targets: Iterable[str], overrides: Mapping[str, Price] | None = None
) -> dict[str, Price | None]:
    return {target: price(target, overrides) for target in targets}


def listing(target: str) -> CatalogModel:
    """Return what the price list and the catalogue know of the model of a target."""
    owner = _owner(target)
    return _listing(owner, split_target(target)[1]) if owner else CatalogModel()


def _listing(owner: Provider, name: str) -> CatalogModel:
    name, tier = owner.split_tier(name)
    model = owner.model(name)
    listed = (
        price_list.listed_model(owner.prices, model.same_as or name)
        if owner.prices
        else CatalogModel()
    )
    price = listed.price or model.price
    if price is None and name not in owner.models:
        price = _price_of_same_model(owner, name)
    if price is not None and owner.tiers:
        price = tier_price(price, name, tier, owner.tiers, owner.standard_tiers)
    return structs.replace(
        model, price=price, context_tokens=model.context_tokens or listed.context_tokens
    )


def _price_of_same_model(owner: Provider, name: str) -> Price | None:
    """Return the price of the provider's models that are this one under another name; None if there
    are none, or their prices differ.

    Logs of OpenRouter name groq/openai/gpt-oss-120b as groq/gpt-oss-120b.
    """
    regular = model_name(name)
    same = [
        each.price
        for other, each in provider_models(owner).items()
        if each.price and model_name(other) == regular
    ]
    rates = [structs.replace(price, as_of="", source="") for price in same]
    return same[0] if same and all(each == rates[0] for each in rates) else None


def provider_models(owner: Provider) -> dict[str, CatalogModel]:
    listed = price_list.models(owner.prices) if owner.prices else {}
    models = {name: each for name, each in listed.items() if owner.has(name)}
    for name, model in owner.models.items():
        models.pop(model.same_as, None)
        models[name] = _listing(owner, name)
    return dict(sorted(models.items()))


class PriceQuery(Struct, frozen=True):
    targets: list[str]
    providers: list[str]


class PriceLookup(Struct, frozen=True):
    prices: dict[str, Price | None] = {}
    models: dict[str, list[str]] = {}
    context_tokens: dict[str, int] = {}


def lookup_in_child(
    targets: Iterable[str], providers: Iterable[str] = (), *, timeout_s: float = CHILD_S
) -> PriceLookup:
    """Look up the prices of `targets` and the models of `providers`, reading the public list in a
    child process.

    Blocks for about a second if the list has entries for any of them. Raises `CallerFault` if the
    child fails.
    """
    query = PriceQuery(list(targets), list(providers))
    owners = [*map(_owner, query.targets), *map(provider, query.providers)]
    if not any(owner is not None and owner.prices for owner in owners):
        return _lookup(query)
    try:
        ended = subprocess.run(
            module_command(__spec__.name),
            input=msgspec.json.encode(query),
            capture_output=True,
            timeout=timeout_s,
            check=True,
        )
        return msgspec.json.decode(ended.stdout, type=PriceLookup)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise CallerFault(f"the prices could not be looked up: {error}", kind="no_prices") from None


def _lookup(query: PriceQuery) -> PriceLookup:
    owners = [provider(name) for name in query.providers]
    models = {
        owner.name: _in_service(owner, price_list.models(owner.prices) if owner.prices else ())
        for owner in owners
    }
    listings = {target: listing(target) for target in query.targets}
    return PriceLookup(
        {target: each.price for target, each in listings.items()},
        models,
        {
            target: each.context_tokens
            for target, each in listings.items()
            if each.context_tokens is not None
        },
    )


def replacements(target: str, listed: Iterable[str] | None = None) -> tuple[str, list[str]]:
    """Return the day on which the model of a target was taken down ("" if it was not), and targets
    to use instead.

    The targets are of the same provider: the replacement that it names or its default model, or
    models with similar names. `listed`: the provider's models in the list; None: read the list.
    """
    owner = _owner(target)
    if owner is None:
        return "", []
    name, model = split_target(target)
    model, _ = owner.split_tier(model)
    if day := owner.model(model).retired:
        instead = owner.model(model).replaced_by or owner.default_model
        return day, [f"{name}/{instead}"] if instead else []
    names = _in_service(owner, provider_models(owner) if listed is None else listed)
    maker = model.rpartition("/")[0]
    same_maker = [each for each in names if each.startswith(f"{maker}/")] if maker else []
    if model in names:
        return "", []
    near = difflib.get_close_matches(model, same_maker or names, n=3, cutoff=0.6)
    return "", [f"{name}/{each}" for each in _typo_first(model, near, owner)]


def _typo_first(model: str, near: list[str], owner: Provider) -> list[str]:
    """Return the names `near` that of a model, with the one in front that it probably misspells, or
    its replacement."""
    retired = {
        each: about.replaced_by
        for each, about in owner.models.items()
        if about.retired and about.replaced_by
    }
    for gone in difflib.get_close_matches(model, [*near, *retired], n=1, cutoff=TYPO_RATIO):
        return list(dict.fromkeys([retired.get(gone, gone), *near]))[:3]
    return near


def replacement_hint(day: str, near: Sequence[str]) -> str:
    retired = f"The provider's retirement date of this model is {day}." if day else ""
    suggestion = f"Did you mean {' or '.join(near)}?" if near else ""
    return f"{retired} {suggestion}".strip()


def _in_service(owner: Provider, of_list: Iterable[str]) -> list[str]:
    names = dict.fromkeys([*owner.models, *filter(owner.has, of_list)])
    return [name for name in names if not owner.model(name).retired]


def _owner(target: str) -> Provider | None:
    if is_foreign(target.partition("/")[0]):
        return None
    try:
        return provider(split_target(target)[0])
    except CallerFault as fault:
        if fault.kind in ("unknown_provider", "bad_target"):
            return None
        raise


def main() -> None:
    query = msgspec.json.decode(sys.stdin.buffer.read(), type=PriceQuery)
    sys.stdout.buffer.write(msgspec.json.encode(_lookup(query)))
