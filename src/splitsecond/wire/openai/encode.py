"""The client role, writing: a call to the request that a provider takes.

The fields of a call go through as they came, byte for byte. Four are ours: ``model`` (the target's name for it),
``stream`` (on, unless a quirk says otherwise), ``stream_options`` and the name of the limit on output tokens. Of a
request for embeddings only the model is.
"""

from typing import Any

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.service import Call, Operation
from splitsecond.wire.dialect import STREAM_HEADERS, WHOLE_HEADERS, Encoded, Quirks

_PATHS: dict[Operation, str] = {"chat": "/chat/completions", "completions": "/completions"}
_MAX_TOKENS = ("max_tokens", "max_completion_tokens")
_OTHER = {"max_tokens": _MAX_TOKENS[1:], "max_completion_tokens": _MAX_TOKENS[:1]}
_USAGE = msgspec.Raw(b'{"include_usage":true}')
_NO_LIMIT = (None, msgspec.Raw(b"null"))
_encode = msgspec.json.Encoder().encode


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    """`call` as a request to the target that the provider calls `model`.

    Raises `CallerFault` where the call's ``stream_options`` is not an object.
    """
    fields: dict[str, Any] = dict(call.body)
    fields["model"] = model
    if call.operation == "embeddings":
        fields.pop("stream", None)
        return Encoded("/embeddings", WHOLE_HEADERS, _encode(fields), False)
    streamed = fields["stream"] = quirks.streamed(call)
    options = fields.pop("stream_options", None)
    if quirks.stream_options and streamed:
        fields["stream_options"] = _USAGE if options is None else {**_options(options), "include_usage": True}
    if call.operation == "chat" and ("max_tokens" in fields or "max_completion_tokens" in fields):
        _name_limit(fields, quirks.max_tokens_field)
    headers = STREAM_HEADERS if streamed else WHOLE_HEADERS
    return Encoded(_PATHS[call.operation], headers, _encode(fields), streamed)


def _name_limit(fields: dict[str, Any], name: str) -> None:
    """Gives the limit on output tokens the provider's `name` for it."""
    limit = fields.pop(name, None)
    for other in _OTHER.get(name, _MAX_TOKENS):
        given = fields.pop(other, None)
        if limit in _NO_LIMIT:
            limit = given
    if limit not in _NO_LIMIT:
        fields[name] = limit


def _options(value: Any) -> dict[str, Any]:
    try:
        options = msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
        return msgspec.convert(options, dict[str, Any] | None) or {}
    except msgspec.MsgspecError as error:
        raise CallerFault(f"stream_options must be an object: {error}") from error
