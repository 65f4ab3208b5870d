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


def provider_settings(name: str, config: ProviderConfig, secrets: Secrets) -> ProviderSettings:
    """Return the provider `name`. Raises `CallerFault` with the places of all errors."""
    place = f"providers.{name}"
    if not NAME.fullmatch(name):
        raise bad(place, "a provider's name has letters, digits, dots and dashes only")
    entry = catalogue_entry(name, config)
    api_format = config.api_format or entry.api_format
    base_url, headers, quirks, timeouts = "", dict(entry.headers), dict[str, Any](), TIMEOUTS
    mistakes = Mistakes()
    with mistakes:
        if api_format not in API_FORMATS:
            formats = ", ".join(API_FORMATS)
            raise bad(
                f"{place}.api_format",
                f"got {api_format}, expected one of {formats}",
                nearest(api_format, API_FORMATS),
            )
    with mistakes:
        if config.api_key:
            secrets.take(f"{place}.api_key", config.api_key)
    with mistakes:
        base_url = _base_url(place, config, entry, secrets)
    for key, value in config.headers.items():
        with mistakes:
            if config.trusted and key.lower() == "traceparent":
                hint = "Remove the header, or set trusted: false."
                raise bad(
                    f"{place}.headers.{key}",
                    "trusted: true gives each request its own traceparent",
                    hint,
                )
            headers[key] = header(place, key, value, secrets)
    with mistakes:
        quirks = _quirks(place, config, entry)
    with mistakes:
        timeouts = _timeouts(f"{place}.timeouts", config.timeouts)
    credentials = config.credentials or entry.credentials
    if credentials == "client":
        with mistakes:
            _check_client_credentials(place, config, api_format)
    mistakes.check()
    return ProviderSettings(
        like=entry.name,
        base_url=base_url,
        api_format=api_format,
        api_key_env=(config.api_key,)
        if config.api_key
        else ()
        if credentials == "client"
        else entry.api_key_env,
        auth=config.auth or _auth(api_format, entry),
        credentials=credentials,
        headers=headers,
        quirks=quirks,
        region=config.region or entry.region,
        prefill=config.prefill,
        account=config.account,
        price=config.price,
        models=config.models,
        timeouts=timeouts,
        trusted=config.trusted,
    )


def _check_client_credentials(place: str, config: ProviderConfig, api_format: str) -> None:
    if config.api_key:
        raise bad(
            f"{place}.credentials",
            "requests carry the client's own credentials, so api_key has no effect",
        )
    if api_format not in VENDORS:
        words = f"clients have no credentials for the API format {api_format}"
        raise bad(f"{place}.credentials", words, f"Possible with {listed(list(VENDORS))}.")


def catalogue_entry(name: str, config: ProviderConfig) -> Provider:
    place = f"providers.{name}"
    if config.base_url and not config.like and is_foreign(name):
        return Provider(title=name, base_url=config.base_url)
    try:
        entry = provider(config.like or name)
    except CallerFault as fault:
        if fault.kind != "unknown_provider":
            raise bad(place, fault.message, fault.hint) from None
        if config.like:
            near = nearest(config.like, _catalogued(config.like))
            raise bad(f"{place}.like", f"{config.like} is not in the catalogue", near) from None
        if config.base_url:
            return Provider(title=name, base_url=config.base_url)
        raise bad(
            place, "not in the catalogue, and without a base_url", nearest(name, _catalogued(name))
        ) from None
    return _in_region(place, entry, config)


def _in_region(place: str, entry: Provider, config: ProviderConfig) -> Provider:
    """Return `entry` in the given region. Raises `CallerFault` if the catalogue has only other
    regions of it.

    For a provider without regions in the catalogue, or another address, the region is only
    informative.
    """
    if config.region in entry.regions:
        return provider(f"{entry.name}-{config.region}")
    if config.region and entry.regions and not config.base_url:
        near = nearest(config.region, entry.regions) or f"It has {listed(sorted(entry.regions))}."
        words = f"the catalogue has no region {config.region} of {entry.title}"
        raise bad(f"{place}.region", words, f"{near} Or set its base_url there.")
    return entry


def _catalogued(name: str) -> list[str]:
    owners = [owner for owner in names() if name.startswith(f"{owner}-")]
    return [
        *(f"{owner}-{region}" for owner in owners for region in provider(owner).regions),
        *names(),
    ]


def _base_url(place: str, config: ProviderConfig, entry: Provider, secrets: Secrets) -> str:
    try:
        base_url = config.base_url or fill_base_url(entry, secrets.environment)
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


def _quirks(place: str, config: ProviderConfig, entry: Provider) -> dict[str, Any]:
    own = entry.quirks if (config.api_format or entry.api_format) == entry.api_format else {}
    quirks = {**own, **(config.quirks or {}), **({} if config.stream else {"stream_whole": False})}
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


def _timeouts(place: str, config: TimeoutsConfig) -> Timeouts:
    durations = {
        name: value
        for name in config.__struct_fields__
        if (value := getattr(config, name)) is not None
    }
    try:
        timeouts = {
            f"{name}_ms": max(1, Duration.parse(name, value).ns // 1_000_000)
            for name, value in durations.items()
        }
    except CallerFault as fault:
        raise bad(place, fault.message) from None
    return msgspec.structs.replace(TIMEOUTS, **timeouts)
