"""What a gateway runs on, once the configuration has been read and checked (`reading`).

Secrets are resolved here: a client's key is kept as its hash, a provider's in `environment`, by its reference.
"""

import ipaddress
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct, structs

from splitsecond.catalog.model import Prefill
from splitsecond.catalog.provider import Provider, fill_base_url, split_target
from splitsecond.catalog.provider import provider as read_provider
from splitsecond.errors import CallerFault
from splitsecond.policy.expression import Expression
from splitsecond.upstream.spec import TargetSpec, Timeouts, keys_like

OWN_SERVER = "A server of your own needs an entry in the configuration: providers: {NAME: {base_url: URL}}."
provider = lru_cache(maxsize=256)(partial(read_provider, own_server=OWN_SERVER))
"""The entry of the catalogue, whose file is read once: targets are asked for by name while requests wait."""

TIMEOUTS = Timeouts(connect_ms=5_000, head_ms=60_000, first_token_ms=60_000, stall_ms=30_000)
"""How long a target is waited for where nothing is said: somebody waits here, and others could answer. The instrument's
own are longer, as it wants to see how slow a provider is."""
Usd = Annotated[float, Meta(ge=0)]


class Listen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where clients come in, and how much they may send."""

    host: Annotated[str, Meta(description="The address to listen on. Without keys only this machine's.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="0: a free one.")] = 8800
    workers: Annotated[int, Meta(ge=1, le=256, description="Processes that share the port.")] = 1
    cors: Annotated[
        tuple[str, ...],
        Meta(description='Origins whose pages may ask from a browser: "https://app.example", or "*" for all.'),
    ] = ()
    metrics: Annotated[
        Literal["loopback", "key", "off"],
        Meta(
            description="Who may read /metrics, /explain and /dashboard: also this machine without a key, only a key "
            "for all routes, nobody."
        ),
    ] = "loopback"
    max_body_mib: Annotated[int, Meta(ge=1, le=1024, description="The longest request.")] = 32

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class PriceGiven(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a target costs, in US dollars; what is not given is taken from the price list."""

    input: Annotated[Usd | None, Meta(description="For a million input tokens.")] = None
    output: Annotated[Usd | None, Meta(description="For a million output tokens.")] = None
    cached: Annotated[Usd | None, Meta(description="For a million input tokens from the provider's prompt cache.")] = (
        None
    )
    cache_write: Annotated[Usd | None, Meta(description="For a million input tokens written to that cache.")] = None
    per_hour_usd: Annotated[Usd | None, Meta(description="For an hour of a machine of one's own.")] = None


