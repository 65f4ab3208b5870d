"""`splitsecond.yaml`: read, checked, and refused with the place of what is wrong and what may be meant.

Relative paths, also that of an SQLite log, begin at the file's folder.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from msgspec import structs

from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration import specs
from splitsecond.gateway.configuration.mistakes import bad, meant, shaped
from splitsecond.gateway.configuration.secrets import Secrets, is_reference
from splitsecond.gateway.configuration.settings import ClientKey, Listen, LogGiven, Resume, Settings
from splitsecond.gateway.configuration.shape import File, KeyGiven, LogAsked, ProviderGiven, RouteGiven
from splitsecond.policy.expression import Expression, parse, targets
from splitsecond.policy.settings import duration

LEAST_KEY = 16
"""Characters of a client's key. What is shorter can be guessed."""
_ORIGIN = re.compile(r"\*|https?://[^/?#@\s]+")
_SQLITE = "sqlite:///"


def load(path: Path, environment: Mapping[str, str], *, serving: bool = True) -> Settings:
    """The settings in the file at `path`. Raises `CallerFault` that says where what is wrong.

    Unless they are for `serving`, keys need not be there: then nobody can be asked by them, and no client has a key.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = isinstance(error, OSError) and error.strerror
        raise CallerFault(f"cannot read {path}: {why or error}", kind="bad_config") from None
    try:
        return structs.replace(read(text, environment, folder=path.parent, serving=serving), source=path)
    except CallerFault as fault:
        fault.message = f"{path}: {fault.message}"
        raise


def read(text: str, environment: Mapping[str, str], *, folder: Path = Path(), serving: bool = True) -> Settings:
    """The settings in `text`; relative paths begin at `folder`. `serving`: see `load`."""
    file = _entries(_parsed(text))
    listen = _listen(file["listen"])
    secrets = Secrets(environment, folder, keys=serving)
    given = {name: _provider(name, entry) for name, entry in file["providers"].items()}
    providers = {name: specs.spec(name, each, secrets) for name, each in given.items()}
    routes = {name: _route(name, entry) for name, entry in file["routes"].items()}
    settings = Settings(
        listen=listen,
        providers=providers,
        known={name: specs.known(name, each) for name, each in given.items()},
        routes={name: _policy(name, route) for name, route in routes.items()},
        resumes={name: resume for name, route in routes.items() if (resume := _resume(name, route))},
        log=_log(file["log"], secrets, folder),
        seeds=tuple(str(folder / pattern) for pattern in shaped("seeds", file["seeds"], list[str])),
        environment={**environment, **secrets.found},
    )
    if not serving:
        return settings
    _check_targets(settings)
    keys = _keys(file["keys"], secrets, settings)
    return structs.replace(settings, keys=keys, files=tuple(secrets.files))


class _Strict(yaml.SafeLoader):
    """YAML, in which a name that is given twice is an error, and only true and false are booleans.

    So ``metrics: off`` is a word, as it is in YAML 1.2.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own form
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for name, _ in node.value:
            if name.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{name.value} is given twice", problem_mark=name.start_mark)
            seen.add(name.value)
        return super().construct_mapping(node, deep)


_Strict.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|True|TRUE|false|False|FALSE"), list("tTfF"))


def _parsed(text: str) -> Any:
    try:
        found = yaml.load(text, _Strict)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the file"
        raise bad(place, error.problem or "this is not YAML") from None
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise bad("the file", f"this is not YAML: {error}") from None
    return {} if found is None else found


def _entries(found: Any) -> dict[str, Any]:
    """Everything that the file may hold, not yet shaped: each entry is, by itself, so that it is found by its name."""
    entries = shaped("", found, dict[str, Any])
    for name in entries:
        if name not in File.__struct_fields__:
            raise bad("the file", f"unknown field `{name}`", meant(name, File.__struct_fields__))
    given: dict[str, Any] = {"listen": {}, "keys": [], "providers": {}, "routes": {}, "log": None, "seeds": []}
    given |= {name: value for name, value in entries.items() if value is not None}  # all below it is commented out
    for name, shape in (("keys", list[Any]), ("providers", dict[str, Any]), ("routes", dict[str, Any])):
        given[name] = shaped(name, given[name], shape)
    return given


