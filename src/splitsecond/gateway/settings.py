"""`splitsecond.yaml`: read, checked, and refused with the place of what is wrong and what may be meant.

Secrets stand in it only as references, ``env:NAME`` or ``file:PATH``. A client's key is kept as its hash.
"""

import difflib
import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import yaml
from msgspec import Meta, Struct

from splitsecond.catalog.provider import Provider, fill_base_url, names, provider, split_target
from splitsecond.errors import CallerFault
from splitsecond.policy.expression import Expression, parse, targets
from splitsecond.policy.settings import duration
from splitsecond.transport.exchange import Origin
from splitsecond.upstream.spec import TargetSpec, Timeouts

LEAST_KEY = 16
"""Characters of a client's key. What is shorter can be guessed."""
_DIALECTS = ("openai",)
_SECRET = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_ROUTE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})


S = TypeVar("S", bound=Struct)


class Listen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where clients come in, and how much they may send."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8800
    max_body_mib: Annotated[int, Meta(ge=1, le=1024)] = 32

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class _Key(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    key: str
    routes: tuple[str, ...] = ("*",)


class _Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    connect: str | None = None
    head: str | None = None
    first_token: str | None = None
    stall: str | None = None
    total: str | None = None


class _Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    base_url: str = ""
    dialect: str = ""
    api_key: str = ""
    headers: dict[str, str] = {}
    quirks: dict[str, Any] | None = None
    timeouts: _Timeouts = _Timeouts()


class _Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    policy: str


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each entry is shaped by itself, so that a mistake in it is found by its name."""

    listen: Any = {}
    keys: list[Any] = []
    providers: dict[str, Any] = {}
    routes: dict[str, Any] = {}


class ClientKey(Struct, frozen=True):
    """A client's key, by its SHA-256, and what it may use: route names, "provider/model", "provider/*", "*"."""

    name: str
    digest: bytes
    routes: tuple[str, ...] = ("*",)

    def allows(self, model: str) -> bool:
        """Whether it may ask for `model`."""
        owner = model.partition("/")[0] + "/*" if "/" in model else ""
        return any(route in ("*", model, owner) for route in self.routes)


class Settings(Struct, frozen=True, kw_only=True):
    """What a gateway runs on. `environment` holds the providers' keys, those of the file by their reference."""

    listen: Listen = Listen()
    keys: tuple[ClientKey, ...] = ()
    providers: Mapping[str, TargetSpec] = {}
    routes: Mapping[str, Expression] = {}
    environment: Mapping[str, str] = {}

    def spec(self, target: str) -> TargetSpec:
        """The spec of "provider/model". Raises `CallerFault` where it names no provider, or one without its key."""
        name, model = split_target(target)
        spec = self.providers.get(name) or _catalogued(provider(name), self.environment)
        if spec.api_key_env and not any(self.environment.get(variable) for variable in spec.api_key_env):
            raise CallerFault(
                f"no key for {name}: {' or '.join(spec.api_key_env)} is not set",
                kind="missing_key",
                hint=f"export {spec.api_key_env[0]}=...",
            )
        return msgspec.structs.replace(spec, name=target, model=model)


def load(path: Path | None, environment: Mapping[str, str]) -> Settings:
    """The settings in the file at `path`; None: the defaults. Raises `CallerFault` that says where what is wrong."""
    if path is None:
        return Settings(environment=environment)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallerFault(f"cannot read {path}: {error}", kind="bad_config") from None
    try:
        return read(text, environment, folder=path.parent)
    except CallerFault as fault:
        fault.message = f"{path}: {fault.message}"
        raise


def read(text: str, environment: Mapping[str, str], *, folder: Path = Path()) -> Settings:
    """The settings in `text`; relative paths of secrets begin at `folder`."""
    file = _shaped("", _parsed(text), _File)
    listen = _shaped("listen", file.listen, Listen)
    secrets = _Secrets(environment, folder)
    providers = {
        name: _spec(name, _shaped(f"providers.{name}", given, _Provider), secrets)
        for name, given in file.providers.items()
    }
    settings = Settings(
        listen=listen, providers=providers, environment={**environment, **secrets.found}, routes=_routes(file)
    )
    for name, expression in settings.routes.items():
        for target in targets(expression):
            try:
                settings.spec(target)
            except CallerFault as fault:
                raise _bad(f"routes.{name}.policy", fault.message, _near(target, settings) or fault.hint) from None
    return msgspec.structs.replace(settings, keys=_keys(file, secrets, settings))


def check_reach(settings: Settings) -> None:
    """Raises `CallerFault` where others could use the gateway, and so our providers' keys, without a key."""
    if not settings.keys and not settings.listen.is_loopback:
        raise CallerFault(
            f"without keys it listens only on this machine, not on {settings.listen.host}",
            kind="no_keys",
            hint="Add keys: [{name: web, key: env:WEB_KEY}] to the configuration, or listen on 127.0.0.1.",
        )


class _NoTwins(yaml.SafeLoader):
    """YAML, in which a name that is given twice is an error, not the last one's win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for name, _ in node.value:
            if name.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{name.value} is given twice", problem_mark=name.start_mark)
            seen.add(name.value)
        return super().construct_mapping(node, deep)


def _parsed(text: str) -> Any:
    try:
        found = yaml.load(text, _NoTwins)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the file"
        raise _bad(place, error.problem or "this is not YAML") from None
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        raise _bad("the file", f"this is not YAML: {error}") from None
    return {} if found is None else found


def _shaped(place: str, value: Any, shape: type[S]) -> S:
    """`value` as a `shape`. Raises `CallerFault` with the place of what does not fit."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        said, _, inside = str(error).partition(" - at `$")
        inside = inside.rstrip("`")
        unknown = _UNKNOWN.search(said)
        fields = (_Timeouts if inside == ".timeouts" else shape).__struct_fields__
        where = f"{place}{inside}".lstrip(".") or "the file"
        raise _bad(where, said, _meant(unknown[1], fields) if unknown else "") from None


class _Secrets:
    """References to secrets, and what they refer to."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self.found: dict[str, str] = {}
        self.environment = environment
        self._folder = folder

    def take(self, place: str, reference: str) -> str:
        """What `reference` refers to."""
        kind, _, name = reference.partition(":")
        if kind == "env" and name:
            value = self.environment.get(name, "").strip()
            missing = f"the environment variable {name} is not set"
        elif kind == "file" and name:
            try:
                value = (self._folder / name).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise _bad(place, f"cannot read the secret: {error}") from None
            missing = f"the file {name} is empty"
        else:
            raise _bad(place, "a secret must not stand in the file", "Write env:NAME or file:PATH.")
        if not value:
            raise _bad(place, missing)
        if not value.isascii() or not value.isprintable():
            raise _bad(place, "the secret has characters that no HTTP header can carry")
        self.found[reference] = value
        return value


def _spec(name: str, given: _Provider, secrets: _Secrets) -> TargetSpec:
    place = f"providers.{name}"
    if not _ROUTE.fullmatch(name):
        raise _bad(place, "a provider's name has letters, digits, dots and dashes only")
    if name in names():
        known = provider(name)
    elif given.base_url:
        known = Provider(title=name, base_url=given.base_url)
    else:
        raise _bad(place, "it is not in the catalogue, and has no base_url", _meant(name, names()))
    dialect = given.dialect or known.dialect
    if dialect not in _DIALECTS:
        raise _bad(f"{place}.dialect", f"got {dialect}, expected {' or '.join(_DIALECTS)}", _meant(dialect, _DIALECTS))
    base_url = given.base_url or fill_base_url(known, secrets.environment)
    try:
        Origin.parse(base_url)
    except CallerFault as fault:
        raise _bad(f"{place}.base_url", fault.message, fault.hint) from None
    if given.api_key:
        secrets.take(f"{place}.api_key", given.api_key)
    return TargetSpec(
        name=name,
        model="",
        base_url=base_url,
        dialect=dialect,
        api_key_env=(given.api_key,) if given.api_key else known.api_key_env,
        auth=known.auth,
        headers=known.headers | {key: _header(place, key, value, secrets) for key, value in given.headers.items()},
        quirks=known.quirks if given.quirks is None else given.quirks,
        timeouts=_timeouts(f"{place}.timeouts", given.timeouts),
    )


def _header(place: str, name: str, value: str, secrets: _Secrets) -> str:
    place = f"{place}.headers.{name}"
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
        raise _bad(place, "this header cannot be set")
    if value.startswith(("env:", "file:")) or _SECRET.search(name):
        return secrets.take(place, value)
    if not value.isascii() or not value.isprintable():
        raise _bad(place, "the value has characters that no HTTP header can carry")
    return value


def _timeouts(place: str, given: _Timeouts) -> Timeouts:
    said = {name: value for name in given.__struct_fields__ if (value := getattr(given, name)) is not None}
    try:
        found = {f"{name}_ms": max(1, duration(name, value) // 1_000_000) for name, value in said.items()}
    except CallerFault as fault:
        raise _bad(place, fault.message) from None
    return msgspec.structs.replace(Timeouts(), **found)


def _routes(file: _File) -> dict[str, Expression]:
    found: dict[str, Expression] = {}
    for name, entry in file.routes.items():
        if not _ROUTE.fullmatch(name):
            raise _bad(f"routes.{name}", "a route's name has letters, digits, dots and dashes only, at most 64")
        policy = _shaped(f"routes.{name}", entry, _Route).policy
        try:
            found[name] = parse(policy)
        except CallerFault as fault:
            raise _bad(f"routes.{name}.policy", fault.message.removeprefix("policy: "), fault.hint) from None
    return found


def _keys(file: _File, secrets: _Secrets, settings: Settings) -> tuple[ClientKey, ...]:
    found: dict[str, ClientKey] = {}
    for number, entry in enumerate(file.keys):
        place = f"keys[{number}]"
        given = _shaped(place, entry, _Key)
        if given.name in found:
            raise _bad(f"{place}.name", f"{given.name} is given twice")
        key = secrets.take(f"{place}.key", given.key)
        if len(key) < LEAST_KEY:
            hint = "Make one with: openssl rand -hex 32"
            raise _bad(f"{place}.key", f"it has {len(key)} characters, expected {LEAST_KEY} or more", hint)
        digest = hashlib.sha256(key.encode()).digest()
        if any(other.digest == digest for other in found.values()):
            raise _bad(f"{place}.key", "it is the same key as another's")
        for route in given.routes:
            if route != "*" and "/" not in route and route not in settings.routes:
                raise _bad(f"{place}.routes", f"there is no route {route}", _meant(route, settings.routes))
        found[given.name] = ClientKey(given.name, digest, given.routes)
    return tuple(found.values())


def _catalogued(found: Provider, environment: Mapping[str, str]) -> TargetSpec:
    if found.dialect not in _DIALECTS:
        raise CallerFault(f"the gateway does not speak {found.dialect} yet", kind="unknown_dialect")
    return TargetSpec(
        name=found.name,
        model="",
        base_url=fill_base_url(found, environment),
        dialect=found.dialect,
        api_key_env=found.api_key_env,
        auth=found.auth,
        headers=found.headers,
        quirks=found.quirks,
    )


def _near(target: str, settings: Settings) -> str:
    name = target.partition("/")[0]
    known = [*settings.providers, *names()]
    return "" if name in known or "/" not in target else _meant(name, known)


def _meant(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=2, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else ""


def _bad(place: str, words: str, hint: str = "") -> CallerFault:
    return CallerFault(f"{place}: {words}", kind="bad_config", hint=hint)