class ModelGiven(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a provider."""

    context: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Tokens of the longest prompt and answer together.")
    ] = None
    price: PriceGiven | None = None


class Known(Struct, frozen=True, kw_only=True):
    """What the configuration says of a provider beside where it is. `like`: its entry in the catalogue; "": none.

    `account`: whose key, "" for one that no other provider shares. `prefill`: as in the catalogue, whose word counts
    where it is None.
    """

    like: str = ""
    region: str = ""
    account: str = ""
    price: PriceGiven | None = None
    prefill: Prefill | None = None
    models: Mapping[str, ModelGiven] = {}

    def context_tokens(self, model: str) -> int | None:
        """How long the prompt and answer of a model may be together; None where that is not said."""
        own = self.models.get(model)
        return own.context if own else None


class ClientKey(Struct, frozen=True):
    """A client's key, by its SHA-256, and what it may use: route names, "provider/model", "provider/*", "*".

    `requests_per_minute` and `usd_per_day` limit how much it may ask for; None: no limit.
    """

    name: str
    digest: bytes
    routes: tuple[str, ...] = ("*",)
    requests_per_minute: int | None = None
    usd_per_day: float | None = None

    def allows(self, model: str) -> bool:
        """Whether it may ask for `model`."""
        if "*" in self.routes or model in self.routes:
            return True
        return "/" in model and model.partition("/")[0] + "/*" in self.routes


class Resume(Struct, frozen=True):
    """How an answer of a route that broke off is carried on elsewhere.

    "replay": the prompt is asked again, and what the client has is left out; "prefill": the other goes on from there.
    `stall_ns`: after how long without a token it counts as broken; None: only when it breaks.
    """

    how: Literal["replay", "prefill"]
    stall_ns: int | None = None


class LogGiven(Struct, frozen=True):
    """Where calls are logged. Its text holds no URL, in which there may be a password."""

    url: str
    keep_days: int = 30

    def __repr__(self) -> str:
        return f"LogGiven({self.url.partition(':')[0]}, keep_days={self.keep_days})"


class Settings(Struct, frozen=True, kw_only=True):
    """What a gateway runs on. `environment` holds the providers' keys, those of the file by their reference.

    `resumes`: of the routes that carry a broken answer on. `seeds`: patterns of run folders whose figures are known
    from the start. `files`: those that hold secrets. `source`: the file it was read from; None: there is none.
    """

    listen: Listen = Listen()
    keys: tuple[ClientKey, ...] = ()
    providers: Mapping[str, TargetSpec] = {}
    known: Mapping[str, Known] = {}
    routes: Mapping[str, Expression] = {}
    resumes: Mapping[str, Resume] = {}
    log: LogGiven | None = None
    seeds: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    files: tuple[Path, ...] = ()
    source: Path | None = None

    def spec(self, target: str) -> TargetSpec:
        """The spec of "provider/model". Raises `CallerFault` where it names no provider, or one without its key."""
        name, model = split_target(target, OWN_SERVER)
        spec = self._place(target)
        known = self.known.get(name) or Known(like=name)
        prefill = known.prefill
        if prefill is None and known.like:
            prefill = provider(known.like).continues(model)
        return structs.replace(spec, prefill=prefill)

    def _place(self, target: str) -> TargetSpec:
        """The spec, without what only the catalogue knows of the model."""
        name, model = split_target(target, OWN_SERVER)
        spec = self.providers.get(name) or catalogued(provider(name), self.environment)
        if spec.api_key_env and not any(self.environment.get(variable) for variable in spec.api_key_env):
            raise CallerFault(
                f"no key for {name}: {' or '.join(spec.api_key_env)} is not set",
                kind="missing_key",
                hint=f"{keys_like(spec.api_key_env, self.environment)}export {spec.api_key_env[0]}=...",
            )
        return structs.replace(spec, name=target, model=model)

    def about(self, target: str) -> Known:
        """What is said of the target's provider: with `like` and `account` filled in, and the model's own price."""
        name, model = split_target(target)
        known = self.known.get(name) or Known(like=name)
        own = known.models.get(model)
        return structs.replace(
            known, account=known.account or self._account(name, target), price=(own and own.price) or known.price
        )

    def credential(self, target: str) -> str:
        """The key that `target` is asked with; "" for none."""
        return next(filter(None, map(self.environment.get, self._place(target).api_key_env)), "")

    def asked(self, target: str) -> tuple[TargetSpec, str, Known]:
        """All that decides how `target` is asked."""
        return self.spec(target), self.credential(target), self.about(target)

    def _account(self, name: str, target: str) -> str:
        """The name of the key that is used, and where. That one host refuses a key says nothing of another's mind: one
        wrong server among several of one's own must not stop them all."""
        spec = self._place(target)
        held = next((variable for variable in spec.api_key_env if self.environment.get(variable)), "")
        return f"{held.removeprefix('env:')} at {urlsplit(spec.base_url).netloc}" if held else name


def check_reach(settings: Settings) -> None:
    """Raises `CallerFault` where others could use the gateway, and so our providers' keys, without a key."""
    if not settings.keys and not settings.listen.is_loopback:
        raise CallerFault(
            f"without keys it listens only on this machine, not on {settings.listen.host}",
            kind="no_keys",
            hint="Add keys: [{name: web, key: env:WEB_KEY}] to the configuration, or listen on 127.0.0.1.",
        )


def catalogued(found: Provider, environment: Mapping[str, str]) -> TargetSpec:
    """The spec of a provider of the catalogue, for any model of it."""
    return TargetSpec(
        name=found.name,
        model="",
        base_url=fill_base_url(found, environment),
        dialect=found.dialect,
        api_key_env=found.api_key_env,
        auth=found.auth,
        headers=found.headers,
        quirks=found.quirks,
        timeouts=TIMEOUTS,
    )
