"""The server role, reading: what a client asks ``/responses`` for."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from splitsecond.errors import CallerFault
from splitsecond.service import Operation
from splitsecond.wire.dialect import ServerRequest
from splitsecond.wire.forced_tool import forced_tool


class _Asked(Struct):
    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None


_decode_asked = msgspec.json.Decoder(_Asked).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def parse_request(operation: Operation, body: bytes) -> ServerRequest:
    """The request in `body`. The API has the one `operation`, chat.

    Raises `CallerFault` that names the field which is missing or wrong.
    """
    try:
        fields = _decode_fields(body)
        asked = _decode_asked(body)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's body is wrong: {error}") from error
    texts = [asked.instructions] if asked.instructions else []
    return ServerRequest(
        operation=operation,
        model=asked.model,
        stream=bool(asked.stream),
        max_tokens=asked.max_output_tokens,
        include_usage=True,
        prompt_text="\n".join([*texts, *_texts(asked.input)]),
        n=1,
        fields=fields,
        tool=forced_tool(fields),
    )


def _texts(value: Any) -> Iterator[str]:
    """The texts of the items, of their parts, and of the results of tools."""
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from _texts(each)
        case {"content": inner} | {"output": inner} | {"text": inner}:
            yield from _texts(inner)
