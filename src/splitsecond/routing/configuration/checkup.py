"""Report of `serve --check`: a configuration's policies as trees, its targets, clients, log, fleet,
and warnings.

It shows no key, only the names of the variables that are set; what looks like a key in a URL is
redacted.
"""

import glob
from urllib.parse import urlsplit

from msgspec.structs import replace

from splitsecond.core.catalog.prices import listing
from splitsecond.core.catalog.provider import names
from splitsecond.core.errors import CallerFault
from splitsecond.core.redaction import redacted
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.wording import counted_as
from splitsecond.routing.configuration.error_messages import Mistakes
from splitsecond.routing.configuration.settings import FleetSettings, GatewaySettings, summary
from splitsecond.routing.configuration.warnings import misspelt, problems, unpriced
from splitsecond.routing.construction.expression import Expression, TargetName, targets
from splitsecond.routing.machinery.settings import setting_text
from splitsecond.routing.router.router import check_settings
from splitsecond.routing.router.settings import (
    NO_SIMULATOR,
    ClientKey,
    Limits,
    PriceConfig,
    Team,
    provider,
)


def checkup(settings: GatewaySettings) -> list[str]:
    lines: list[str] = []
    for name, policy in settings.routes.items():
        lines += [f"route {name}", *tree(policy, 1), *_resume(name, settings)]
    routed = dict.fromkeys(name for policy in settings.routes.values() for name in targets(policy))
    lines += [_target(settings.spec(name), settings) for name in routed]
    lines += [
        f"keys of providers in the environment: {', '.join(keys_of_providers(settings)) or 'none'}"
    ]
    lines += map(_client, settings.keys)
    teams = {key.team.name: key.team for key in settings.keys if key.team is not None}
    lines += (
        f"team {name}: {', '.join(_limits(team)) or 'no limit'}" for name, team in teams.items()
    )
    if settings.policies is not None:
        lines.append(
            f"policies of {settings.policies.path}: {', '.join(settings.policies.policies())}"
        )
    if settings.log is not None:
        lines.append(
            f"log: {_place(settings.log.url)}, kept for {counted_as(settings.log.keep_days, 'day')}"
        )
    if settings.shared is not None:
        lines.append(_shared(settings.shared, settings))
    lines += [
        f"seeds: {counted_as(len(glob.glob(pattern)), 'run')} in {pattern}"
        for pattern in settings.seeds
    ]
    lines += [
        f"problem: {words}"
        for words in (*problems(settings), *misspelt(settings), *unpriced(settings))
    ]
    listen = settings.listen
    where = f"{listen.host}:{listen.port}, {counted_as(listen.workers, 'worker')}"
    return [*lines, f"ok: {summary(settings)}, listens on {where}"]


def check_policies(settings: GatewaySettings) -> None:
    """Raise `CallerFault` for routes that no router can build: one fault, or several.

    Routes with a target that cannot be used are left out: `reading` names these.
    """
    mistakes = Mistakes()
    for name, policy in settings.routes.items():
        if all(_usable(target, settings) for target in targets(policy)):
            with mistakes:
                check_settings(replace(settings, routes={name: policy}))
    mistakes.check()


def keys_of_providers(settings: GatewaySettings) -> list[str]:
    variables = dict.fromkeys(
        variable for name in names() for variable in provider(name).api_key_env
    )
    return [variable for variable in variables if settings.environment.get(variable)]


def tree(expression: Expression, depth: int, name: str = "") -> list[str]:
    indent = "  " * depth + (f"{name}=" if name else "")
    if isinstance(expression, TargetName):
        return [f"{indent}{expression!r}"]
    settings = ", ".join(f"{name}={setting_text(value)}" for name, value in expression.settings)
    lines = [f"{indent}{expression.policy}({settings})"]
    for branch in expression.branches:
        lines += tree(branch, depth + 1)
    for name, branch in expression.named:
        lines += tree(branch, depth + 1, name)
    return lines


def _resume(name: str, settings: GatewaySettings) -> list[str]:
    resume = settings.resumes.get(name)
    if resume is None:
        return []
    stall = (
        ""
        if resume.stall_ns is None
        else f", also after {resume.stall_ns / 1e9:g} s without a token"
    )
    return [f"  a broken answer is continued at another target{stall}"]


def _usable(target: str, settings: GatewaySettings) -> bool:
    try:
        settings.spec(target)
    except CallerFault:
        return False
    return True


def _target(spec: TargetSpec, settings: GatewaySettings) -> str:
    held = spec.key_variable(settings.environment) or "no key"
    about = settings.about(spec.name)
    where = "simulated" if spec.base_url.startswith(NO_SIMULATOR) else redacted(spec.base_url)
    price = _price(about.price) if about.price else _listed(about.like, spec.name.partition("/")[2])
    details = [where, spec.api_format, held, about.region, price]
    return f"target {spec.name}: {', '.join(word for word in details if word)}"


def _price(price: PriceConfig) -> str:
    if not (price.input_usd or price.output_usd or price.per_hour_usd):
        return "free"
    prices = {
        "in": price.input_usd,
        "out": price.output_usd,
        "cached": price.cached_usd,
        "an hour": price.per_hour_usd,
    }
    return ", ".join(f"${usd:g} {name}" for name, usd in prices.items() if usd is not None)


def _listed(like: str, model: str) -> str:
    price = listing(f"{like}/{model}").price if like else None
    if price is None:
        return "no price"
    if price.per_hour_usd is not None:
        return f"${price.per_hour_usd:g} an hour (listed {price.as_of})"
    return f"${price.input_usd:g} in, ${price.output_usd:g} out (listed {price.as_of})"


def _client(key: ClientKey) -> str:
    team = [] if key.team is None else [f"team {key.team.name}"]
    return f"client {key.name}: {'; '.join([', '.join(key.routes), *_limits(key), *team])}"


def _limits(bearer: Limits) -> list[str]:
    limits = [
        f"{counted_as(bearer.requests_per_minute, 'request')} per minute"
        if bearer.requests_per_minute
        else "",
        f"{bearer.usd_per_day:g} USD per day" if bearer.usd_per_day else "",
        f"{bearer.usd_per_month:g} USD per month" if bearer.usd_per_month else "",
    ]
    return [words for words in limits if words]


def _shared(shared: FleetSettings, settings: GatewaySettings) -> str:
    bearers = {bearer.counter: bearer for key in settings.keys for bearer in key.bearers}
    teams = sum(isinstance(bearer, Team) for bearer in bearers.values())
    things = ["what workers learn about targets", "turns of probes"]
    if bearers:
        keys = [counted_as(len(bearers) - teams, "key")] if len(bearers) > teams else []
        counts = [*keys, counted_as(teams, "team")] if teams else keys
        things.insert(0, f"the limits of {' and '.join(counts)}")
    if settings.log is not None and _place(settings.log.url) == _place(shared.url):
        things.append("the log")
    return f"shared: {', '.join(things[:-1])} and {things[-1]}, at {_place(shared.url)}"


def _place(url: str) -> str:
    if url.startswith("sqlite:"):
        return url
    place = urlsplit(url)
    return f"{place.scheme.partition('+')[0]}://{place.netloc.rpartition('@')[2]}{place.path}"