def _listen(entry: Any) -> Listen:
    listen = shaped("listen", entry, Listen)
    for number, origin in enumerate(listen.cors):
        if not _ORIGIN.fullmatch(origin):
            raise bad(f"listen.cors[{number}]", f"{origin} is no origin", "Write https://HOST, without a path.")
    return listen


def _provider(name: str, entry: Any) -> ProviderGiven:
    return shaped(f"providers.{name}", {} if entry is None else entry, ProviderGiven)


def _route(name: str, entry: Any) -> RouteGiven:
    if not specs.NAME.fullmatch(name):
        raise bad(f"routes.{name}", "a route's name has letters, digits, dots and dashes only, at most 64")
    if isinstance(entry, str):
        raise bad(f"routes.{name}", "it is a text, expected an object", f"Write it as {name}: {{policy: {entry}}}.")
    return shaped(f"routes.{name}", entry, RouteGiven)


def _policy(name: str, route: RouteGiven) -> Expression:
    try:
        return parse(route.policy)
    except CallerFault as fault:
        raise bad(f"routes.{name}.policy", fault.message.removeprefix("policy: "), fault.hint) from None


def _resume(name: str, route: RouteGiven) -> Resume | None:
    if route.resume is None:
        if route.stall is not None:
            raise bad(f"routes.{name}.stall", "it belongs to resume", "Add resume: replay.")
        return None
    try:
        return Resume(route.resume, None if route.stall is None else duration("stall", route.stall))
    except CallerFault as fault:
        raise bad(f"routes.{name}.stall", fault.message.removeprefix("stall is ")) from None


def _check_targets(settings: Settings) -> None:
    """Raises `CallerFault` where a route names a target that cannot be asked."""
    for name, expression in settings.routes.items():
        for target in targets(expression):
            try:
                settings.spec(target)
            except CallerFault as fault:
                ours = "" if fault.kind != "unknown_provider" else meant(target.partition("/")[0], settings.providers)
                raise bad(f"routes.{name}.policy", fault.message, ours or fault.hint) from None


def _log(entry: Any, secrets: Secrets, folder: Path) -> LogGiven | None:
    if entry is None or entry == "off":
        return None
    asked = LogAsked(url=entry) if isinstance(entry, str) else shaped("log", entry, LogAsked)
    place = "log" if isinstance(entry, str) else "log.url"
    url = asked.url
    if is_reference(url):
        url = secrets.take(place, url)
    elif _password(url):
        raise bad(place, "a password must not stand in the file", "Write env:NAME, with the whole URL in it.")
    if url.startswith(_SQLITE) and url != f"{_SQLITE}:memory:":
        url = _SQLITE + str((folder / url.removeprefix(_SQLITE)).absolute())
    return LogGiven(url, asked.keep_days)


def _password(url: str) -> bool:
    try:
        return urlsplit(url).password is not None or "password=" in url
    except ValueError:
        return True  # what cannot be read is not shown either


def _keys(entries: list[Any], secrets: Secrets, settings: Settings) -> tuple[ClientKey, ...]:
    found: dict[str, ClientKey] = {}
    for number, entry in enumerate(entries):
        place = f"keys[{number}]"
        given = shaped(place, entry, KeyGiven)
        if given.name in found:
            raise bad(f"{place}.name", f"{given.name} is given twice")
        key = secrets.take(f"{place}.key", given.key)
        if len(key) < LEAST_KEY:
            hint = "Make one with: openssl rand -hex 32"
            raise bad(f"{place}.key", f"it has {len(key)} characters, expected {LEAST_KEY} or more", hint)
        digest = hashlib.sha256(key.encode()).digest()
        if any(other.digest == digest for other in found.values()):
            raise bad(f"{place}.key", "it is the same key as another's")
        for route in given.routes:
            if route != "*" and "/" not in route and route not in settings.routes:
                raise bad(f"{place}.routes", f"there is no route {route}", meant(route, settings.routes))
        found[given.name] = ClientKey(given.name, digest, given.routes, given.requests_per_minute, given.usd_per_day)
    return tuple(found.values())
