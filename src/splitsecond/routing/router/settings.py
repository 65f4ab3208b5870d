"""Settings of a router: providers, routes, the log and the runs that warm it up.

Secrets are resolved: a client's key is its hash; a provider's key is in `environment`, under its
reference.
"""

from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct, structs

from splitsecond.core.catalog.price import Price
from splitsecond.core.catalog.provider import Access, Provider, fill_base_url, split_target
from splitsecond.core.catalog.provider import provider as read_provider
from splitsecond.core.errors import CallerFault
from splitsecond.core.upstream.spec import TargetSpec, Timeouts, keys_like, spec_at
from splitsecond.log.store.settings import LogSettings
from splitsecond.routing.construction.expression import Expression, targets

OWN_SERVER = (
    "A server of your own needs an entry in the configuration: providers: {NAME: {base_url: URL}}."
)
provider = lru_cache(maxsize=256)(partial(read_provider, own_server=OWN_SERVER))
"""Return an entry of the catalogue. Cached, because requests look it up by target name."""

TIMEOUTS = Timeouts(connect_ms=5_000, head_ms=60_000, first_token_ms=60_000, stall_ms=30_000)
"""Default timeouts of a target. Shorter than those of a benchmark: a client waits, and other
targets could answer."""
SIMULATED = "sim"
"""The provider whose models are the profiles of the simulator."""
OTHERS = "*"
"""The route of every model that is no other route."""
NO_SIMULATOR = "http://simulator.invalid"
"""Placeholder for the simulator's address where no simulator runs, as in checks."""
Usd = Annotated[float, Meta(ge=0, le=1_000_000)]


class PriceConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Price of a target in US dollars. The price list fills in what is not given."""

    input_usd: Annotated[Usd | None, Meta(description="Per million input tokens.")] = None
    output_usd: Annotated[Usd | None, Meta(description="Per million output tokens.")] = None
    cached_usd: Annotated[
        Usd | None, Meta(description="Per million input tokens from the provider's prompt cache.")
    ] = None
    cache_write_usd: Annotated[
        Usd | None, Meta(description="Per million input tokens written to that cache.")
    ] = None
    cache_write_1h_usd: Annotated[
        Usd | None,
        Meta(
            description="Per million input tokens written to it for an hour; without it, twice "
            "the price of input."
        ),
    ] = None
    per_hour_usd: Annotated[Usd | None, Meta(description="Per hour of a machine of your own.")] = (
        None
    )

    def over(self, listed: Price | None) -> Price | None:
        """Return the price with these rates, and all others of the price list; None if a rate is
        missing in both."""
        rates = {name: usd for name, usd in structs.asdict(self).items() if usd is not None}
        if (
            listed is None
            and "per_hour_usd" not in rates
            and not {"input_usd", "output_usd"} <= rates.keys()
        ):
            return None
        tiers = (
            () if listed is None or "input_usd" in rates or "output_usd" in rates else listed.tiers
        )
        return structs.replace(listed or Price(), **rates, tiers=tiers, source="configuration")

    def scaled(self, factor: float) -> "PriceConfig":
        tokens = {
            name: getattr(self, name) for name in self.__struct_fields__ if name != "per_hour_usd"
        }
        return structs.replace(
            self, **{name: usd * factor for name, usd in tokens.items() if usd is not None}
        )


class ModelConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a provider."""

    context: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Longest prompt and answer together, in tokens."),
    ] = None
    output: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Longest answer, in tokens.")
    ] = None
    price: PriceConfig | None = None


class ProviderSettings(Access, frozen=True, kw_only=True):
    """A provider as a router uses it: the catalogue's entry, changed by the configuration.

    `like`: its entry in the catalogue, "" for none; it has the tiers, and what `models` and
    `prefill` leave open. `account`: the account that owns its key, "" if no other provider shares
    it. `trusted`: its requests carry ``traceparent``.
    """

    like: str = ""
    account: str = ""
    price: PriceConfig | None = None
    models: Mapping[str, ModelConfig] = {}
    timeouts: Timeouts = TIMEOUTS
    trusted: bool = False

    def context_tokens(self, model: str) -> int | None:
        own = self.models.get(model)
        return own.context if own else None

    def output_tokens(self, model: str) -> int | None:
        own = self.models.get(model)
        return own.output if own else None


