"""Problems of a configuration: what is not wrong in itself, but hardly meant."""

import glob
import ipaddress
from collections.abc import Iterator
from difflib import SequenceMatcher
from urllib.parse import urlsplit

from splitsecond.catalog.prices import instead_of
from splitsecond.catalog.provider import MISSPELT, split_target
from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration.settings import Settings, provider
from splitsecond.policy.expression import targets


def problems(settings: Settings) -> Iterator[str]:
    """What is hardly meant."""
    for name, spec in settings.providers.items():
        try:
            settings.spec(f"{name}/any")
        except CallerFault as fault:
            yield f"providers.{name}: {fault.message}; it cannot be asked."
        if spec.api_key_env and _in_clear(spec.base_url):
            yield f"providers.{name}: our key goes to {spec.base_url} unencrypted. Use https."
    for pattern in settings.seeds:
        if not glob.glob(pattern):
            yield f"seeds: there is no {pattern}."
    for route, target, like in _catalogued(settings):
        known = provider(like).model(split_target(target)[1])
        if known.retired:
            instead = f", which names {known.replaced_by} in its place" if known.replaced_by else ""
            yield (
                f"routes.{route}: {target} is taken down on {known.retired} by its provider{instead}. "
                f"See: splitsecond models {like}"
            )
    if not settings.routes:
        yield 'there are no routes: clients can only name targets, as "provider/model".'


def misspelt(settings: Settings) -> Iterator[str]:
    """Models of routes that nobody here knows, and that are called almost like one. Reads the public list of prices,
    which takes half a second and much memory."""
    for route, target, like in _catalogued(settings):
        name, model = split_target(target)
        day, near = instead_of(f"{like}/{model}")
        if day or not near:
            continue
        gone = (each for each, about in provider(like).models.items() if about.replaced_by)  # it is that which is near
        nearest = split_target(near[0])[1]
        if any(SequenceMatcher(None, model, each).ratio() >= MISSPELT for each in (nearest, *gone)):
            yield f"routes.{route}: {target} is not known here. Did you mean {name}/{nearest}?"


def _catalogued(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Every target of a route whose provider is in the catalogue, with the route and that provider."""
    for route, policy in settings.routes.items():
        for target in targets(policy):
            if like := settings.about(target).like:
                yield route, target, like


def _in_clear(base_url: str) -> bool:
    """Whether what is sent there can be read on its way through other people's networks."""
    place = urlsplit(base_url)
    if place.scheme != "http":
        return False
    host = place.hostname or ""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith((".local", ".internal"))
