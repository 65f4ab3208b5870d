"""The server role, reading: what a client asks ``/api/chat`` for. It streams unless it is told not to."""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from splitsecond.errors import CallerFault
from splitsecond.service import Operation
from splitsecond.wire.dialect import ServerRequest
from splitsecond.wire.forced_tool import tool_names


class _Options(Struct):
    num_predict: int | None = None


class _Message(Struct):
    role: str
    content: str | None = None


class _Chat(Struct):
    model: Annotated[str, Meta(min_length=1)]
    messages: Annotated[list[_Message], Meta(min_length=1)]
    stream: bool | None = None
    options: _Options | None = None


_decode_chat = msgspec.json.Decoder(_Chat).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def parse_request(operation: Operation, body: bytes) -> ServerRequest:
    """The request in `body`. Raises `CallerFault` that names the field which is missing or wrong.

    Ollama has no word for a tool that must be called, so one that is offered is, unless its result is there already. A
    ``num_predict`` below 1 sets no limit (-1: none, -2: as much as the context holds).
    """
    try:
        fields = _decode_fields(body)
        chat = _decode_chat(body)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's body is wrong: {error}") from error
    limit = chat.options.num_predict if chat.options is not None else None
    return ServerRequest(
        operation=operation,
        model=chat.model,
        stream=chat.stream is not False,
        max_tokens=limit if limit is not None and limit >= 1 else None,
        include_usage=True,
        prompt_text="\n".join(message.content for message in chat.messages if message.content),
        n=1,
        fields=fields,
        tool="" if chat.messages[-1].role == "tool" else next(tool_names(fields), ""),
    )
