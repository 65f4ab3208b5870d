"""What may stand in `splitsecond.yaml`: the shape that it is read into, and that its JSON schema is made of."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from splitsecond.catalog.model import Prefill
from splitsecond.catalog.provider import Auth
from splitsecond.gateway.configuration.settings import Listen, ModelGiven, PriceGiven

Duration = Annotated[str, Meta(examples=["300ms", "2s"], extra_json_schema={"pattern": r"^[0-9.]+(ms|s|m|h|d)$"})]
Secret = Annotated[str, Meta(examples=["env:NAME"], extra_json_schema={"pattern": "^(env|file):.+"})]


class KeyGiven(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client, and what it may ask for."""

    name: Annotated[str, Meta(min_length=1, description="As logs and metrics call the client.")]
    key: Annotated[Secret, Meta(description="Where its key is found: env:NAME or file:PATH.")]
    routes: Annotated[
        tuple[str, ...], Meta(description='Routes, "provider/model", "provider/*", or "*" for everything.')
    ] = ("*",)
    requests_per_minute: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="None: no limit.")] = None
    usd_per_day: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description="None: no limit.")] = None


class TimeoutsGiven(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long each phase of an attempt may take."""

    connect: Annotated[Duration | None, Meta(description="Name, TCP and TLS together; 5s if not given.")] = None
    head: Annotated[Duration | None, Meta(description="From the request to the status; 60s if not given.")] = None
    first_token: Annotated[Duration | None, Meta(description="From the request on; 60s if not given.")] = None
    stall: Annotated[Duration | None, Meta(description="The longest silence between two tokens; 30s if not given.")] = (
        None
    )
    total: Annotated[Duration | None, Meta(description="All of it; no limit if not given.")] = None


class ProviderGiven(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider. What is not given is taken from the catalogue's entry of the same name, or of the name `like`."""

    like: Annotated[str, Meta(description="The entry of the catalogue that it is a second one of.")] = ""
    base_url: Annotated[str, Meta(description="Needed where the catalogue has no such entry.")] = ""
    dialect: Annotated[str, Meta(description="How it is spoken to; openai where nothing else is said.")] = ""
    api_key: Annotated[str, Meta(description="Where our key is found: env:NAME or file:PATH.")] = ""
    auth: Annotated[Auth | None, Meta(description="How the key is sent.")] = None
    region: Annotated[str, Meta(description="Where it runs, such as eu or us-east.")] = ""
    account: Annotated[
        str,
        Meta(description="Where one provider of an account refuses its key, all do; by default: one key at one host."),
    ] = ""
    headers: Annotated[
        dict[str, str], Meta(description="Sent with each request. Keys only as env:NAME or file:PATH.")
    ] = {}
    quirks: Annotated[dict[str, Any] | None, Meta(description="How it departs from its dialect.")] = None
    timeouts: TimeoutsGiven = TimeoutsGiven()
    stream: Annotated[
        bool, Meta(description="false: answers that a client wants whole are asked for whole, not as a stream.")
    ] = True
    prefill: Annotated[
        Prefill | None,
        Meta(
            description="Whether it goes on from the beginning of an answer, given as a last message of the "
            'assistant\'s: plain, or marked with "prefix": true or "partial": true; false: it does not.'
        ),
    ] = None
    price: PriceGiven | None = None
    models: dict[str, ModelGiven] = {}


class RouteGiven(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What answers for a name that clients put into `model`."""

    policy: Annotated[str, Meta(examples=['fallback("a/x", "b/x", ttft="2s")'], description="A policy over targets.")]
    resume: Annotated[
        Literal["replay", "prefill"] | None, Meta(description="How an answer that broke off is carried on elsewhere.")
    ] = None
    stall: Annotated[Duration | None, Meta(description="The silence after which an answer counts as broken off.")] = (
        None
    )


class LogAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where calls are logged. No prompt, no answer and no key is."""

    url: Annotated[str, Meta(description="sqlite:///FILE or postgresql://...; one with a password as env:NAME.")]
    keep_days: Annotated[int, Meta(ge=1, le=3650)] = 30


class File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of `splitsecond serve`."""

    listen: Listen = Listen()
    keys: Annotated[
        list[KeyGiven], Meta(description="Clients. Without any, only this machine may ask, and without a key.")
    ] = []
    providers: Annotated[
        dict[str, ProviderGiven],
        Meta(description="Providers beside those of the catalogue, and changes to those."),
    ] = {}
    routes: Annotated[dict[str, RouteGiven], Meta(description="By the name that clients put into `model`.")] = {}
    log: Annotated[
        str | LogAsked | None, Meta(description="Where calls are logged: a URL, or env:NAME of one. off: nowhere.")
    ] = None
    seeds: Annotated[
        list[str],
        Meta(examples=[["runs/2026-11-*"]], description="Run folders whose figures are known from the start."),
    ] = []
