"""Parsed request of a client: its fields, which stay raw, and the few that the gateway reads.

The body is decoded once, and values pass byte for byte, so unknown fields are not lost. Two sorts
of fields are removed: those that name another server or another key in some libraries, and routing
preferences, which no provider understands. A model that names a target directly has no routing
preferences: all of its fields pass, as ``provider`` does to OpenRouter.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.errors import CallerFault
from splitsecond.routing.router import routing_preferences
from splitsecond.routing.router.routing_preferences import RoutingPreferences

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_model = msgspec.json.Decoder(str).decode
_flag = msgspec.json.Decoder(bool | None).decode

ELSEWHERE = frozenset(
    {"api_key", "api_base", "base_url", "api_version", "azure_endpoint", "custom_llm_provider",
    "headers",
     "extra_headers"}
)  # fmt: skip
"""Fields that tell some client libraries which server and which key to use. They are dropped."""


class _StreamOptions(Struct):
    include_usage: bool | None = None


class ParsedRequest(Struct, frozen=True):
    """A request. `body`: the fields that pass, as they came. `usage`: the client requests the usage
    chunk of a stream.

    `routing_preferences`: None if there are none. `dropped`: the names of fields that were removed
    and not used.
    """

    model: str
    stream: bool
    usage: bool
    body: dict[str, Raw]
    routing_preferences: RoutingPreferences | None = None
    dropped: tuple[str, ...] = ()


def read(
    body: bytes, model: str = "", stream: bool | None = None, *, streams: bool = False
) -> ParsedRequest:
    """Parse the request in `body`. `model`, `stream`: what the path says instead. `streams`: the
    answer is a stream unless the request says otherwise.

    Raises `CallerFault` with the name of the field that is missing or wrong.
    """
    try:
        fields = _fields(body)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's body is not a JSON object: {error}") from error
    model = model or _value(fields, "model", _model)
    if not model:
        raise CallerFault(
            "the request names no model", kind="missing_model", hint='Add "model": "ROUTE".'
        )
    preferences = None
    if "/" not in model and (":" in model or "provider" in fields):
        model, preferences = routing_preferences.read(model, fields.pop("provider", None))
    dropped = (
        () if ELSEWHERE.isdisjoint(fields) else tuple(name for name in fields if name in ELSEWHERE)
    )
    for name in dropped:
        del fields[name]
    if stream is None:
        stream = bool(_value(fields, "stream", _flag)) if "stream" in fields else streams
    return ParsedRequest(
        model=model,
        stream=stream,
        usage=_wants_usage(fields) if "stream_options" in fields else False,
        body=fields,
        routing_preferences=preferences,
        dropped=dropped,
    )


_options = msgspec.json.Decoder(_StreamOptions | None).decode


def _wants_usage(fields: dict[str, Raw]) -> bool:
    options: _StreamOptions | None = _value(fields, "stream_options", _options)
    return bool(options and options.include_usage)


def _value(fields: dict[str, Raw], name: str, decode: Any) -> Any:
    if name not in fields:
        return None
    try:
        return decode(fields[name])
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's {name} is wrong: {error}") from error
