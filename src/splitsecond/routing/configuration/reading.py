"""Reading of `splitsecond.yaml`. Errors name the place of what is wrong and suggest a correction.

Relative paths, also that of an SQLite log, are relative to the file's folder.
"""

import importlib.util
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, structs

from splitsecond.core.client_credentials import VENDORS
from splitsecond.core.errors import CallerFault, file_faults, read_file
from splitsecond.core.validation import nearest
from splitsecond.log.store.settings import LogSettings
from splitsecond.routing.configuration import target_specs
from splitsecond.routing.configuration.client_keys import (
    check_number,
    client_keys,
    client_teams,
    session_budget,
)
from splitsecond.routing.configuration.error_messages import Mistakes, SeveralMistakes, bad, shaped
from splitsecond.routing.configuration.file_schema import (
    ConfigFile,
    LogConfig,
    ProviderConfig,
    RouteConfig,
)
from splitsecond.routing.configuration.secrets import Secrets, is_reference
from splitsecond.routing.configuration.settings import (
    STANDARD_OUTPUT,
    FleetSettings,
    GatewaySettings,
    Listen,
    check_reach,
)
from splitsecond.routing.configuration.yaml_text import parsed
from splitsecond.routing.construction.expression import Expression, parse, targets
from splitsecond.routing.construction.user_policies import PolicyFile
from splitsecond.routing.machinery.definition import Policy
from splitsecond.routing.machinery.settings import Duration
from splitsecond.routing.router.settings import (
    NO_SIMULATOR,
    OTHERS,
    ProviderSettings,
    ResumeSettings,
    SessionBudget,
    TelemetrySettings,
    simulated,
)

_ORIGIN = re.compile(r"\*|https?://[^/?#@\s]+")
_SQLITE = "sqlite:///"
Check = Callable[[GatewaySettings], None]
"""Raises `CallerFault` for one mistake, or several."""


class Overrides(Struct, frozen=True):
    """What comes before the file: `policies`, a file of policies; `listen`, fields of that entry;
    and the address of the `simulator`."""

    policies: Path | None = None
    listen: Mapping[str, Any] = {}
    simulator: str = NO_SIMULATOR


def load(
    path: Path,
    environment: Mapping[str, str],
    *,
    serving: bool = True,
    overrides: Overrides | None = None,
    checks: Sequence[Check] = (),
) -> GatewaySettings:
    """Return the settings in the file at `path`. Raises `CallerFault` with the place of what is
    wrong; for several mistakes `SeveralMistakes`.

    If the settings are not for `serving`, keys may be missing: such settings cannot send requests,
    and have no client keys. `checks`: find more mistakes. They get settings without the parts of
    the file that are wrong.
    """
    with file_faults(f"cannot read {path}", kind="bad_config"):
        text = read_file(path)
    try:
        settings = read(
            text,
            environment,
            folder=path.parent,
            serving=serving,
            overrides=overrides,
            checks=checks,
        )
        return structs.replace(settings, source=path)
    except CallerFault as fault:
        for mistake in (fault, *(fault.mistakes if isinstance(fault, SeveralMistakes) else ())):
            mistake.message = f"{path}: {mistake.message}"
        raise