AtLimit = Literal["stop", "ask"]


class SessionBudget(Struct, frozen=True, kw_only=True):
    """What one session of a client may use. None: no limit.

    `at_limit`: what a call gets then: "stop" an error, "ask" an answer that says so.
    """

    usd: float | None = None
    turns: int | None = None
    at_limit: AtLimit = "stop"


class FormerKey(Struct, frozen=True):
    """A client's former key as its SHA-256, valid before `until_s`, in seconds since 1970; None:
    always."""

    digest: bytes
    until_s: float | None = None


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a key or a team, over all workers. None: no limit. Days and months are in UTC."""

    requests_per_minute: int | None = None
    usd_per_day: float | None = None
    usd_per_month: float | None = None

    @property
    def in_usd(self) -> bool:
        return self.usd_per_day is not None or self.usd_per_month is not None

    @property
    def is_limited(self) -> bool:
        return self.requests_per_minute is not None or self.in_usd


class Team(Limits, frozen=True):
    """Keys that share limits."""

    name: str

    @property
    def counter(self) -> str:
        """The name under which its use is counted. No key has it, as no YAML has a NUL."""
        return f"\0team {self.name}"


class ClientKey(Limits, frozen=True):
    """A client's key as its SHA-256, and what it may use: route names, "provider/model",
    "provider/*", "/metrics", "*".

    `session`: the budget of each of its sessions. `former`: keys that are valid beside this one.
    """

    name: str
    digest: bytes
    routes: tuple[str, ...] = ("*",)
    session: SessionBudget | None = None
    former: tuple[FormerKey, ...] = ()
    team: Team | None = None

    @property
    def counter(self) -> str:
        return self.name

    @property
    def bearers(self) -> "list[ClientKey | Team]":
        """What has limits for its calls: the key and its team, if they have any."""
        team = [] if self.team is None else [self.team]
        both: list[ClientKey | Team] = [self, *team]
        return [each for each in both if each.is_limited]

    @property
    def digests(self) -> list[bytes]:
        return [self.digest, *(each.digest for each in self.former)]

    def allows(self, model: str) -> bool:
        if "*" in self.routes or model in self.routes:
            return True
        return "/" in model and model.partition("/")[0] + "/*" in self.routes


class ResumeSettings(Struct, frozen=True):
    """Continuation of a route's broken answers at another target.

    `stall_ns`: silence after which an answer counts as broken; None: only when it breaks.
    """

    stall_ns: int | None = None


class TelemetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Collector of OpenTelemetry's spans and metrics."""

    endpoint: Annotated[
        str, Meta(description="Address of the collector: http://HOST:4318, or 4317 for gRPC.")
    ]
    protocol: Annotated[Literal["http", "grpc"], Meta(description="OTLP over HTTP or gRPC.")] = (
        "http"
    )
    headers: Annotated[
        dict[str, str],
        Meta(description="Headers of each export. Keys only as env:NAME or file:PATH."),
    ] = {}
    sample: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Share of the calls with spans, unless the client's traceparent decides.",
        ),
    ] = 1.0
    metrics_every_s: Annotated[
        float, Meta(ge=1, le=86_400, description="Seconds between two exports of metrics.")
    ] = 60.0


