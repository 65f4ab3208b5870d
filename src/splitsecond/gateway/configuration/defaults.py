"""A gateway that nobody configured: the providers whose keys are in the environment, and one route over all of them."""

from collections.abc import Mapping

from splitsecond.catalog.provider import Provider, fill_base_url, names, provider
from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration.settings import Settings
from splitsecond.policy.expression import Expression, Rule, TargetName

ROUTE = "default"
_FOR_INFERENCE = ("_API_KEY", "_API_TOKEN")
"""How variables end that hold a key for this and nothing else. Who has a GITHUB_TOKEN has not asked for a model."""


def unconfigured(environment: Mapping[str, str]) -> Settings:
    """The settings without a file: the route `default` over a well-known model of each provider that is `present`."""
    names = [f"{each.name}/{each.default_model}" for each in present(environment)]
    routes = {ROUTE: _policy(names)} if names else {}
    return Settings(environment=dict(environment), routes=routes)


def present(environment: Mapping[str, str]) -> list[Provider]:
    """The providers whose key and address are there, by name; of two that take the same key only the first."""
    first: dict[str, Provider] = {}
    for each in _keyed():
        key = next((environment[name] for name in _variables(each) if environment.get(name)), "")
        if key and each.default_model and key not in first and _has_address(each, environment):
            first[key] = each
    return list(first.values())


def found(settings: Settings) -> str:
    """What `unconfigured` made of the environment, for whoever started the gateway."""
    if ROUTE in settings.routes:
        return f"no configuration; the route {ROUTE} is {settings.routes[ROUTE]!r}"
    looked_at = dict.fromkeys(name for each in _keyed() if each.default_model for name in _variables(each))
    local = [name for name in names() if not provider(name).api_key_env]
    return (
        f"no configuration, and no provider's key in the environment ({', '.join(looked_at)}); "
        f"clients can still name targets that take no key: {', '.join(f'{name}/MODEL' for name in local)}"
    )


def _variables(entry: Provider) -> list[str]:
    return [name for name in entry.api_key_env if name.endswith(_FOR_INFERENCE)]


def _keyed() -> list[Provider]:
    entries = map(provider, names())
    return [each for each in entries if each.api_key_env]


def _has_address(found: Provider, environment: Mapping[str, str]) -> bool:
    try:
        fill_base_url(found, environment)
    except CallerFault:
        return False
    return True


def _policy(targets: list[str]) -> Expression:
    """The one that should answer first; where it fails, each in turn."""
    branches = tuple(map(TargetName, targets))
    if len(branches) == 1:
        return branches[0]
    return Rule("fallback", (Rule("fastest", branches), *branches))
