"""The server role, reading: what a client asks for.

Only the fields that decide how to answer are read; all are kept raw beside them, so that a request can go on unchanged.
"""

from collections.abc import Callable
from itertools import accumulate
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


class _Counted(Struct, kw_only=True):
    model: str
    messages: Annotated[list[_Message], Meta(min_length=1)]
    system: _Content | None = None
    stream: bool | None = None
    cache_control: Any = None


class _Asked(_Counted, kw_only=True):
    max_tokens: Annotated[int, Meta(ge=1)]


_decode_asked = msgspec.json.Decoder(_Asked).decode
_decode_counted = msgspec.json.Decoder(_Counted).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def parse_request(operation: Operation, body: bytes) -> ServerRequest:
    """The request in `body`. Anthropic has the one `operation`, chat.

    Raises `CallerFault` that names the field which is missing or wrong.
    """
    return _read(operation, body, _decode_asked)


def parse_count(body: bytes) -> ServerRequest:
    """The request in `body`, whose tokens are to be counted: it has no limit.

    Raises `CallerFault` as `parse_request` does.
    """
    return _read("chat", body, _decode_counted)


def _read(operation: Operation, body: bytes, decode: Callable[[bytes], _Counted]) -> ServerRequest:
    try:
        fields = _decode_fields(body)
        asked = decode(body)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's body is wrong: {error}") from error
    texts: list[str] = []
    marked: list[int] = []
    for content in (asked.system, *(message.content for message in asked.messages)):
        _gather(content, texts, marked)
    if asked.cache_control is not None:  # for the whole request: it marks the end
        marked.append(len(texts))
    ends = [0, *accumulate(len(text) + 1 for text in texts)]
    return ServerRequest(
        operation=operation,
        model=asked.model,
        stream=bool(asked.stream),
        max_tokens=asked.max_tokens if isinstance(asked, _Asked) else None,
        include_usage=True,
        prompt_text="\n".join(texts),
        n=1,
        fields=fields,
        tool=forced_tool(fields),
        cache_marks=tuple(sorted({ends[number] - 1 for number in marked if number})),
    )


def _gather(content: Any, texts: list[str], marked: list[int]) -> None:
    """The texts of content, and of the content of the tools' results in it; and after how many of them marks stand."""
    match content:
        case str(text) | {"type": "text", "text": str(text)}:
            texts.append(text)
        case list():
            for block in content:
                _gather(block, texts, marked)
        case {"type": "tool_result", "content": inner}:
            _gather(inner, texts, marked)
    if isinstance(content, dict) and content.get("cache_control") is not None:
        marked.append(len(texts))
