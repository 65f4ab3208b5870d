"""What a client asks for: its body, split into fields that stay raw, and the three that the gateway itself must know.

The body is decoded once. Values go on byte for byte, so nothing is lost of what we do not know.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.errors import CallerFault

_fields = msgspec.json.Decoder(dict[str, Raw]).decode


class _StreamOptions(Struct):
    include_usage: bool | None = None


class Asked(Struct, frozen=True):
    """`body`: all fields, as they came. `usage`: the client wants a stream's chunk of usage."""

    model: str
    stream: bool
    usage: bool
    body: dict[str, Raw]


def read(body: bytes) -> Asked:
    """The request in `body`. Raises `CallerFault` that names the field which is missing or wrong."""
    try:
        fields = _fields(body)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's body is not a JSON object: {error}") from error
    model: str | None = _value(fields, "model", str)
    if not model:
        raise CallerFault("the request names no model", kind="missing_model", hint='Add "model": "ROUTE".')
    options: _StreamOptions | None = _value(fields, "stream_options", _StreamOptions | None)
    return Asked(
        model=model,
        stream=bool(_value(fields, "stream", bool | None)),
        usage=bool(options and options.include_usage),
        body=fields,
    )


def _value(fields: dict[str, Raw], name: str, kind: Any) -> Any:
    if name not in fields:
        return None
    try:
        return msgspec.json.decode(fields[name], type=kind)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's {name} is wrong: {error}") from error
