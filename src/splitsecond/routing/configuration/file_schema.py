"""Schema of `splitsecond.yaml`: the structs that it is read into, and the JSON schema made from
them."""

from datetime import date
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from splitsecond.core.catalog.model import Prefill
from splitsecond.core.catalog.provider import Auth, Credentials
from splitsecond.routing.configuration.settings import Listen
from splitsecond.routing.router.settings import (
    AtLimit,
    ModelConfig,
    PriceConfig,
    TelemetrySettings,
)

MAX_LIMIT = 1_000_000_000
"""Largest limit of a key or a team. Shared counters have 64 bits, and count billionths of a
dollar."""
Duration = Annotated[
    str, Meta(examples=["300ms", "2s"], extra_json_schema={"pattern": r"^[0-9.]+(ms|s|m|h|d)$"})
]
Secret = Annotated[
    str, Meta(examples=["env:NAME"], extra_json_schema={"pattern": "^(env|file):.+"})
]


class SessionLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a session of a client may use."""

    usd_per_session: Annotated[
        Annotated[float, Meta(gt=0, le=MAX_LIMIT)] | None, Meta(description="None: no limit.")
    ] = None
    turns_per_session: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None,
        Meta(description="Calls of a session. None: no limit."),
    ] = None
    at_limit: Annotated[
        AtLimit | None,
        Meta(
            description="At a limit of its session a call gets: stop (default): status 429; ask: "
            "an answer that says what was spent and how to go on."
        ),
    ] = None


class FormerKeyConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key that a client used before, and that is still valid."""

    key: Annotated[Secret, Meta(description="The key: env:NAME or file:PATH.")]
    until: Annotated[
        date | None,
        Meta(description="The last day, in UTC, on which it is valid; without it, it stays valid."),
    ] = None


RequestsPerMinute = Annotated[
    Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None, Meta(description="None: no limit.")
]
UsdPerDay = Annotated[
    Annotated[float, Meta(gt=0, le=MAX_LIMIT)] | None,
    Meta(description="A day begins at 00:00 UTC. None: no limit."),
]
UsdPerMonth = Annotated[
    Annotated[float, Meta(gt=0, le=MAX_LIMIT)] | None,
    Meta(description="A month begins on its first day at 00:00 UTC. None: no limit."),
]


class TeamConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A team: its keys share these limits, beside those that each key has."""

    requests_per_minute: RequestsPerMinute = None
    usd_per_day: UsdPerDay = None
    usd_per_month: UsdPerMonth = None


class KeyConfig(SessionLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client and what it may use."""

    name: Annotated[str, Meta(min_length=1, description="The client's name in logs and metrics.")]
    key: Annotated[Secret, Meta(description="Its key: env:NAME or file:PATH.")]
    former_keys: Annotated[
        tuple[FormerKeyConfig, ...],
        Meta(description="Keys that are valid beside it, while clients change to the new one."),
    ] = ()
    routes: Annotated[
        tuple[str, ...],
        Meta(
            description='Routes, "provider/model", "provider/*", a page such as "/metrics", or '
            '"*" for everything.'
        ),
    ] = ("*",)
    requests_per_minute: RequestsPerMinute = None
    usd_per_day: UsdPerDay = None
    usd_per_month: UsdPerMonth = None
    team: Annotated[str | None, Meta(description="Its team, a name in `teams`.")] = None


class TimeoutsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timeouts of each phase of an attempt."""

    connect: Annotated[
        Duration | None, Meta(description="DNS, TCP and TLS together; 5s by default.")
    ] = None
    head: Annotated[
        Duration | None, Meta(description="From the request to the status line; 60s by default.")
    ] = None
    first_token: Annotated[
        Duration | None, Meta(description="Up to the first token; 60s by default.")
    ] = None
    stall: Annotated[
        Duration | None, Meta(description="Longest silence between two tokens; 30s by default.")
    ] = None
    total: Annotated[
        Duration | None, Meta(description="The whole attempt; no limit by default.")
    ] = None


class ProviderConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider. Defaults come from the catalogue's entry of the same name, or the one named by
    `like`."""

    like: Annotated[str, Meta(description="Name of the catalogue's entry to use.")] = ""
    base_url: Annotated[str, Meta(description="Required if the catalogue has no such entry.")] = ""
    api_format: Annotated[str, Meta(description="Its API format; openai by default.")] = ""
    api_key: Annotated[str, Meta(description="The key for it: env:NAME or file:PATH.")] = ""
    auth: Annotated[Auth | None, Meta(description="How the key is sent.")] = None
    credentials: Annotated[
        Credentials | None,
        Meta(
            description="client: requests carry the client's own credentials, if the client uses "
            "the vendor's API; the "
            "gateway needs no key. They are not stored."
        ),
    ] = None
    region: Annotated[str, Meta(description="Its region, such as eu or us-east.")] = ""
    account: Annotated[
        str,
        Meta(
            description="Providers of one account share a rejected key. Default: one account for "
            "each key at a host."
        ),
    ] = ""
    headers: Annotated[
        dict[str, str],
        Meta(description="Headers of each request. Keys only as env:NAME or file:PATH."),
    ] = {}
    quirks: Annotated[
        dict[str, Any] | None, Meta(description="Its deviations from the API format.")
    ] = None
    timeouts: TimeoutsConfig = TimeoutsConfig()
    stream: Annotated[
        bool, Meta(description="false: requests without streaming are sent without streaming.")
    ] = True
    prefill: Annotated[
        Prefill | None,
        Meta(
            description="Whether it continues an answer that is given as the last message, of the "
            "assistant: plain, "
            'or marked with "prefix": true or "partial": true; false: it does not.'
        ),
    ] = None
    trusted: Annotated[
        bool,
        Meta(
            description="Its requests carry traceparent, so that its spans "
            "join the trace of the call."
        ),
    ] = False
    price: PriceConfig | None = None
    models: dict[str, ModelConfig] = {}


