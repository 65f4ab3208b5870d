"""Catalogue of providers: one TOML file each, read on demand.

A file's name is the provider's name in a target: `groq.toml` makes `groq/openai/gpt-oss-120b` a
target.

A provider that runs in several places has `regions`. `qwen-cn/qwen-plus` is a target in the region
`cn` of `qwen`, and so is `qwen:cn/qwen-plus`.
"""

import difflib
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any, Literal

import msgspec

from splitsecond.core.catalog.model import (
    CatalogModel,
    Prefill,
    PublishedDistance,
    PublishedHardware,
)
from splitsecond.core.catalog.price import Price, Tier
from splitsecond.core.catalog.speed_tier import SEPARATOR, SpeedTier
from splitsecond.core.errors import CallerFault
from splitsecond.core.validation import converted, nearest

Auth = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "google"]
"""How the key is sent: ``Authorization: Bearer``, or the header of that name. "google": the key is
an access token of Google Cloud, or the path of a credentials file from which such tokens are made.
"""


Credentials = Literal["gateway", "client"]
"""Whose credentials a request carries: the gateway's key, or those that the client sent with its
request."""


class Region(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One region of a provider. `api_key_env`: the variables of its own key; empty: the provider's
    key."""

    base_url: str
    api_key_env: tuple[str, ...] = ()


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how a provider is called; the same for a provider of the catalogue or of a
    configuration, and a target.

    `api_key_env`: the variables of its key, in the order in which they are tried; empty: it needs
    no key. `auth`: how the key is sent. `quirks`: deviations from the API format. `region`: the
    region in its name; "": none. `prefill`: whether and how it continues the beginning of a reply;
    None: not known. `credentials`: "client" for those of the client, so that no key of ours is
    needed.
    """

    base_url: str
    api_format: str = "openai"
    api_key_env: tuple[str, ...] = ()
    auth: Auth = "bearer"
    credentials: Credentials = "gateway"
    headers: dict[str, str] = {}
    quirks: dict[str, Any] = {}
    region: str = ""
    prefill: Prefill | None = None

    @property
    def access(self) -> dict[str, Any]:
        """The fields of `Access`, for another record."""
        return {name: getattr(self, name) for name in Access.__struct_fields__}

    def key_variable(self, environment: Mapping[str, str]) -> str:
        """Return the variable whose value is the key; "" if none of them is set."""
        return next(
            (variable for variable in self.api_key_env if environment.get(variable, "").strip()), ""
        )


class Provider(Access, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider, or one region of it (`region` is then set, and `name` ends with it).

    `base_url` may hold `{NAME}`, replaced by the environment variable NAME (an account's own
    address), and `{model}`, if the model is part of the address. `default_model`: a chat model that
    most keys may use; "": none. `prices`: its name in the public price list; "": not listed.
    `serves`: patterns of the listed models that can be called at this address, as the list has no
    addresses; empty: all. `billed_by_hour`: users rent the machine, so that the price of a token
    depends on the load. `closing_stops_billing`: whether a reply that is closed early is billed
    only up to there; None: not known. `error_in_200`: it may report an error in a response with
    status 200. `regions`: its other places by name. `tiers`: its speed tiers by name;
    `standard_tiers`: the words of an answer that none of them served. `any_region`: the pattern of
    all further ones: `<region>` in it is the name of the region, `<REGION>` the same in capitals
    for a variable (us-east1: US_EAST1); None: it has no others. `models`: what is known of some of
    its models, by name. `distances`: published latencies from far away. `hardware`: what its models
    run on; None: not known, or several kinds. `notes`: other facts that a
    caller should know. `checked`: the day on which address and names were last checked against
    `source`; "": not on its own pages.
    """

    name: str = ""
    title: str
    default_model: str = ""
    prices: str = ""
    serves: tuple[str, ...] = ()
    billed_by_hour: bool = False
    closing_stops_billing: bool | None = None
    error_in_200: bool = False
    regions: dict[str, Region] = {}
    any_region: Region | None = None
    tiers: dict[str, SpeedTier] = {}
    standard_tiers: tuple[str, ...] = ()
    models: dict[str, CatalogModel] = {}
    distances: tuple[PublishedDistance, ...] = ()
    hardware: PublishedHardware | None = None
    notes: tuple[str, ...] = ()
    source: str = ""
    checked: str = ""

    def model(self, name: str) -> CatalogModel:
        return self.models.get(name, _UNKNOWN_MODEL)

    def split_tier(self, model: str) -> tuple[str, str]:
        """Split the name of a model into the model and its speed tier: "gpt-5@flex" → ("gpt-5",
        "flex"); "": none.

        Raises `CallerFault` for a tier that is unknown. At a provider without tiers the name is the
        model's.
        """
        if not self.tiers or SEPARATOR not in model:
            return model, ""
        base, _, tier = model.rpartition(SEPARATOR)
        if tier not in self.tiers or not base:
            raise CallerFault(
                f"unknown tier {tier!r}; {self.name} has {', '.join(sorted(self.tiers))}",
                kind="unknown_tier",
                hint=nearest(tier, self.tiers)
                or f"For example {self.name}/{base or 'MODEL'}@{min(self.tiers)}.",
            )
        return base, tier

    def has(self, listed: str) -> bool:
        return not self.serves or any(fnmatchcase(listed, pattern) for pattern in self.serves)

    def continues(self, model: str) -> Prefill | None:
        own = self.model(model).prefill
        return self.prefill if own is None else own


_UNKNOWN_MODEL = CatalogModel()
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The names allowed in braces in an address: an environment variable, or ``model``."""
_REGION = re.compile(r"[a-z][a-z0-9-]*[a-z0-9]")
_WORD = re.compile(r"[a-z0-9]+")
TYPO_RATIO = 0.85
"""Similarity ratio (difflib) above which a name is taken as a misspelling of another."""
OWN_SERVER = "Any OpenAI-compatible server works, by its base URL."


def names() -> list[str]:
    return list(_names())


@functools.cache
def _names() -> tuple[str, ...]:
    folder = resources.files(__package__) / "providers"
    files = [entry.name for entry in folder.iterdir()]
    return tuple(sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml")))


def is_foreign(name: str) -> bool:
    """Return whether a name is neither that of a provider nor begins like one of its regions.

    Raises nothing, and reads no file: the message of `provider` for an unknown name reads all of
    them.
    """
    return not any(
        name == owner or name.startswith((f"{owner}-", f"{owner}:")) for owner in names()
    )


def provider(name: str, own_server: str = OWN_SERVER) -> Provider:
    """Return the provider, or the region of one, with this name.

    Raises `CallerFault` for an unknown name, with the nearest ones, and for an invalid file.
    """
    all_names = names()
    if name in all_names:
        return _read(name)
    owner, colon, region = name.partition(":")
    if colon and owner in all_names:
        return _of_any_region(_read(owner), region, own_server)
    owners = [owner for owner in all_names if name.startswith(owner + "-")]
    for owner in sorted(owners, key=len, reverse=True):
        entry, region = _read(owner), name.removeprefix(owner + "-")
        if region in entry.regions:
            return _in_region(entry, region)
        if entry.regions:
            raise _unknown(
                f"{entry.title} has no region {region!r}",
                name,
                [f"{owner}-{each}" for each in entry.regions],
                own_server,
            )
    if owners and not difflib.get_close_matches(name, all_names, n=1, cutoff=TYPO_RATIO):
        owner = max(owners, key=len)
        region = name.removeprefix(owner + "-")
        raise _unknown(
            f"{_read(owner).title} has no regions in the catalogue, so {region!r} is unknown",
            name,
            all_names,
            own_server,
        )
    raise _unknown(f"unknown provider {name!r}", name, all_names, own_server, _known_for(name))


@functools.cache
def _read(name: str) -> Provider:
    file = resources.files(__package__) / "providers" / f"{name}.toml"
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise _bad(f"catalog/providers/{name}.toml", str(error)) from None
    return _checked(name, text)


def _checked(name: str, text: str) -> Provider:
    place = f"catalog/providers/{name}.toml"
    entry = _parsed(place, text)
    _check_address(f"{place}: base_url", entry.base_url)
    if entry.any_region is not None:
        filled = entry.any_region.base_url.replace("<region>", "r").replace("<REGION>", "R")
        _check_address(f"{place}: any_region.base_url", filled)
    for region, each in entry.regions.items():
        _check_address(f"{place}: regions.{region}.base_url", each.base_url)
    return msgspec.structs.replace(entry, name=name)


def _parsed(file: str, text: str) -> Provider:
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _bad(file, str(error)) from None

    def fault(place: str, message: str, hint: str) -> CallerFault:
        return _bad(f"{file}: {place}" if place else file, message, hint)

    try:
        entry = msgspec.convert(raw, Provider)
    except msgspec.ValidationError:
        parts: dict[str, type[msgspec.Struct]] = {
            "models": CatalogModel,
            "regions": Region,
            "tiers": SpeedTier,
        }
        # msgspec names no keys of mappings, so each entry is converted by itself
        for table, part in parts.items():
            by_name = raw.get(table)
            for name, value in by_name.items() if isinstance(by_name, dict) else ():
                converted(f"{table}.{name}", value, part, fault)
        entry = converted("", raw, Provider, fault)
    for place, price, kind in _prices(raw):
        for field in price.keys() - set(kind.__struct_fields__):
            raise _bad(
                f"{file}: {place}",
                f"unknown field `{field}`",
                nearest(field, kind.__struct_fields__),
            )
    return entry


def _check_address(place: str, url: str) -> None:
    inside = [part.partition("}") for part in url.split("{")[1:]]
    if any(not brace or not _NAME.fullmatch(name) for name, brace, _ in inside):
        raise _bad(
            place, f"got {url}, expected a variable of the environment between each pair of braces"
        )
    if not url.startswith(("https://", "http://", "{")):
        raise _bad(place, f"got {url}, expected an address that begins with https:// or http://")
    if url.endswith("/"):
        raise _bad(place, f"got {url}, expected no / at the end: paths are added to it")


def _bad(place: str, message: str, hint: str = "") -> CallerFault:
    return CallerFault(f"{place}: {message}", kind="bad_catalogue", hint=hint)


def _prices(
    raw: Mapping[str, Any],
) -> Iterator[tuple[str, Mapping[str, Any], type[Price] | type[Tier]]]:
    for name, model in raw.get("models", {}).items():
        price = model.get("price", {})
        yield f"models.{name}.price", price, Price
        for number, tier in enumerate(price.get("tiers", ())):
            yield f"models.{name}.price.tiers[{number}]", tier, Tier


def _in_region(entry: Provider, region: str) -> Provider:
    place = entry.regions[region]
    return msgspec.structs.replace(
        entry,
        name=f"{entry.name}-{region}",
        region=region,
        title=f"{entry.title}, {region}",
        base_url=place.base_url,
        api_key_env=place.api_key_env or entry.api_key_env,
    )


def _of_any_region(entry: Provider, region: str, own_server: str) -> Provider:
    place = entry.regions.get(region)
    if place is None and entry.any_region is not None and _REGION.fullmatch(region):

        def filled(text: str) -> str:
            return text.replace("<region>", region).replace(
                "<REGION>", region.upper().replace("-", "_")
            )

        pattern = entry.any_region
        place = Region(
            base_url=filled(pattern.base_url), api_key_env=tuple(map(filled, pattern.api_key_env))
        )
    if place is None:
        near = [f"{entry.name}:{each}" for each in entry.regions]
        raise _unknown(
            f"{entry.title} has no region {region!r}", f"{entry.name}:{region}", near, own_server
        )
    regional = msgspec.structs.replace(entry, regions={region: place})
    return msgspec.structs.replace(_in_region(regional, region), name=f"{entry.name}:{region}")


def _known_for(word: str) -> list[str]:
    all_providers = [_read(name) for name in names()]
    titled = [
        each.name for each in all_providers if word.lower() in _WORD.findall(each.title.lower())
    ]
    return titled or [
        each.name
        for each in all_providers
        if any(model.startswith(word.lower()) for model in each.models)
    ]


def _unknown(
    what: str, name: str, possible: Sequence[str], own_server: str, known_for: Sequence[str] = ()
) -> CallerFault:
    near = list(
        dict.fromkeys([*known_for[:4], *difflib.get_close_matches(name, possible, n=3, cutoff=0.5)])
    )
    return CallerFault(
        what,
        kind="unknown_provider",
        hint=(
            f"Did you mean {' or '.join(near)}? "
            if near
            else f"Known: {', '.join(possible) or 'none'}. "
        )
        + own_server,
    )


def split_target(target: str, own_server: str = OWN_SERVER) -> tuple[str, str]:
    """Split a target into provider and model: "groq/llama-3.1-8b-instant" → ("groq",
    "llama-3.1-8b-instant").

    Raises `CallerFault` if it is not a target.
    """
    name, slash, model = target.partition("/")
    if not slash or not name or not model:
        raise CallerFault(
            f"{target!r} is not a target: expected PROVIDER/MODEL",
            kind="bad_target",
            hint=f'For example "groq/openai/gpt-oss-120b". {own_server}',
        )
    return name, model


def fill_base_url(entry: Provider, environment: Mapping[str, str]) -> str:
    """Return the provider's base URL with each `{NAME}` replaced from the environment; `{model}`
    stays.

    Raises `CallerFault` if a variable is missing.
    """
    names_in_url = [
        name
        for part in entry.base_url.split("{")[1:]
        if (name := part.partition("}")[0]) != "model"
    ]
    missing = [name for name in names_in_url if not environment.get(name)]
    if missing:
        raise CallerFault(
            f"{entry.title} needs {' and '.join(missing)} in the environment for its address "
            f"{entry.base_url}",
            kind="missing_setting",
            hint=f"For example: export {missing[0]}=...",
        )
    return entry.base_url.format_map(
        {name: environment[name].rstrip("/") for name in names_in_url} | {"model": "{model}"}
    )