def read(
    text: str,
    environment: Mapping[str, str],
    *,
    folder: Path = Path(),
    serving: bool = True,
    overrides: Overrides | None = None,
    checks: Sequence[Check] = (),
) -> GatewaySettings:
    first = overrides or Overrides()
    mistakes = Mistakes()
    file = _entries(parsed(text), mistakes)
    secrets = Secrets(environment, folder, keys=serving)
    address, log, telemetry, access_log, user_policies, seeds = (
        Listen(),
        None,
        None,
        None,
        None,
        list[str](),
    )
    shared: FleetSettings | None = None
    pass_through = require_prices = False
    with mistakes:
        address = _listen(file["listen"])
    providers: dict[str, ProviderSettings] = {}
    for name, entry in file["providers"].items():
        with mistakes:
            providers[name] = target_specs.provider_settings(name, _provider(name, entry), secrets)
    routes: dict[str, Expression] = {}
    resumes: dict[str, ResumeSettings] = {}
    budgets: dict[str, SessionBudget] = {}
    with mistakes:
        user_policies = _policies(first.policies, file["policies"], folder)
        own = user_policies.policies() if user_policies else {}
        for name, entry in file["routes"].items():
            with mistakes:
                route = _route(name, entry)
                with mistakes:
                    if resume := _resume(name, route):
                        resumes[name] = resume
                with mistakes:
                    if budget := session_budget(f"routes.{name}", route):
                        budgets[name] = budget
                routes[name] = _policy(name, route, own)
    with mistakes:
        pass_through = shaped("pass_through", file["pass_through"], bool)
    with mistakes:
        require_prices = shaped("require_prices", file["require_prices"], bool)
    with mistakes:
        log = _log(file["log"], secrets, folder)
    with mistakes:
        telemetry = _telemetry(file["telemetry"], secrets)
    with mistakes:
        access_log = _access_log(file["access_log"], folder)
    with mistakes:
        shared = _shared(file["shared"], secrets)
    with mistakes:
        seeds = shaped("seeds", file["seeds"], list[str])
    settings = GatewaySettings(
        listen=structs.replace(address, **first.listen),
        # a configured provider of that name comes first
        providers={**simulated(first.simulator), **providers},
        routes=routes,
        resumes=resumes,
        budgets=budgets,
        log=log,
        telemetry=telemetry,
        access_log=access_log,
        shared=shared,
        seeds=tuple(str(folder / pattern) for pattern in seeds),
        environment={**environment, **secrets.found},
        policies=user_policies,
        pass_through=pass_through,
        require_prices=require_prices,
    )
    if not serving:
        mistakes.check()
        return settings
    _check_targets(settings, file["providers"].keys() - providers.keys(), mistakes)
    teams = client_teams(file["teams"], mistakes)
    keys = client_keys(file["keys"], secrets, file["routes"], teams, mistakes)
    with mistakes:
        check_number(keys, shared)
    settings = structs.replace(
        settings,
        keys=keys,
        files=(*secrets.files, *([Path(user_policies.path)] if user_policies else [])),
    )
    with mistakes:
        if not file["keys"]:  # if all keys are wrong, there are keys nevertheless
            check_reach(settings)
    for check in checks:
        with mistakes:
            check(settings)
    mistakes.check()
    return settings


def _entries(document: Any, mistakes: Mistakes) -> dict[str, Any]:
    """Return all top-level entries, not yet converted: each is converted by itself, so that errors
    name it.

    Raises `CallerFault` for a file without entries: an editor may have emptied it before it writes
    it again.
    """
    if document is None:
        raise bad("the file", "it has no entries", "`splitsecond init` writes a configuration.")
    entries = shaped("", document, dict[str, Any])
    for name in entries:
        with mistakes:
            if name not in ConfigFile.__struct_fields__:
                raise bad(
                    "the file",
                    f"unknown field `{name}`",
                    nearest(name, ConfigFile.__struct_fields__),
                )
    values: dict[str, Any] = {
        "listen": {},
        "keys": [],
        "teams": {},
        "providers": {},
        "routes": {},
        "seeds": [],
    }
    values |= {
        "pass_through": False,
        "require_prices": False,
        "policies": None,
        "log": None,
        "telemetry": None,
        "access_log": None,
        "shared": None,
    }
    # None: its lines are comments
    values |= {name: value for name, value in entries.items() if value is not None}
    for name, shape in (
        ("keys", list[Any]),
        ("teams", dict[str, Any]),
        ("providers", dict[str, Any]),
        ("routes", dict[str, Any]),
    ):
        entry, values[name] = values[name], shape()
        with mistakes:
            values[name] = shaped(name, entry, shape)
    return values


def _listen(entry: Any) -> Listen:
    listen = shaped("listen", entry, Listen)
    for number, origin in enumerate(listen.cors):
        if not _ORIGIN.fullmatch(origin):
            raise bad(
                f"listen.cors[{number}]",
                f"{origin} is not an origin",
                "Write https://HOST, without a path.",
            )
    return listen


def _provider(name: str, entry: Any) -> ProviderConfig:
    if isinstance(entry, dict) and "dialect" in entry:  # another name of the field, in older files
        entry = {"api_format" if key == "dialect" else key: value for key, value in entry.items()}
    return shaped(f"providers.{name}", {} if entry is None else entry, ProviderConfig)


def _route(name: str, entry: Any) -> RouteConfig:
    if name != OTHERS and not target_specs.NAME.fullmatch(name):
        raise bad(
            f"routes.{name}", "a route's name has letters, digits, dots and dashes only, at most 64"
        )
    route = {"policy": entry} if isinstance(entry, str) else entry
    return shaped(f"routes.{name}", route, RouteConfig)


def _policy(name: str, route: RouteConfig, own: Mapping[str, Policy]) -> Expression:
    try:
        return parse(route.policy, own)
    except CallerFault as fault:
        raise bad(
            f"routes.{name}.policy", fault.message.removeprefix("policy: "), fault.hint
        ) from None