class RouterSettings(Struct, frozen=True, kw_only=True):
    """Providers, routes, log and warm start.

    `environment` holds the providers' keys; those of a configuration file are there under their
    reference. `providers` are the configured ones; all others come from the catalogue. `resumes`:
    routes that continue broken answers. `budgets`: what a session may use of a route. `seeds`: glob
    patterns of run folders for the warm start. `source`: the configuration file, or None.
    `pass_through`: a model that is no route and no "provider/model" is one of the vendor whose API
    the client uses. `require_prices`: a server of your own without a price is not free, but has an
    unknown price.
    """

    providers: Mapping[str, ProviderSettings] = {}
    routes: Mapping[str, Expression] = {}
    resumes: Mapping[str, ResumeSettings] = {}
    budgets: Mapping[str, SessionBudget] = {}
    log: LogSettings | None = None
    seeds: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    source: Path | None = None
    pass_through: bool = False
    require_prices: bool = False

    @property
    def takes_credentials(self) -> bool:
        return any(each.credentials == "client" for each in self.providers.values())

    def spec(self, target: str) -> TargetSpec:
        """Return the spec of "provider/model". Raises `CallerFault` for an unknown provider or a
        missing key."""
        name, model = split_target(target, OWN_SERVER)
        own = self._usable(name)
        settings: dict[str, Any] = {"timeouts": own.timeouts, "trusted": own.trusted}
        if own.prefill is not None:
            settings["prefill"] = own.prefill
        if tokens := own.output_tokens(self.split_tier(target)[0]):
            settings["output_tokens"] = tokens
        return spec_at(own, target, model, provider(own.like) if own.like else None, **settings)

    def split_tier(self, target: str) -> tuple[str, str]:
        """Return the model of a target, and its speed tier or "". Raises `CallerFault` for an
        unknown tier."""
        name, model = split_target(target, OWN_SERVER)
        own = self.providers.get(name)
        like = own.like if own else name
        return provider(like).split_tier(model) if like else (model, "")

    def _usable(self, name: str) -> ProviderSettings:
        own = self.providers.get(name) or catalogued(provider(name), self.environment)
        if (
            own.api_key_env
            and own.credentials == "gateway"
            and not own.key_variable(self.environment)
        ):
            raise CallerFault(
                f"no key for {name}: {' or '.join(own.api_key_env)} is not set",
                kind="missing_key",
                hint=f"{keys_like(own.api_key_env, self.environment)}export "
                f"{own.api_key_env[0]}=...",
            )
        return own

    def about(self, target: str) -> ProviderSettings:
        """Return the provider of a target, with the account and the price of this target. Raises as
        `spec` does."""
        name, model = split_target(target, OWN_SERVER)
        own = self._usable(name)
        exact = own.models.get(model)
        price = (exact and exact.price) or self._tier_price(target, own)
        return structs.replace(own, account=own.account or self._account(name, own), price=price)

    def _tier_price(self, target: str, own: ProviderSettings) -> PriceConfig | None:
        model, tier = self.split_tier(target)
        entry = own.models.get(model)
        price = (entry and entry.price) or own.price
        if not tier or price is None:
            return price
        factor = provider(own.like).tiers[tier].factor(model)
        return None if factor is None else price.scaled(factor)

    def credential(self, target: str) -> str:
        own = self._usable(split_target(target, OWN_SERVER)[0])
        return self.environment.get(own.key_variable(self.environment), "")

    def identity(self, target: str) -> tuple[TargetSpec, str, ProviderSettings]:
        return self.spec(target), self.credential(target), self.about(target)

    def _account(self, name: str, own: ProviderSettings) -> str:
        """Return the name of the key in use and its host. A key that one host refuses may be valid
        at another: one misconfigured server must not stop the others."""
        variable = own.key_variable(self.environment)
        return (
            f"{variable.removeprefix('env:')} at {urlsplit(own.base_url).netloc}"
            if variable
            else name
        )


_SIMULATOR = ProviderSettings(
    base_url="",
    account="simulator",
    price=PriceConfig(input_usd=0, output_usd=0),
    quirks={"session_header": "x-session-id"},
)


def simulated(url: str) -> dict[str, ProviderSettings]:
    return {SIMULATED: structs.replace(_SIMULATOR, base_url=f"{url}/{{model}}/v1")}


def simulated_profiles(settings: RouterSettings) -> dict[str, str]:
    profiles: dict[str, str] = {}
    own = settings.providers.get(SIMULATED)
    if own is not None and structs.replace(own, base_url="") == _SIMULATOR:
        for route, policy in settings.routes.items():
            for name, profile in map(split_target, targets(policy)):
                if name == SIMULATED:
                    profiles.setdefault(profile, route)
    return profiles


def catalogued(entry: Provider, environment: Mapping[str, str]) -> ProviderSettings:
    """Return a provider that no configuration changes. Raises `CallerFault` if its address is not
    complete."""
    fields = entry.access | {"base_url": fill_base_url(entry, environment), "prefill": None}
    return ProviderSettings(**fields, like=entry.name)
