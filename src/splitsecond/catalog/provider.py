"""The catalogue: one TOML file for each provider, read when it is asked for.

A file's name is the provider's name in a target: `groq.toml` makes `groq/openai/gpt-oss-120b` a target. Only what
cannot be asked from the provider stands there: where it is, which dialect it speaks, the names of its keys in the
environment, how it departs from its dialect, and what others have published of its speed. `quirks` is passed on as it
is; the dialect checks it.

A provider that runs in several places has `regions`. `qwen-cn/qwen-plus` is a target in the region `cn` of `qwen`.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any, Literal

import msgspec

from splitsecond.catalog.model import Model, Prefill
from splitsecond.catalog.provider_file import bad, check_address, parsed
from splitsecond.catalog.published import Distance
from splitsecond.errors import CallerFault

Auth = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "google"]
"""Where the key goes: ``Authorization: Bearer``, or the header of that name. "google": the key is an access token of
Google Cloud, or the path of a file of credentials that such tokens are made from.
"""


class Region(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of a provider's places. `api_key_env`: the variables of a key of its own; empty: the provider's key."""

    base_url: str
    api_key_env: tuple[str, ...] = ()


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider, or one region of it (`region` then says which, and `name` has it at its end).

    `base_url` may hold `{NAME}`, which is filled from the environment variable NAME (an account's own address), and
    `{model}`, where the model is part of the address.
    `api_key_env`: the variables that hold its key, in the order in which they are tried; empty: it takes no key.
    `auth`: how the key is sent (see `Auth`).
    `default_model`: a chat model that most keys may use, for where nobody named one; "": there is none.
    `prices`: its name in the public list of prices; "": the list has not this provider. `serves`: patterns of those
    models there that can be called at this address, as the list knows none; empty: all.
    `billed_by_hour`: one rents the machine, so that a token's price depends on how busy it is.
    `closing_stops_billing`: whether an answer that is closed early is billed only as far as it came; None: not known.
    `prefill`: whether it goes on from the beginning of an answer, and how it is told of that; None: not known.
    `error_in_200`: it may report an error in an answer of status 200.
    `regions`: its other places by name. `models`: what is known of some of its models, by their names.
    `distances`: what was published of how long the way to it is. `notes`: what else its caller should know.
    `checked`: the day on which address and names were last checked against `source`; "": not on its own pages.
    """

    name: str = ""
    region: str = ""
    title: str
    base_url: str
    dialect: str = "openai"
    api_key_env: tuple[str, ...] = ()
    auth: Auth = "bearer"
    headers: dict[str, str] = {}
    quirks: dict[str, Any] = {}
    default_model: str = ""
    prices: str = ""
    serves: tuple[str, ...] = ()
    billed_by_hour: bool = False
    closing_stops_billing: bool | None = None
    prefill: Prefill | None = None
    error_in_200: bool = False
    regions: dict[str, Region] = {}
    models: dict[str, Model] = {}
    distances: tuple[Distance, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""
    checked: str = ""

    def model(self, name: str) -> Model:
        """What is known of a model; an empty one where nothing is."""
        return self.models.get(name, _NOTHING)

    def has(self, listed: str) -> bool:
        """Whether a model that the list of prices has can be called here."""
        return not self.serves or any(fnmatchcase(listed, pattern) for pattern in self.serves)

    def continues(self, model: str) -> Prefill | None:
        """Whether, and how, a model goes on from the beginning of an answer; None: not known."""
        own = self.model(model).prefill
        return self.prefill if own is None else own

    def key_variable(self, environment: Mapping[str, str]) -> str:
        """The variable that holds its key in this environment; "" where none does."""
        return next((variable for variable in self.api_key_env if environment.get(variable, "").strip()), "")


_NOTHING = Model()
_WORD = re.compile(r"[a-z0-9]+")
MISSPELT = 0.85
"""How like a name must be to one of the catalogue's to be taken for it."""
OWN_SERVER = "Any OpenAI-compatible server works with --base-url URL --model NAME."


def names() -> list[str]:
    """Every provider in the catalogue, sorted, without their regions."""
    folder = resources.files(__package__) / "providers"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def provider(name: str, own_server: str = OWN_SERVER) -> Provider:
    """The provider of that name, or the region of one.

    Raises `CallerFault` for a name that the catalogue has not, with the nearest ones, and for a file that is wrong.
    `own_server`: what its hint says of servers that are in no catalogue.
    """
    known = names()
    if name in known:
        return _read(name)
    owners = [owner for owner in known if name.startswith(owner + "-")]
    for owner in sorted(owners, key=len, reverse=True):
        found, region = _read(owner), name.removeprefix(owner + "-")
        if region in found.regions:
            return _in_region(found, region)
        if found.regions:
            raise _unknown(
                f"{found.title} has no region {region!r}",
                name,
                [f"{owner}-{each}" for each in found.regions],
                own_server,
            )
    if owners and not difflib.get_close_matches(name, known, n=1, cutoff=MISSPELT):
        owner = max(owners, key=len)
        region = name.removeprefix(owner + "-")
        raise _unknown(
            f"the catalogue has no regions of {_read(owner).title}, so none called {region!r}", name, known, own_server
        )
    raise _unknown(f"unknown provider {name!r}", name, known, own_server, _known_for(name))


def _read(name: str) -> Provider:
    file = resources.files(__package__) / "providers" / f"{name}.toml"
    place = f"catalog/providers/{name}.toml"
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise bad(place, str(error)) from None
    found = parsed(place, text, Provider, {"models": Model, "regions": Region})
    check_address(f"{place}: base_url", found.base_url)
    for region, each in found.regions.items():
        check_address(f"{place}: regions.{region}.base_url", each.base_url)
    return msgspec.structs.replace(found, name=name)


def _in_region(found: Provider, region: str) -> Provider:
    place = found.regions[region]
    return msgspec.structs.replace(
        found,
        name=f"{found.name}-{region}",
        region=region,
        title=f"{found.title}, {region}",
        base_url=place.base_url,
        api_key_env=place.api_key_env or found.api_key_env,
    )


def _known_for(word: str) -> list[str]:
    """The providers with this word in their titles, as "google" or "kimi"; else those whose models begin with it."""
    everyone = [_read(name) for name in names()]
    titled = [each.name for each in everyone if word.lower() in _WORD.findall(each.title.lower())]
    return titled or [each.name for each in everyone if any(model.startswith(word.lower()) for model in each.models)]


def _unknown(what: str, name: str, known: Sequence[str], own_server: str, known_for: Sequence[str] = ()) -> CallerFault:
    near = list(dict.fromkeys([*known_for[:4], *difflib.get_close_matches(name, known, n=3, cutoff=0.5)]))
    return CallerFault(
        what,
        kind="unknown_provider",
        hint=(f"Did you mean {' or '.join(near)}? " if near else f"Known: {', '.join(known)}. ") + own_server,
    )


def split_target(target: str, own_server: str = OWN_SERVER) -> tuple[str, str]:
    """A target's provider and model: "groq/llama-3.1-8b-instant" → ("groq", "llama-3.1-8b-instant").

    Raises `CallerFault` for what is none; `own_server` as in `provider`.
    """
    name, slash, model = target.partition("/")
    if not slash or not name or not model:
        raise CallerFault(
            f"{target!r} is not a target: expected PROVIDER/MODEL",
            kind="bad_target",
            hint=f'For example "groq/openai/gpt-oss-120b". {own_server}',
        )
    return name, model


def fill_base_url(found: Provider, environment: Mapping[str, str]) -> str:
    """The provider's base URL with each `{NAME}` taken from the environment; `{model}` is left for who names one.

    Raises `CallerFault` where one is missing.
    """
    names_in_url = [name for part in found.base_url.split("{")[1:] if (name := part.partition("}")[0]) != "model"]
    missing = [name for name in names_in_url if not environment.get(name)]
    if missing:
        raise CallerFault(
            f"{found.title} needs {' and '.join(missing)} in the environment: part of its address {found.base_url}",
            kind="missing_setting",
            hint=f"For example: export {missing[0]}=...",
        )
    return found.base_url.format_map(
        {name: environment[name].rstrip("/") for name in names_in_url} | {"model": "{model}"}
    )
