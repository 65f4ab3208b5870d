"""Warnings about a configuration that is valid, but probably not what the operator wants."""

import glob
import ipaddress
from collections.abc import Iterator
from difflib import SequenceMatcher
from urllib.parse import urlsplit

from splitsecond.core.catalog.prices import PriceLookup, prices, replacements
from splitsecond.core.catalog.provider import TYPO_RATIO, split_target
from splitsecond.core.errors import CallerFault
from splitsecond.core.redaction import redacted
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.routing.construction.expression import first, targets
from splitsecond.routing.router.settings import provider
from splitsecond.routing.router.target_directory import TargetDirectory

DAYS_OF_MONTH = 31


def problems(settings: GatewaySettings) -> Iterator[str]:
    yield from _unusable_providers(settings)
    if _has_spending_limits(settings):
        yield from _free_providers(settings)
    for pattern in settings.seeds:
        if not glob.glob(pattern):
            yield f"seeds: no folder matches {pattern}."
    yield from _retired_models(settings)
    yield from _forgotten_months(settings)
    yield from _splits_by_absent_keys(settings)
    if not settings.routes:
        yield 'there are no routes: clients can only name targets as "provider/model".'


def _unusable_providers(settings: GatewaySettings) -> Iterator[str]:
    for name, own in settings.providers.items():
        try:
            settings.spec(f"{name}/any")
        except CallerFault as fault:
            yield f"providers.{name}: {fault.message}; it cannot be used."
        if own.api_key_env and _in_clear(own.base_url):
            yield (
                f"providers.{name}: our key is sent to {redacted(own.base_url)} unencrypted. "
                f"Use https."
            )


def _free_providers(settings: GatewaySettings) -> Iterator[str]:
    if settings.require_prices:
        return
    for name, own in settings.providers.items():
        if not own.like and own.price is None:
            yield (
                f"providers.{name}: it has no price, so it is free for keys with a limit in USD, "
                f"except models with a price of their own. Set price, also if it is free; with "
                f"require_prices: true such calls are refused."
            )


def _retired_models(settings: GatewaySettings) -> Iterator[str]:
    for route, target, like in _catalogued(settings):
        model = provider(like).model(settings.split_tier(target)[0])
        if model.retired:
            instead = f"; its replacement is {model.replaced_by}" if model.replaced_by else ""
            yield (
                f"routes.{route}: the provider of {target} retires it on {model.retired}{instead}. "
                f"See: splitsecond models {like}"
            )


def _splits_by_absent_keys(settings: GatewaySettings) -> Iterator[str]:
    if settings.keys:
        return
    for route, policy in settings.routes.items():
        split = first(policy, "split")
        if split is not None and dict(split.settings).get("by") == "key":
            yield (
                f"routes.{route}: it is split by key, and there are no keys, so each call is "
                f"assigned by itself. Configure keys, or leave out by."
            )


def misspelt(settings: GatewaySettings) -> Iterator[str]:
    """Yield warnings about unknown models in routes whose names are similar to a known one.

    Reads the public price list, which takes half a second and much memory.
    """
    for route, target, like in _catalogued(settings):
        name, model = split_target(target)[0], settings.split_tier(target)[0]
        day, near = replacements(f"{like}/{model}")
        if day or not near:
            continue
        # or one of these is near
        gone = (each for each, about in provider(like).models.items() if about.replaced_by)
        nearest = split_target(near[0])[1]
        if any(
            SequenceMatcher(None, model, each).ratio() >= TYPO_RATIO for each in (nearest, *gone)
        ):
            yield f"routes.{route}: {target} is unknown. Did you mean {name}/{nearest}?"


def unpriced(settings: GatewaySettings) -> Iterator[str]:
    if not _has_spending_limits(settings):
        return
    directory = TargetDirectory(settings)
    listed = (f"{like}/{split_target(target)[1]}" for _, target, like in _catalogued(settings))
    directory.learn(PriceLookup(prices(listed)))
    for route, policy in settings.routes.items():
        for target in targets(policy):
            if directory.price_state(target) == "missing":
                yield (
                    f"routes.{route}: {target} has no known price. Keys with "
                    f"a limit in USD cannot use it."
                )


def _has_spending_limits(settings: GatewaySettings) -> bool:
    return any(bearer.in_usd for key in settings.keys for bearer in key.bearers)


def _forgotten_months(settings: GatewaySettings) -> Iterator[str]:
    """Warn if a restart would forget what was spent of a budget by the month."""
    monthly = (
        bearer.name
        for key in settings.keys
        for bearer in key.bearers
        if bearer.usd_per_month is not None
    )
    name = next(monthly, None)
    if name is None or settings.shared is not None:  # the database of a fleet keeps the sums
        return
    if settings.log is None:
        yield (
            f"usd_per_month of {name}: without a log, each start of the gateway forgets what was "
            f"spent in the month. Set log."
        )
    elif settings.log.keep_days < DAYS_OF_MONTH:
        yield (
            f"log.keep_days: {settings.log.keep_days} is less than a month, so a start of the "
            f"gateway forgets a part of what {name} has spent of usd_per_month. "
            f"Set {DAYS_OF_MONTH} or more."
        )


def _catalogued(settings: GatewaySettings) -> Iterator[tuple[str, str, str]]:
    for route, policy in settings.routes.items():
        for target in targets(policy):
            if like := settings.about(target).like:
                yield route, target, like


def _in_clear(url: str) -> bool:
    place = urlsplit(url)
    if place.scheme != "http":
        return False
    host = place.hostname or ""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith((".local", ".internal"))