class RouteConfig(SessionLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A route: a name for `model` in requests, and its policy."""

    policy: Annotated[
        str,
        Meta(examples=['fallback("a/x", "b/x", ttft="2s")'], description="A policy over targets."),
    ]
    resume: Annotated[
        Literal["replay"] | None,
        Meta(
            description="replay: a broken answer is continued at another target that repeats its "
            "beginning."
        ),
    ] = None
    stall: Annotated[
        Duration | None, Meta(description="Silence after which an answer counts as broken.")
    ] = None


class LogConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log of calls. It contains no prompt, no answer and no key."""

    url: Annotated[
        str,
        Meta(
            description="sqlite:///FILE or postgresql://...; a URL with a password as env:NAME or "
            "file:PATH."
        ),
    ]
    keep_days: Annotated[int, Meta(ge=1, le=3650)] = 31


class ConfigFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of `splitsecond serve`."""

    listen: Listen = Listen()
    keys: Annotated[
        list[KeyConfig],
        Meta(description="Clients. Without keys, only this machine may send requests."),
    ] = []
    teams: Annotated[
        dict[str, TeamConfig], Meta(description="Teams of clients, by the names that keys give.")
    ] = {}
    providers: Annotated[
        dict[str, ProviderConfig],
        Meta(description="Providers that are not in the catalogue, and changes to those that are."),
    ] = {}
    routes: Annotated[
        dict[str, RouteConfig | str],
        Meta(
            description='By the name that clients use as `model`; a text is the policy. "*": the '
            "route of every other model."
        ),
    ] = {}
    pass_through: Annotated[
        bool,
        Meta(
            description="Any other model is one of the vendor whose API the client uses: "
            "anthropic, openai, "
            "openai-responses, gemini or ollama."
        ),
    ] = False
    require_prices: Annotated[
        bool,
        Meta(
            description="Keys with a limit in USD cannot use a target without a price, not even a "
            "server of your own, which is free otherwise."
        ),
    ] = False
    policies: Annotated[
        str | None,
        Meta(
            examples=["my_policies.py"],
            description="A Python file with your own policies, for routes. It runs with the "
            "gateway's rights.",
        ),
    ] = None
    log: Annotated[
        str | LogConfig | None,
        Meta(description="Log of calls: a URL, FILE.db, env:NAME or file:PATH. off: none."),
    ] = None
    access_log: Annotated[
        str | None,
        Meta(
            examples=["access.jsonl", "-"],
            description="File for a line of JSON a request. -: standard output.",
        ),
    ] = None
    telemetry: Annotated[
        TelemetrySettings | None,
        Meta(description="OpenTelemetry's spans and metrics. Default: none."),
    ] = None
    shared: Annotated[
        str | None,
        Meta(
            examples=["postgresql://splitsecond@db.internal/splitsecond", "env:SHARED_URL"],
            description="PostgreSQL that several gateways share their limits by: a URL; one with "
            "a password as "
            "env:NAME or file:PATH. Default: this gateway is alone.",
        ),
    ] = None
    seeds: Annotated[
        list[str],
        Meta(
            examples=[["runs/2026-11-*"]], description="Run folders of a bench for the warm start."
        ),
    ] = []


DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    return {"$schema": DRAFT, "title": "splitsecond.yaml", **msgspec.json.schema(ConfigFile)}


def schema_text() -> str:
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode()
