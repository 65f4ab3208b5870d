"""The JSON that Anthropic sends, reduced to the fields that mean something to us.

msgspec skips what is not named here at C speed. Every field may be absent or null. One shape serves every event of a
stream, a whole answer and an error in the place of one: they have no field in common that means two things.
"""

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

Count = Annotated[int, Meta(ge=0, lt=1 << 53)]


class OutputDetails(Struct, gc=False):
    """``output_tokens_details``."""

    thinking_tokens: Count | None = None


class UsageShape(Struct, gc=False):
    """``usage``. `input_tokens` leaves out what was read from the cache and what was written to it."""

    input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    output_tokens: Count | None = None
    output_tokens_details: OutputDetails | None = None


class Block(Struct, gc=False):
    """A block of content, whole or as it begins. `id`, `name`, `input`: a tool call's. `data`: a hidden thought."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()


class Delta(Struct, gc=False):
    """What an event adds to a block, or (`stop_reason`) to the message."""

    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class Message(Struct, gc=False):
    """The message that ``message_start`` announces; nothing of it but the counts is known yet."""

    usage: UsageShape | None = None


class Happening(Struct, gc=False):
    """One event of a stream, or a whole answer (`content` and what follows it). `index` is the block's."""

    type: str = ""
    index: Any = None
    message: Message | None = None
    content_block: Block | None = None
    delta: Delta | None = None
    usage: UsageShape | None = None
    error: Any = None
    content: list[Block] | None = None
    stop_reason: str | None = None
