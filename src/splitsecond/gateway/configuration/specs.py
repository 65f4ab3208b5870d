"""A provider's entry in the configuration, and the catalogue's, made into the spec of its targets."""

import re
from typing import Any

import msgspec

from splitsecond.analysis.wording import listed
from splitsecond.catalog.provider import Auth, Provider, fill_base_url, names, provider
from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration.mistakes import bad, meant, shaped
from splitsecond.gateway.configuration.secrets import Secrets, is_reference
from splitsecond.gateway.configuration.settings import TIMEOUTS, Known
from splitsecond.gateway.configuration.shape import ProviderGiven, TimeoutsGiven
from splitsecond.policy.settings import duration
from splitsecond.transport.exchange import Origin
from splitsecond.upstream.spec import TargetSpec, Timeouts
from splitsecond.upstream.target import DIALECTS
from splitsecond.wire.dialect import Quirks

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SECRET = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})


def spec(name: str, given: ProviderGiven, secrets: Secrets) -> TargetSpec:
    """The spec of any target of the provider `name`. Raises `CallerFault` with the place of what is wrong."""
    place = f"providers.{name}"
    if not NAME.fullmatch(name):
        raise bad(place, "a provider's name has letters, digits, dots and dashes only")
    entry = catalogue_entry(name, given)
    dialect = given.dialect or entry.dialect
    if dialect not in DIALECTS:
        raise bad(f"{place}.dialect", f"got {dialect}, expected one of {', '.join(DIALECTS)}", meant(dialect, DIALECTS))
    if given.api_key:
        secrets.take(f"{place}.api_key", given.api_key)
    return TargetSpec(
        name=name,
        model="",
        base_url=_base_url(place, given, entry, secrets),
        dialect=dialect,
        api_key_env=(given.api_key,) if given.api_key else entry.api_key_env,
        auth=given.auth or _auth(dialect, entry),
        headers=entry.headers | {key: _header(place, key, value, secrets) for key, value in given.headers.items()},
        quirks=_quirks(place, given, entry),
        timeouts=_timeouts(f"{place}.timeouts", given.timeouts),
    )


def known(name: str, given: ProviderGiven) -> Known:
    """What else the entry says of the provider."""
    entry = catalogue_entry(name, given)
    region = given.region or entry.region
    return Known(
        like=entry.name,
        region=region,
        account=given.account,
        price=given.price,
        prefill=given.prefill,
        models=given.models,
    )


def catalogue_entry(name: str, given: ProviderGiven) -> Provider:
    """The catalogue's entry, in the region that is given, or what stands for it; then it has no name."""
    place = f"providers.{name}"
    try:
        entry = provider(given.like or name)
    except CallerFault as fault:
        if fault.kind != "unknown_provider":
            raise bad(place, fault.message, fault.hint) from None
        if given.like:
            near = meant(given.like, _catalogued(given.like))
            raise bad(f"{place}.like", f"{given.like} is not in the catalogue", near) from None
        if given.base_url:
            return Provider(title=name, base_url=given.base_url)
        raise bad(place, "it is not in the catalogue, and has no base_url", meant(name, _catalogued(name))) from None
    return _in_region(place, entry, given)


def _in_region(place: str, entry: Provider, given: ProviderGiven) -> Provider:
    """`entry` in the region that is given. Raises `CallerFault` where the catalogue has others of it, but not that one.

    Of a provider without regions in the catalogue, and of another address, it only says where that is.
    """
    if given.region in entry.regions:
        return provider(f"{entry.name}-{given.region}")
    if given.region and entry.regions and not given.base_url:
        near = meant(given.region, entry.regions) or f"It has {listed(sorted(entry.regions))}."
        words = f"the catalogue has no region {given.region} of {entry.title}"
        raise bad(f"{place}.region", words, f"{near} Or give the base_url that it has there.")
    return entry


def _catalogued(name: str) -> list[str]:
    """The providers that `name` may be meant for: all, and the regions of those whose name it begins with."""
    owners = [owner for owner in names() if name.startswith(f"{owner}-")]
    return [*(f"{owner}-{region}" for owner in owners for region in provider(owner).regions), *names()]


def _base_url(place: str, given: ProviderGiven, entry: Provider, secrets: Secrets) -> str:
    try:
        base_url = given.base_url or fill_base_url(entry, secrets.environment)
    except CallerFault as fault:
        raise bad(place, fault.message, fault.hint) from None
    try:
        Origin.parse(base_url.replace("{model}", "model"))
    except CallerFault as fault:
        raise bad(f"{place}.base_url", fault.message, fault.hint) from None
    return base_url


def _auth(dialect: str, entry: Provider) -> Auth:
    """Who speaks another dialect than its entry takes the key as the makers of that dialect do."""
    return entry.auth if dialect == entry.dialect or dialect not in names() else provider(dialect).auth


def _quirks(place: str, given: ProviderGiven, entry: Provider) -> dict[str, Any]:
    """Those that are given, over those of the catalogue; of another dialect the catalogue's say nothing."""
    own = entry.quirks if (given.dialect or entry.dialect) == entry.dialect else {}
    quirks = {**own, **(given.quirks or {}), **({} if given.stream else {"stream_whole": False})}
    shaped(f"{place}.quirks", quirks, Quirks)
    return quirks


def _header(place: str, name: str, value: str, secrets: Secrets) -> str:
    place = f"{place}.headers.{name}"
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
        raise bad(place, "this header cannot be set")
    if is_reference(value) or _SECRET.search(name):
        return secrets.take(place, value)
    if not value.isascii() or not value.isprintable():
        raise bad(place, "the value has characters that no HTTP header can carry")
    return value


def _timeouts(place: str, given: TimeoutsGiven) -> Timeouts:
    said = {name: value for name in given.__struct_fields__ if (value := getattr(given, name)) is not None}
    try:
        found = {f"{name}_ms": max(1, duration(name, value) // 1_000_000) for name, value in said.items()}
    except CallerFault as fault:
        raise bad(place, fault.message) from None
    return msgspec.structs.replace(TIMEOUTS, **found)
