"""Default settings: all providers whose keys are in the environment, and one route over them."""

from collections.abc import Mapping

from splitsecond.core.catalog.provider import Provider, fill_base_url, names, provider
from splitsecond.core.errors import CallerFault
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.routing.construction.expression import Expression, PolicyExpression, TargetName
from splitsecond.routing.router.settings import NO_SIMULATOR, SIMULATED, simulated

ROUTE = "default"
KEYS_TO_NAME = "OPENAI_API_KEY, ANTHROPIC_API_KEY or GROQ_API_KEY"
"""Examples in the message of a gateway without keys."""
_FOR_INFERENCE = ("_API_KEY", "_API_TOKEN")
"""Endings of variables whose keys are only for inference. A GITHUB_TOKEN alone does not select
GitHub Models."""


def unconfigured(environment: Mapping[str, str], simulator: str = NO_SIMULATOR) -> GatewaySettings:
    names = [f"{each.name}/{each.default_model}" for each in present(environment)]
    routes = {ROUTE: _policy(names)} if names else {}
    return GatewaySettings(
        environment=dict(environment), routes=routes, providers=simulated(simulator)
    )


def present(environment: Mapping[str, str]) -> list[Provider]:
    first: dict[str, Provider] = {}
    for each in _keyed():
        key = next((environment[name] for name in _variables(each) if environment.get(name)), "")
        if key and each.default_model and key not in first and _has_address(each, environment):
            first[key] = each
    return list(first.values())


def found(settings: GatewaySettings) -> str:
    if ROUTE in settings.routes:
        return f"no configuration; the route {ROUTE} is {settings.routes[ROUTE]!r}"
    local = [SIMULATED, *(name for name in names() if not provider(name).api_key_env)]
    return (
        "no configuration (`splitsecond init` writes one), and no provider's key in the "
        "environment, such as "
        f"{KEYS_TO_NAME} (`splitsecond providers` lists all); clients can still name targets that "
        f"need no key: "
        f"{', '.join(f'{name}/MODEL' for name in local)}"
    )


def _variables(entry: Provider) -> list[str]:
    return [name for name in entry.api_key_env if name.endswith(_FOR_INFERENCE)]


def _keyed() -> list[Provider]:
    entries = map(provider, names())
    return [each for each in entries if each.api_key_env]


def _has_address(entry: Provider, environment: Mapping[str, str]) -> bool:
    try:
        fill_base_url(entry, environment)
    except CallerFault:
        return False
    return True


def _policy(targets: list[str]) -> Expression:
    branches = tuple(map(TargetName, targets))
    if len(branches) == 1:
        return branches[0]
    return PolicyExpression("fallback", (PolicyExpression("fastest", branches), *branches))
