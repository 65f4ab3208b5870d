"""Settings of a router: providers, routes, the log and the runs that warm it up.

Secrets are resolved: a client's key is its hash; a provider's key is in `environment`, under its reference.
"""

from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct, structs

from splitsecond.core.catalog.model import Prefill
from splitsecond.core.catalog.provider import Provider, fill_base_url, split_target
from splitsecond.core.catalog.provider import provider as read_provider
from splitsecond.core.errors import CallerFault
from splitsecond.core.upstream.spec import TargetSpec, Timeouts, keys_like
from splitsecond.routing.construction.expression import Expression, targets

OWN_SERVER = "A server of your own needs an entry in the configuration: providers: {NAME: {base_url: URL}}."
provider = lru_cache(maxsize=256)(partial(read_provider, own_server=OWN_SERVER))
"""Return an entry of the catalogue. Cached, because requests look it up by target name."""

TIMEOUTS = Timeouts(connect_ms=5_000, head_ms=60_000, first_token_ms=60_000, stall_ms=30_000)
"""Default timeouts of a target. Shorter than those of a benchmark: a client waits, and other targets could answer."""
SIMULATED = "sim"
"""The provider whose models are the profiles of the simulator."""
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
    cache_write_usd: Annotated[Usd | None, Meta(description="Per million input tokens written to that cache.")] = None
    cache_write_1h_usd: Annotated[
        Usd | None,
        Meta(description="Per million input tokens written to it for an hour; without it, twice the price of input."),
    ] = None
    per_hour_usd: Annotated[Usd | None, Meta(description="Per hour of a machine of your own.")] = None

    def scaled(self, factor: float) -> "PriceConfig":
        tokens = {name: getattr(self, name) for name in self.__struct_fields__ if name != "per_hour_usd"}
        return structs.replace(self, **{name: usd * factor for name, usd in tokens.items() if usd is not None})


class ModelConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a provider."""

    context: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Longest prompt and answer together, in tokens.")
    ] = None
    output: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="Longest answer, in tokens.")] = None
    price: PriceConfig | None = None


class ProviderSettings(Struct, frozen=True, kw_only=True):
    """Facts about a provider from the configuration, other than how to send it a request (`TargetSpec`).

    `like`: its entry in the catalogue, "" for none. `account`: the account that owns its key, "" if no other provider
    shares it. `prefill`: as in the catalogue; None: the catalogue decides.
    """

    like: str = ""
    region: str = ""
    account: str = ""
    price: PriceConfig | None = None
    prefill: Prefill | None = None
    models: Mapping[str, ModelConfig] = {}

    def context_tokens(self, model: str) -> int | None:
        own = self.models.get(model)
        return own.context if own else None

    def output_tokens(self, model: str) -> int | None:
        own = self.models.get(model)
        return own.output if own else None


class ClientKey(Struct, frozen=True):
    """A client's key as its SHA-256, and what it may use: route names, "provider/model", "provider/*", "/metrics", "*".

    `requests_per_minute` and `usd_per_day` are its limits; None: no limit.
    """

    name: str
    digest: bytes
    routes: tuple[str, ...] = ("*",)
    requests_per_minute: int | None = None
    usd_per_day: float | None = None

    def allows(self, model: str) -> bool:
        if "*" in self.routes or model in self.routes:
            return True
        return "/" in model and model.partition("/")[0] + "/*" in self.routes


class ResumeSettings(Struct, frozen=True):
    """Continuation of a route's broken answers at another target.

    `stall_ns`: silence after which an answer counts as broken; None: only when it breaks.
    """

    stall_ns: int | None = None


class LogSettings(Struct, frozen=True):
    """Database of the log. The repr omits the URL, which may contain a password."""

    url: str
    keep_days: int = 30

    def __repr__(self) -> str:
        return f"LogSettings({self.url.partition(':')[0]}, keep_days={self.keep_days})"


class TelemetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Collector of OpenTelemetry's spans and metrics."""

    endpoint: Annotated[str, Meta(description="Address of the collector: http://HOST:4318, or 4317 for gRPC.")]
    protocol: Annotated[Literal["http", "grpc"], Meta(description="OTLP over HTTP or gRPC.")] = "http"
    headers: Annotated[
        dict[str, str], Meta(description="Headers of each export. Keys only as env:NAME or file:PATH.")
    ] = {}
    sample: Annotated[
        float, Meta(ge=0, le=1, description="Share of the calls with spans, unless the client's traceparent decides.")
    ] = 1.0
    metrics_every_s: Annotated[float, Meta(ge=1, le=86_400, description="Seconds between two exports of metrics.")] = (
        60.0
    )


