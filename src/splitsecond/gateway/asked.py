"""What a client asks for: its body, split into fields that stay raw, and the few that the gateway itself must know.

The body is decoded once. Values go on byte for byte, so nothing is lost of what we do not know. Two sorts of fields do
not go on: those by which some libraries would have us ask elsewhere, or with another key, and what is wished of a
route, which no provider would understand. A target that the client names itself has no wishes: there all goes on, as
``provider`` does to OpenRouter.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.errors import CallerFault
from splitsecond.gateway import wishes
from splitsecond.gateway.wishes import Wishes

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_model = msgspec.json.Decoder(str).decode
_flag = msgspec.json.Decoder(bool | None).decode

ELSEWHERE = frozenset(
    {"api_key", "api_base", "base_url", "api_version", "azure_endpoint", "custom_llm_provider", "headers",
     "extra_headers"}
)  # fmt: skip
"""Fields by which a library of this name would be told where to ask, and with which key. They are dropped."""


class _StreamOptions(Struct):
    include_usage: bool | None = None


class Asked(Struct, frozen=True):
    """`body`: all fields that go on, as they came. `usage`: the client wants a stream's chunk of usage.

    `dropped`: the names of fields that do not go on, and are not acted on.
    """

    model: str
    stream: bool
    usage: bool
    body: dict[str, Raw]
    wishes: Wishes | None = None
    dropped: tuple[str, ...] = ()


def read(body: bytes) -> Asked:
    """The request in `body`. Raises `CallerFault` that names the field which is missing or wrong."""
    try:
        fields = _fields(body)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's body is not a JSON object: {error}") from error
    model: str | None = _value(fields, "model", _model)
    if not model:
        raise CallerFault("the request names no model", kind="missing_model", hint='Add "model": "ROUTE".')
    wish = None
    if "/" not in model and (":" in model or "provider" in fields):
        model, wish = wishes.read(model, fields.pop("provider", None))
    dropped = () if ELSEWHERE.isdisjoint(fields) else tuple(name for name in fields if name in ELSEWHERE)
    for name in dropped:
        del fields[name]
    return Asked(
        model=model,
        stream=bool(_value(fields, "stream", _flag)) if "stream" in fields else False,
        usage=_wants_usage(fields) if "stream_options" in fields else False,
        body=fields,
        wishes=wish,
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
