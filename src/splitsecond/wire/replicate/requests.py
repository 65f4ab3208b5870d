"""The server role, reading: what a client asks for a prediction of. The path holds the model, as "owner/name"."""

import re
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Raw, Struct

from splitsecond.errors import CallerFault
from splitsecond.service import Operation
from splitsecond.wire.dialect import ServerRequest

_PATH = re.compile(r"/models/([^/]+/[^/?]+)/predictions(?:\?|$)")


class _Input(Struct):
    prompt: str
    system_prompt: str | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None


class _Asked(Struct):
    input: _Input
    stream: bool | None = None


_decode_asked = msgspec.json.Decoder(_Asked).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def parse_request(operation: Operation, body: bytes, path: str) -> ServerRequest:
    """The request with this `body` for `path`, with or without its query.

    Raises `CallerFault` that names the field which is missing or wrong, or says that there is no such path (status
    404).
    """
    called = _PATH.search(path)
    if called is None:
        raise CallerFault(f"there is no {path} here, only models/OWNER/NAME/predictions", kind="http_404", status=404)
    try:
        fields: dict[str, Any] = _decode_fields(body)
        asked = _decode_asked(body)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's body is wrong: {error}") from error
    given = asked.input
    return ServerRequest(
        operation=operation,
        model=unquote(called[1]),
        stream=bool(asked.stream),
        max_tokens=given.max_tokens,
        include_usage=False,
        prompt_text=f"{given.system_prompt}\n{given.prompt}" if given.system_prompt else given.prompt,
        n=1,
        fields=fields,
    )