def _policies(path: Path | None, entry: Any, folder: Path) -> PolicyFile | None:
    if path is None and entry is None:
        return None
    return PolicyFile.read(path or folder / shaped("policies", entry, str))


def _resume(name: str, route: RouteConfig) -> ResumeSettings | None:
    if route.resume is None:
        if route.stall is not None:
            raise bad(
                f"routes.{name}.stall", "stall has no effect without resume", "Add resume: replay."
            )
        return None
    try:
        return ResumeSettings(
            None if route.stall is None else Duration.parse("stall", route.stall).ns
        )
    except CallerFault as fault:
        raise bad(f"routes.{name}.stall", fault.message.removeprefix("stall is ")) from None


def _check_targets(settings: GatewaySettings, wrong: Collection[str], mistakes: Mistakes) -> None:
    for name, expression in settings.routes.items():
        with mistakes:
            _check_hosts(name, expression, settings)
        for target in targets(expression):
            if target.partition("/")[0] not in wrong:
                with mistakes:
                    _check_target(name, target, settings)


def _check_hosts(route: str, expression: Expression, settings: GatewaySettings) -> None:
    """Raise `CallerFault` if two hosts of a route would get the same credentials of a client."""
    hosts: dict[str, str] = {}
    for target in targets(expression):
        own = settings.providers.get(target.partition("/")[0])
        if own is not None and own.credentials == "client":
            host = urlsplit(own.base_url).netloc
            other = hosts.setdefault(VENDORS[own.api_format], host)
            if other != host:
                words = f"{other} and {host} would get the same credentials of a client"
                raise bad(
                    f"routes.{route}.policy", words, "Use credentials: client for one of them."
                )


def _check_target(route: str, target: str, settings: GatewaySettings) -> None:
    try:
        settings.spec(target)
    except CallerFault as fault:
        ours = (
            ""
            if fault.kind != "unknown_provider"
            else nearest(target.partition("/")[0], settings.providers)
        )
        raise bad(f"routes.{route}.policy", fault.message, ours or fault.hint) from None


def _log(entry: Any, secrets: Secrets, folder: Path) -> LogSettings | None:
    if entry is None or entry == "off":
        return None
    config = LogConfig(url=entry) if isinstance(entry, str) else shaped("log", entry, LogConfig)
    url = _database_url("log" if isinstance(entry, str) else "log.url", config.url, secrets)
    if "://" not in url and url.endswith(".db"):
        url = f"{_SQLITE}{url}"
    if url.startswith(_SQLITE) and url != f"{_SQLITE}:memory:":
        url = _SQLITE + str((folder / url.removeprefix(_SQLITE)).absolute())
    return LogSettings(url, config.keep_days)


def _database_url(place: str, url: str, secrets: Secrets) -> str:
    if is_reference(url):
        return secrets.take(place, url)
    if _password(url):
        raise bad(
            place,
            "the file must not contain a password",
            "Write env:NAME or file:PATH with the whole URL.",
        )
    return url


def _shared(entry: Any, secrets: Secrets) -> FleetSettings | None:
    if entry is None or entry == "off":
        return None
    url = _database_url("shared", shaped("shared", entry, str), secrets)
    if not re.fullmatch(r"postgres(ql)?(\+psycopg)?://.*", url):
        raise bad(
            "shared",
            "this is no URL of a PostgreSQL database",
            "Write postgresql://USER@HOST/DATABASE.",
        )
    if importlib.util.find_spec("psycopg") is None:
        raise bad("shared", "PostgreSQL needs its driver", "pip install 'splitsecond[postgres]'")
    return FleetSettings(re.sub(r"^[^:]+", "postgresql", url))


def _access_log(entry: Any, folder: Path) -> str | None:
    if entry is None or entry == "off":
        return None
    path = shaped("access_log", entry, str)
    return path if path == STANDARD_OUTPUT else str((folder / path).absolute())


def _telemetry(entry: Any, secrets: Secrets) -> TelemetrySettings | None:
    if entry is None or entry == "off":
        return None
    config = shaped("telemetry", entry, TelemetrySettings)
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", config.endpoint):
        raise bad(
            "telemetry.endpoint", f"{config.endpoint} is not an address", "Write http://HOST:4318."
        )
    headers = {
        name: target_specs.header("telemetry", name, value, secrets)
        for name, value in config.headers.items()
    }
    return structs.replace(config, headers=headers)


def _password(url: str) -> bool:
    try:
        return urlsplit(url).password is not None or "password=" in url
    except ValueError:
        return True  # an invalid URL is not shown either
