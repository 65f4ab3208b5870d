"""What `serve --check` says of a configuration: its policies as trees, its targets, clients and log, and its problems.

No key is shown, only the names of those that are there.
"""

import glob
from urllib.parse import urlsplit

from splitsecond.catalog.provider import names
from splitsecond.gateway.configuration.problems import misspelt, problems
from splitsecond.gateway.configuration.settings import ClientKey, PriceGiven, Settings, provider
from splitsecond.gateway.process.reload import counted, summary
from splitsecond.policy.expression import Expression, TargetName, targets
from splitsecond.policy.settings import setting_text
from splitsecond.store.database import check_url
from splitsecond.upstream.spec import TargetSpec


def checkup(settings: Settings) -> list[str]:
    """Lines for a person. Raises `CallerFault` where the log cannot be where it is said to be."""
    found: list[str] = []
    for name, policy in settings.routes.items():
        found += [f"route {name}", *tree(policy, 1), *_resume(name, settings)]
    asked = dict.fromkeys(name for policy in settings.routes.values() for name in targets(policy))
    found += [_target(settings.spec(name), settings) for name in asked]
    found += [f"keys of providers in the environment: {', '.join(keys_of_providers(settings)) or 'none'}"]
    found += map(_client, settings.keys)
    if settings.log is not None:
        check_url(settings.log.url)
        found.append(f"log: {_log(settings)}, kept for {settings.log.keep_days} days")
    found += [f"seeds: {counted(len(glob.glob(pattern)), 'run')} in {pattern}" for pattern in settings.seeds]
    found += [f"problem: {words}" for words in (*problems(settings), *misspelt(settings))]
    listen = settings.listen
    where = f"{listen.host}:{listen.port}, {counted(listen.workers, 'worker')}"
    return [*found, f"ok: {summary(settings)}, listens on {where}"]


def keys_of_providers(settings: Settings) -> list[str]:
    """The variables that the catalogue knows and that are set."""
    known = dict.fromkeys(variable for name in names() for variable in provider(name).api_key_env)
    return [variable for variable in known if settings.environment.get(variable)]


def tree(expression: Expression, depth: int, name: str = "") -> list[str]:
    """A policy as lines, each part below the one that it stands in. `name`: that of a branch that has one."""
    indent = "  " * depth + (f"{name}=" if name else "")
    if isinstance(expression, TargetName):
        return [f"{indent}{expression!r}"]
    said = ", ".join(f"{name}={setting_text(value)}" for name, value in expression.settings)
    lines = [f"{indent}{expression.policy}({said})"]
    for branch in expression.branches:
        lines += tree(branch, depth + 1)
    for name, branch in expression.named:
        lines += tree(branch, depth + 1, name)
    return lines


def _resume(name: str, settings: Settings) -> list[str]:
    resume = settings.resumes.get(name)
    if resume is None:
        return []
    stall = "" if resume.stall_ns is None else f", also after {resume.stall_ns / 1e9:g} s without a token"
    return [f"  carried on elsewhere where it breaks off ({resume.how}){stall}"]


def _target(spec: TargetSpec, settings: Settings) -> str:
    held = next((name for name in spec.api_key_env if settings.environment.get(name)), "no key")
    about = settings.about(spec.name)
    said = [spec.base_url, spec.dialect, held, about.region, about.price and _price(about.price)]
    return f"target {spec.name}: {', '.join(word for word in said if word)}"


def _price(price: PriceGiven) -> str:
    given = {"in": price.input, "out": price.output, "cached": price.cached, "an hour": price.per_hour_usd}
    return ", ".join(f"${usd:g} {name}" for name, usd in given.items() if usd is not None)


def _client(key: ClientKey) -> str:
    limits = [
        f"{key.requests_per_minute} requests per minute" if key.requests_per_minute else "",
        f"{key.usd_per_day:g} USD per day" if key.usd_per_day else "",
    ]
    return f"client {key.name}: {'; '.join(filter(None, [', '.join(key.routes), *limits]))}"


def _log(settings: Settings) -> str:
    """The log's URL, without who may write there."""
    url = settings.log.url if settings.log else ""
    if url.startswith("sqlite:"):
        return url
    place = urlsplit(url)
    return f"{place.scheme}://{place.hostname or ''}{place.path}"
