"""The JSON of Cohere's v2 chat, reduced to the fields that mean something to us. Every one may be absent or null.

One shape serves the events of a stream, which have a `delta`, and a whole answer, whose fields stand at the top.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

Count = Annotated[float, Meta(ge=0, lt=1 << 53)]
"""Cohere's schema calls its counts numbers, not integers."""


class Content(Struct, gc=False):
    """A block of text or of thinking, or what an event adds to one."""

    text: str | None = None
    thinking: str | None = None


class Function(Struct, gc=False):
    """What is called; `arguments` is JSON, or a fragment of it."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(Struct, gc=False):
    """A tool call, or a fragment of it."""

    id: str | None = None
    function: Function | None = None


class Message(Struct, gc=False):
    """A whole message has lists where an event has one of them."""

    content: Content | list[Content] | str | None = None
    tool_plan: str | None = None
    tool_calls: ToolCall | list[ToolCall] | None = None


class Tokens(Struct, gc=False):
    """Counts of one kind."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None


class UsageShape(Struct, gc=False):
    """``usage``: what the model read and wrote (`tokens`), and the part of it that is billed."""

    tokens: Tokens | None = None
    billed_units: Tokens | None = None
    cached_tokens: Count | None = None


class Delta(Struct, gc=False):
    """What an event adds. The last one has the reason, the counts, or an error."""

    message: Message | None = None
    finish_reason: str | None = None
    usage: UsageShape | None = None
    error: Any = None


class Chunk(Struct, gc=False):
    """One event of a stream, or a whole answer. A `message` that is a text is an error's; `index` is the block's."""

    type: str = ""
    index: Any = None
    delta: Delta | None = None
    message: Message | str | None = None
    finish_reason: str | None = None
    usage: UsageShape | None = None
    error: Any = None
