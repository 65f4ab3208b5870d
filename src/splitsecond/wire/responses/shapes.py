"""The JSON of the Responses API, reduced to the fields that mean something to us. Every one may be absent or null.

One shape serves every event of a stream, a whole answer, and an error in the place of one. `response` is the whole
answer as far as it has come: the events that end a stream have it with its counts.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, lt=1 << 53)]


class InputDetails(Struct, gc=False):
    """``input_tokens_details``."""

    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class OutputDetails(Struct, gc=False):
    """``output_tokens_details``."""

    reasoning_tokens: Count | None = None


class UsageShape(Struct, gc=False):
    """``usage``. Input includes what was cached, output what was reasoning."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class Part(Struct, gc=False):
    """A part of a message, or of the summary of a thought."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None


class Item(Struct, gc=False):
    """One thing that the model did: said something, thought, called a tool, made an image (`result`, base64)."""

    type: str = ""
    content: list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: Any = None
    result: Any = None
    output_format: str | None = None


class Incomplete(Struct, gc=False):
    """``incomplete_details``: why an answer is no longer."""

    reason: str | None = None


class Response(Struct, gc=False):
    """An answer."""

    status: str | None = None
    output: list[Item] | None = None
    usage: UsageShape | None = None
    error: Any = None
    incomplete_details: Incomplete | None = None


class Happening(Response, gc=False):
    """One event of a stream, or a whole answer."""

    type: str = ""
    delta: Any = None
    output_index: Any = None
    item: Item | None = None
    response: Response | None = None
