"""The JSON that OpenAI-compatible providers send, reduced to the fields that mean something to us.

msgspec skips what is not named here at C speed. Every field may be absent or null, as every one somewhere is. One shape
serves chat and completions, streamed and whole: a choice then holds a `delta`, a `text` or a `message`.
"""

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
NOT_SAID = Raw()
NOTHING = (NOT_SAID, Raw(b"null"))
"""A raw field that is not there, or null."""


class CachedDetails(Struct, gc=False):
    """``prompt_tokens_details``. What was written to the cache is OpenRouter's to say."""

    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class ReasoningDetails(Struct, gc=False):
    """``completion_tokens_details``."""

    reasoning_tokens: Count | None = None


class UsageShape(Struct, gc=False):
    """``usage``. DeepSeek, Moonshot and Groq add fields of their own, named last."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None
    prompt_tokens_details: CachedDetails | None = None
    completion_tokens_details: ReasoningDetails | None = None
    prompt_cache_hit_tokens: Count | None = None
    cached_tokens: Count | None = None
    queue_time: float | None = None
    prompt_time: float | None = None
    completion_time: float | None = None
    total_time: float | None = None


class Function(Struct, gc=False):
    """The function of a tool call (`arguments`), or a custom tool (`input`)."""

    name: str | None = None
    arguments: str | None = None
    input: str | None = None


class ToolCall(Struct, gc=False):
    """One tool call, or a fragment of it."""

    index: int | str | None = None
    id: int | str | None = None
    function: Function | None = None
    custom: Function | None = None


class Audio(Struct, gc=False):
    """Spoken output: base64 data, and its words."""

    data: str | None = None
    transcript: str | None = None


class Link(Struct, gc=False):
    """Where an image is, or the image itself as a data URL."""

    url: str | None = None


class Image(Struct, gc=False):
    """An image that was made, as OpenRouter sends it."""

    image_url: Link | None = None


class Part(Struct, gc=False):
    """One part of a content that is a list, as Mistral's reasoning models send it."""

    type: str = ""
    text: str | None = None
    thinking: list["Part"] | None = None


class Delta(Struct, gc=False):
    """What one event adds to a choice; also a whole message."""

    role: str | None = None
    content: str | list[Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None
    audio: Audio | None = None
    images: list[Image] | None = None


class Choice(Struct, gc=False):
    """One of the answers. Moonshot puts the usage in here."""

    index: Count = 0
    delta: Delta | None = None
    text: str | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    usage: UsageShape | None = None
    logprobs: Raw = NOT_SAID


class GroqExtra(Struct, gc=False):
    """``x_groq``: where Groq puts usage, and errors inside a stream."""

    usage: UsageShape | None = None
    error: Any = None


class BaseResponse(Struct, gc=False):
    """``base_resp``: MiniMax's own status, inside a 200."""

    status_code: int = 0
    status_msg: str | None = None


class Chunk(Struct, gc=False):
    """One event of a stream, or a whole answer."""

    choices: list[Choice] | None = None
    usage: UsageShape | None = None
    error: Any = None
    x_groq: GroqExtra | None = None
    base_resp: BaseResponse | None = None
    timings: dict[str, Any] | None = None
    time_info: dict[str, Any] | None = None