class RouterSettings(Struct, frozen=True, kw_only=True):
    """Providers, routes, log and warm start.

    `environment` holds the providers' keys; those of a configuration file are there under their reference. `providers`
    and `known` hold the configured providers; all others come from the catalogue. `resumes`: routes that continue
    broken answers. `seeds`: glob patterns of run folders for the warm start. `source`: the configuration file, or None.
    """

    providers: Mapping[str, TargetSpec] = {}
    known: Mapping[str, ProviderSettings] = {}
    routes: Mapping[str, Expression] = {}
    resumes: Mapping[str, ResumeSettings] = {}
    log: LogSettings | None = None
    seeds: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    source: Path | None = None

    def spec(self, target: str) -> TargetSpec:
        """Return the spec of "provider/model". Raises `CallerFault` for an unknown provider or a missing key."""
        spec = self._without_prefill(target)
        known = self._known(target)
        prefill = known.prefill
        output_tokens = known.output_tokens(spec.model)
        if known.like:
            entry = provider(known.like)
            prefill = entry.continues(spec.model) if prefill is None else prefill
            output_tokens = output_tokens or entry.model(spec.model).output_tokens
        return structs.replace(spec, prefill=prefill, output_tokens=output_tokens)

    def split_tier(self, target: str) -> tuple[str, str]:
        """Return the model of a target, and its speed tier or "". Raises `CallerFault` for an unknown tier."""
        model, like = split_target(target, OWN_SERVER)[1], self._known(target).like
        return provider(like).split_tier(model) if like else (model, "")

    def _known(self, target: str) -> ProviderSettings:
        name = split_target(target, OWN_SERVER)[0]
        return self.known.get(name) or ProviderSettings(like=name)

    def _without_prefill(self, target: str) -> TargetSpec:
        name, _ = split_target(target, OWN_SERVER)
        spec = self.providers.get(name) or catalogued(provider(name), self.environment)
        if spec.api_key_env and not any(self.environment.get(variable) for variable in spec.api_key_env):
            raise CallerFault(
                f"no key for {name}: {' or '.join(spec.api_key_env)} is not set",
                kind="missing_key",
                hint=f"{keys_like(spec.api_key_env, self.environment)}export {spec.api_key_env[0]}=...",
            )
        model, tier = self.split_tier(target)
        if tier:
            spec = structs.replace(spec, quirks=spec.quirks | provider(self._known(target).like).tiers[tier].quirks)
        return structs.replace(spec, name=target, model=model)

    def about(self, target: str) -> ProviderSettings:
        name, model = split_target(target)
        known = self.known.get(name) or ProviderSettings(like=name)
        own = known.models.get(model)
        price = (own and own.price) or self._tier_price(target, known)
        return structs.replace(known, account=known.account or self._account(name, target), price=price)

    def _tier_price(self, target: str, known: ProviderSettings) -> PriceConfig | None:
        model, tier = self.split_tier(target)
        own = known.models.get(model)
        price = (own and own.price) or known.price
        if not tier or price is None:
            return price
        factor = provider(known.like).tiers[tier].factor(model)
        return None if factor is None else price.scaled(factor)

    def credential(self, target: str) -> str:
        return next(filter(None, map(self.environment.get, self._without_prefill(target).api_key_env)), "")

    def identity(self, target: str) -> tuple[TargetSpec, str, ProviderSettings]:
        return self.spec(target), self.credential(target), self.about(target)

    def _account(self, name: str, target: str) -> str:
        """Return the name of the key in use and its host. A key that one host refuses may be valid at another: one
        misconfigured server must not stop the others."""
        spec = self._without_prefill(target)
        held = next((variable for variable in spec.api_key_env if self.environment.get(variable)), "")
        return f"{held.removeprefix('env:')} at {urlsplit(spec.base_url).netloc}" if held else name


_SIMULATOR = ProviderSettings(account="simulator", price=PriceConfig(input_usd=0, output_usd=0))


def simulated(url: str) -> tuple[Mapping[str, TargetSpec], Mapping[str, ProviderSettings]]:
    spec = TargetSpec(name=SIMULATED, model="", base_url=f"{url}/{{model}}/v1", timeouts=TIMEOUTS)
    return {SIMULATED: spec}, {SIMULATED: _SIMULATOR}


def simulated_profiles(settings: RouterSettings) -> dict[str, str]:
    found: dict[str, str] = {}
    if settings.known.get(SIMULATED) == _SIMULATOR:
        for route, policy in settings.routes.items():
            for provider, profile in map(split_target, targets(policy)):
                if provider == SIMULATED:
                    found.setdefault(profile, route)
    return found


def catalogued(found: Provider, environment: Mapping[str, str]) -> TargetSpec:
    return TargetSpec(
        name=found.name,
        model="",
        base_url=fill_base_url(found, environment),
        api_format=found.api_format,
        api_key_env=found.api_key_env,
        auth=found.auth,
        headers=found.headers,
        quirks=found.quirks,
        timeouts=TIMEOUTS,
    )
