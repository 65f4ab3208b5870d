"""Model, maker and host of a target, by its name.

Providers name one model differently: claude-3-sonnet-20240229 is
anthropic.claude-3-sonnet-20240229-v1:0 on Bedrock and claude-3-sonnet@20240229 on Vertex AI.
`model_names.toml` has the rules that make names regular, aliases where there is no rule, and the
companies that make and run models. Two snapshots of a model are two models, because their speeds
may differ; a name without a date is a snapshot's alias only if the maker published one snapshot.
"""

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import resources

from msgspec import Struct, toml

from splitsecond.core.catalog.provider import is_foreign, names, provider
from splitsecond.core.catalog.speed_tier import SEPARATOR
from splitsecond.core.errors import CallerFault

_PASSES = 6
"""Most times that the rules are applied to a name."""
OWN_MACHINE = "own machine"


class _Rule(Struct, frozen=True, forbid_unknown_fields=True):
    find: str
    why: str
    put: str = ""


class Capabilities(Struct, frozen=True):
    """What a model takes in a request; None: not known."""

    tools: bool | None = None
    images: bool | None = None


class _KnownCapabilities(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    models: list[str]
    tools: bool | None = None
    images: bool | None = None
    source: str
    checked: str


class _Names(Struct, frozen=True, forbid_unknown_fields=True):
    rules: list[_Rule]
    aliases: dict[str, list[str]]
    makers: dict[str, list[str]]
    hosts: dict[str, list[str]]
    capabilities: list[_KnownCapabilities]


class Identity(Struct, frozen=True, kw_only=True):
    """Maker, host and model of a target, read from its name. `provider` is as in the name; `region`
    is "" for none.

    `model`: the regular name of the model; the target itself if it has none. `maker`: the company
    that made it, "" if unknown. `host`: the company that runs the provider, or the provider's name.
    """

    target: str
    provider: str
    region: str
    model: str
    maker: str
    host: str

    @property
    def hosting(self) -> str:
        if self.host == OWN_MACHINE:
            return "run on own machines"
        if not self.maker:
            return "unknown maker"
        return "run by the maker" if self.host == self.maker else "run by another company"

    @property
    def hardware(self) -> str:
        base, _ = _base(self.provider)
        hardware = provider(base).hardware if base in names() else None
        return hardware.kind if hardware else "unknown hardware"


@lru_cache(maxsize=65_536)
def identify(target: str) -> Identity:
    name, _, model = target.partition("/")
    base, region = _base(name)
    model = _without_tier(name, model)
    regular = model_name(model) or target
    hosts = {each: company for company, run in _names().hosts.items() for each in run}
    return Identity(
        target=target,
        provider=name,
        region=region,
        model=regular,
        maker=_maker(regular),
        host=hosts.get(base, base),
    )


@lru_cache(maxsize=65_536)
def model_name(name: str) -> str:
    model = name.rpartition("/")[2].lower()
    aliases = {alias: regular for regular, others in _names().aliases.items() for alias in others}
    for _ in range(_PASSES):
        before = model
        for find, put in _rules():
            model = find.sub(put, aliases.get(model, model))
        if model == before:
            break
    return aliases.get(model, model)


def capabilities(model: str) -> Capabilities:
    """Return what the model of this name takes, by the entries of all providers that have it and by
    `model_names.toml`.

    Entries that contradict each other leave it unknown.
    """
    return _capabilities_by_model().get(model_name(model), Capabilities())


@cache
def _capabilities_by_model() -> dict[str, Capabilities]:
    stated: dict[str, list[tuple[bool | None, bool | None]]] = {}
    for name in names():
        for model, entry in provider(name).models.items():
            stated.setdefault(model_name(model), []).append((entry.tools, entry.images))
    for table in _names().capabilities:
        for model in table.models:
            stated.setdefault(model, []).append((table.tools, table.images))
    return {
        model: Capabilities(*(_agreed(column) for column in zip(*values, strict=True)))
        for model, values in stated.items()
    }


def _agreed(stated: Iterable[bool | None]) -> bool | None:
    values = {each for each in stated if each is not None}
    return values.pop() if len(values) == 1 else None


def _maker(model: str) -> str:
    for maker, beginnings in _names().makers.items():
        if any(
            each[1:] in model if each[0] == "*" else model.startswith(each) for each in beginnings
        ):
            return maker
    return ""


def _base(name: str) -> tuple[str, str]:
    provider_name, _, region = name.partition(":")
    if region or provider_name in names():
        return provider_name, region
    if is_foreign(name):  # a server of the user's own
        return name, ""
    try:
        region = provider(name).region
    except CallerFault:  # the first part is not the name of a provider
        return name, ""
    return name.removesuffix(f"-{region}"), region


def _without_tier(provider_name: str, model: str) -> str:
    if SEPARATOR not in model:
        return model
    try:
        return provider(provider_name).split_tier(model)[0]
    except CallerFault:  # not of the catalogue, or a tier of another time
        return model


@cache
def _names() -> _Names:
    return toml.decode(
        (resources.files(__package__) / "model_names.toml").read_bytes(), type=_Names
    )


@cache
def _rules() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(rule.find), rule.put) for rule in _names().rules]
