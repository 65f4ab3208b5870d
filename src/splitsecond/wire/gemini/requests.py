"""The server role, reading: what a client asks for.

The path holds the model and whether to stream; the body's fields that decide how to answer are read, and all are kept
raw beside them.
"""

import re
from typing import Annotated
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Raw, Struct

from splitsecond.errors import CallerFault
from splitsecond.service import Operation
from splitsecond.wire.dialect import ServerRequest
from splitsecond.wire.forced_tool import forced_tool

_PATH = re.compile(r"/(?:m|tunedM)odels/([^/:?]+):(g|streamG)enerateContent(?:\?|$)")
_COUNT_PATH = re.compile(r"/(?:m|tunedM)odels/([^/:?]+):(count)Tokens(?:\?|$)")
_AtLeastOne = Annotated[int, Meta(ge=1)]


class _Part(Struct):
    text: str | None = None


class _Content(Struct):
    parts: list[_Part] | None = None


class _Config(Struct, rename="camel"):
    max_output_tokens: _AtLeastOne | None = None
    candidate_count: _AtLeastOne | None = None


class _Asked(Struct, rename="camel", kw_only=True):
    contents: Annotated[list[_Content], Meta(min_length=1)]
    system_instruction: _Content | None = None
    generation_config: _Config | None = None


class _Counted(Struct, rename="camel", kw_only=True):
    contents: list[_Content] | None = None
    generate_content_request: _Asked | None = None


_decode_asked = msgspec.json.Decoder(_Asked).decode
_decode_counted = msgspec.json.Decoder(_Counted).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def parse_request(operation: Operation, body: bytes, path: str) -> ServerRequest:
    """The request with this `body` for `path`, with or without its query. Gemini has the one `operation`, chat.

    Raises `CallerFault` that names the field which is missing or wrong, or says that there is no such path (status
    404).
    """
    called = _called(_PATH, path)
    try:
        fields = _decode_fields(body)
        asked = _decode_asked(body)
    except (ValueError, RecursionError) as error:
        raise _wrong(error) from error
    return _request(operation, called, asked, fields)


def parse_count(body: bytes, path: str) -> ServerRequest:
    """The request in this `body` for `path`, whose tokens are to be counted: contents alone, or a request in full.

    Raises `CallerFault` as `parse_request`.
    """
    called = _called(_COUNT_PATH, path)
    try:
        fields = _decode_fields(body)
        counted = _decode_counted(body)
        asked = counted.generate_content_request
        if asked is None:
            asked = _decode_asked(body)  # it has contents, or is refused for it
    except (ValueError, RecursionError) as error:
        raise _wrong(error) from error
    return _request("chat", called, asked, fields)


def _called(form: re.Pattern[str], path: str) -> re.Match[str]:
    called = form.search(path)
    if called is None:
        raise CallerFault(f"there is no {path} here, only models/MODEL:generateContent", kind="http_404", status=404)
    return called


def _wrong(error: Exception) -> CallerFault:
    return CallerFault(f"the request's body is wrong: {error}")


def _request(operation: Operation, called: re.Match[str], asked: _Asked, fields: dict[str, Raw]) -> ServerRequest:
    config = asked.generation_config or _Config()
    everything = [asked.system_instruction or _Content(), *asked.contents]
    return ServerRequest(
        operation=operation,
        model=unquote(called[1]),
        stream=called[2] == "streamG",
        max_tokens=config.max_output_tokens,
        include_usage=True,
        prompt_text="\n".join(part.text for content in everything for part in content.parts or () if part.text),
        n=config.candidate_count or 1,
        fields=fields,
        tool=forced_tool(fields),
    )
