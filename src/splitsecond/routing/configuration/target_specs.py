"""Settings of a provider, from its entry in the configuration and its entry in the catalogue."""

import re
from typing import Any

import msgspec

from splitsecond.core.catalog.provider import (
    Auth,
    Provider,
    fill_base_url,
    is_foreign,
    names,
    provider,
)
from splitsecond.core.client_credentials import VENDORS
from splitsecond.core.errors import CallerFault
from splitsecond.core.transport.exchange import Origin
from splitsecond.core.upstream.spec import Timeouts
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.validation import nearest
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wording import listed
from splitsecond.routing.configuration.error_messages import Mistakes, bad, shaped
from splitsecond.routing.configuration.file_schema import ProviderConfig, TimeoutsConfig
from splitsecond.routing.configuration.secrets import Secrets, is_reference
from splitsecond.routing.machinery.settings import Duration
from splitsecond.routing.router.settings import TIMEOUTS, ProviderSettings

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SECRET = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})


def provider_settings(name: str, given: ProviderConfig, secrets: Secrets) -> ProviderSettings:
    """Return the provider `name`. Raises `CallerFault` with the places of all errors."""
    place = f"providers.{name}"
    if not NAME.fullmatch(name):
        raise bad(place, "a provider's name has letters, digits, dots and dashes only")
    entry = catalogue_entry(name, given)
    api_format = given.api_format or entry.api_format
    base_url, headers, quirks, timeouts = "", dict(entry.headers), dict[str, Any](), TIMEOUTS
    mistakes = Mistakes()
    with mistakes:
        if api_format not in API_FORMATS:
            known = ", ".join(API_FORMATS)
            raise bad(
                f"{place}.api_format",
                f"got {api_format}, expected one of {known}",
                nearest(api_format, API_FORMATS),
            )
    with mistakes:
        if given.api_key:
            secrets.take(f"{place}.api_key", given.api_key)
    with mistakes:
        base_url = _base_url(place, given, entry, secrets)
    for key, value in given.headers.items():
        with mistakes:
            if given.trusted and key.lower() == "traceparent":
                hint = "Remove the header, or set trusted: false."
                raise bad(
                    f"{place}.headers.{key}",
                    "trusted: true gives each request its own traceparent",
                    hint,
                )
            headers[key] = header(place, key, value, secrets)
    with mistakes:
        quirks = _quirks(place, given, entry)
    with mistakes:
        timeouts = _timeouts(f"{place}.timeouts", given.timeouts)
    credentials = given.credentials or entry.credentials
    if credentials == "client":
        with mistakes:
            _check_client_credentials(place, given, api_format)
    mistakes.check()
    return ProviderSettings(
        like=entry.name,
        base_url=base_url,
        api_format=api_format,
        api_key_env=(given.api_key,)
        if given.api_key
        else ()
        if credentials == "client"
        else entry.api_key_env,
        auth=given.auth or _auth(api_format, entry),
        credentials=credentials,
        headers=headers,
        quirks=quirks,
        region=given.region or entry.region,
        prefill=given.prefill,
        account=given.account,
        price=given.price,
        models=given.models,
        timeouts=timeouts,
        trusted=given.trusted,
    )


def _check_client_credentials(place: str, given: ProviderConfig, api_format: str) -> None:
    if given.api_key:
        raise bad(
            f"{place}.credentials",
            "requests carry the client's own credentials, so api_key has no effect",
        )
    if api_format not in VENDORS:
        words = f"clients have no credentials for the API format {api_format}"
        raise bad(f"{place}.credentials", words, f"Possible with {listed(list(VENDORS))}.")


def catalogue_entry(name: str, given: ProviderConfig) -> Provider:
    place = f"providers.{name}"
    if given.base_url and not given.like and is_foreign(name):
        return Provider(title=name, base_url=given.base_url)
    try:
        entry = provider(given.like or name)
    except CallerFault as fault:
        if fault.kind != "unknown_provider":
            raise bad(place, fault.message, fault.hint) from None
        if given.like:
            near = nearest(given.like, _catalogued(given.like))
            raise bad(f"{place}.like", f"{given.like} is not in the catalogue", near) from None
        if given.base_url:
            return Provider(title=name, base_url=given.base_url)
        raise bad(
            place, "not in the catalogue, and without a base_url", nearest(name, _catalogued(name))
        ) from None
    return _in_region(place, entry, given)


def _in_region(place: str, entry: Provider, given: ProviderConfig) -> Provider:
    """Return `entry` in the given region. Raises `CallerFault` if the catalogue has only other
    regions of it.

    For a provider without regions in the catalogue, or another address, the region is only
    informative.
    """
    if given.region in entry.regions:
        return provider(f"{entry.name}-{given.region}")
    if given.region and entry.regions and not given.base_url:
        near = nearest(given.region, entry.regions) or f"It has {listed(sorted(entry.regions))}."
        words = f"the catalogue has no region {given.region} of {entry.title}"
        raise bad(f"{place}.region", words, f"{near} Or set its base_url there.")
    return entry


def _catalogued(name: str) -> list[str]:
    owners = [owner for owner in names() if name.startswith(f"{owner}-")]
    return [
        *(f"{owner}-{region}" for owner in owners for region in provider(owner).regions),
        *names(),
    ]


def _base_url(place: str, given: ProviderConfig, entry: Provider, secrets: Secrets) -> str:
    try:
        base_url = given.base_url or fill_base_url(entry, secrets.environment)
    except CallerFault as fault:
        raise bad(place, fault.message, fault.hint) from None
    try:
        Origin.parse(base_url.replace("{model}", "model"))
    except CallerFault as fault:
        raise bad(f"{place}.base_url", fault.message, fault.hint) from None
    return base_url


def _auth(api_format: str, entry: Provider) -> Auth:
    return (
        entry.auth
        if api_format == entry.api_format or api_format not in names()
        else provider(api_format).auth
    )


def _quirks(place: str, given: ProviderConfig, entry: Provider) -> dict[str, Any]:
    own = entry.quirks if (given.api_format or entry.api_format) == entry.api_format else {}
    quirks = {**own, **(given.quirks or {}), **({} if given.stream else {"stream_whole": False})}
    shaped(f"{place}.quirks", quirks, Quirks)
    return quirks


def header(place: str, name: str, value: str, secrets: Secrets) -> str:
    place = f"{place}.headers.{name}"
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
        raise bad(place, "this header cannot be set")
    if is_reference(value) or _SECRET.search(name):
        return secrets.take(place, value)
    if not value.isascii() or not value.isprintable():
        raise bad(place, "the value has characters that no HTTP header can carry")
    return value


def _timeouts(place: str, given: TimeoutsConfig) -> Timeouts:
    said = {
        name: value
        for name in given.__struct_fields__
        if (value := getattr(given, name)) is not None
    }
    try:
        found = {
            f"{name}_ms": max(1, Duration.parse(name, value).ns // 1_000_000)
            for name, value in said.items()
        }
    except CallerFault as fault:
        raise bad(place, fault.message) from None
    return msgspec.structs.replace(TIMEOUTS, **found)
