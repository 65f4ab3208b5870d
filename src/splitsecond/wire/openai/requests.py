"""The server role, reading: what a client asks for.

Only the fields that decide how to answer are read; all are kept raw beside them, so that a request can go on unchanged.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from splitsecond.errors import CallerFault
from splitsecond.service import Operation
from splitsecond.wire.dialect import ServerRequest
from splitsecond.wire.forced_tool import forced_tool

_AtLeastOne = Annotated[int, Meta(ge=1)]


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _Part(Struct):
    text: str | None = None


class _Message(Struct):
    role: str
    content: str | list[_Part] | None = None


class _Asked(Struct, kw_only=True):
    model: str
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: _AtLeastOne | None = None
    n: _AtLeastOne | None = None


class _Chat(_Asked, kw_only=True):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    max_completion_tokens: _AtLeastOne | None = None


class _Completion(_Asked, kw_only=True):
    prompt: str | list[Any]


_decode_chat = msgspec.json.Decoder(_Chat).decode
_decode_completion = msgspec.json.Decoder(_Completion).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def parse_request(operation: Operation, body: bytes) -> ServerRequest:
    """The request in `body`. Raises `CallerFault` that names the field which is missing or wrong."""
    try:
        fields = _decode_fields(body)
        if operation == "chat":
            chat = _decode_chat(body)
            asked: _Asked = chat
            limit = chat.max_completion_tokens or chat.max_tokens
            text = "\n".join(_texts(chat.messages))
        else:
            completion = _decode_completion(body)
            asked, limit, text = completion, completion.max_tokens, _prompt_text(completion.prompt)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's body is wrong: {error}") from error
    return ServerRequest(
        operation=operation,
        model=asked.model,
        stream=bool(asked.stream),
        max_tokens=limit,
        include_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        prompt_text=text,
        n=asked.n or 1,
        fields=fields,
        tool=forced_tool(fields),
    )


def _texts(messages: list[_Message]) -> list[str]:
    texts: list[str] = []
    for message in messages:
        if isinstance(message.content, str):
            texts.append(message.content)
        else:
            texts.extend(part.text for part in message.content or () if part.text)
    return texts


def _prompt_text(prompt: Any) -> str:
    """A prompt is a text, token ids, or a list of either; an id stands for a word."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list):
        return " ".join(_prompt_text(part) for part in prompt)
    return str(prompt)
