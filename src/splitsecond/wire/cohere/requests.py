"""The server role, reading: what a client asks ``/v2/chat`` for."""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from splitsecond.errors import CallerFault
from splitsecond.service import Operation
from splitsecond.wire.dialect import ServerRequest
from splitsecond.wire.forced_tool import forced_tool


class _Part(Struct):
    text: str | None = None


class _Message(Struct):
    role: str
    content: str | list[_Part] | None = None


class _Chat(Struct):
    model: str
    messages: Annotated[list[_Message], Meta(min_length=1)]
    stream: bool | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None


_decode_chat = msgspec.json.Decoder(_Chat).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def parse_request(operation: Operation, body: bytes) -> ServerRequest:
    """The request in `body`. Raises `CallerFault` that names the field which is missing or wrong."""
    try:
        fields = _decode_fields(body)
        chat = _decode_chat(body)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's body is wrong: {error}") from error
    return ServerRequest(
        operation=operation,
        model=chat.model,
        stream=bool(chat.stream),
        max_tokens=chat.max_tokens,
        include_usage=True,
        prompt_text="\n".join(text for message in chat.messages for text in _texts(message)),
        n=1,
        fields=fields,
        tool=forced_tool(fields),
    )


def _texts(message: _Message) -> list[str]:
    if isinstance(message.content, str):
        return [message.content]
    return [part.text for part in message.content or () if part.text]
