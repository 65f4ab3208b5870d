"""The server role, reading: what a client asks for.

Only the fields that decide how to answer are read; all are kept raw beside them, so that a request can go on unchanged.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from splitsecond.errors import CallerFault
from splitsecond.service import Operation
from splitsecond.wire.dialect import ServerRequest
from splitsecond.wire.forced_tool import forced_tool

_Content = str | list[dict[str, Any]]


class _Message(Struct):
    role: str
    content: _Content


class _Asked(Struct, kw_only=True):
    model: str
    messages: Annotated[list[_Message], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=1)]
    system: _Content | None = None
    stream: bool | None = None


_decode_asked = msgspec.json.Decoder(_Asked).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def parse_request(operation: Operation, body: bytes) -> ServerRequest:
    """The request in `body`. Anthropic has the one `operation`, chat.

    Raises `CallerFault` that names the field which is missing or wrong.
    """
    try:
        fields = _decode_fields(body)
        asked = _decode_asked(body)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's body is wrong: {error}") from error
    contents = [asked.system, *(message.content for message in asked.messages)]
    return ServerRequest(
        operation=operation,
        model=asked.model,
        stream=bool(asked.stream),
        max_tokens=asked.max_tokens,
        include_usage=True,
        prompt_text="\n".join(text for content in contents for text in _texts(content)),
        n=1,
        fields=fields,
        tool=forced_tool(fields),
    )


def _texts(content: Any) -> Iterator[str]:
    """The texts of content, and of the content of the tools' results in it."""
    match content:
        case str():
            yield content
        case list():
            for block in content:
                yield from _texts(block)
        case {"type": "text", "text": str(text)}:
            yield text
        case {"type": "tool_result", "content": inner}:
            yield from _texts(inner)
