"""The client role, writing: a call to the request that a provider takes.

The fields of a call go through as they came, byte for byte. Four are ours: ``model`` (the target's name for it),
``stream`` (always on: only a stream can be timed), ``stream_options`` and the name of the limit on output tokens.
"""

from typing import Any

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.service import Call, Operation
from splitsecond.wire.dialect import Encoded, Quirks

_PATHS: dict[Operation, str] = {"chat": "/chat/completions", "completions": "/completions"}
_HEADERS = (("content-type", "application/json"), ("accept", "text/event-stream"))
_MAX_TOKENS = ("max_tokens", "max_completion_tokens")
_NO_LIMIT = (None, msgspec.Raw(b"null"))


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    """`call` as a request to the target that the provider calls `model`.

    Raises `CallerFault` where the call's ``stream_options`` is not an object.
    """
    fields: dict[str, Any] = dict(call.body)
    fields["model"] = model
    fields["stream"] = True
    options = fields.pop("stream_options", None)
    if quirks.stream_options:
        fields["stream_options"] = {**_options(options), "include_usage": True}
    if call.operation == "chat":
        asked = [fields.pop(name, None) for name in (quirks.max_tokens_field, *_MAX_TOKENS)]
        limits = [limit for limit in asked if limit not in _NO_LIMIT]
        if limits:
            fields[quirks.max_tokens_field] = limits[0]
    return Encoded(_PATHS[call.operation], _HEADERS, msgspec.json.encode(fields))


def _options(value: Any) -> dict[str, Any]:
    try:
        options = msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
        return msgspec.convert(options, dict[str, Any] | None) or {}
    except msgspec.MsgspecError as error:
        raise CallerFault(f"stream_options must be an object: {error}") from error
