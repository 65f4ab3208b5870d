"""JSON of OpenAI-compatible providers. One structure serves chat and completions, streamed and
whole: a choice holds a `delta`, a `text` or a `message`."""

from typing import Annotated, Any

from msgspec import Meta, Raw

from splitsecond.core.wire.streaming import ABSENT, Count, Shape


class CacheCreation(Shape):
    """Tokens that were written to Anthropic's cache, by how long they are kept."""

    ephemeral_1h_input_tokens: Count | None = None


class CachedDetails(Shape):
    """``prompt_tokens_details``, in Responses ``input_tokens_details``. OpenRouter, and under the
    longer names LiteLLM, report tokens written to the cache."""

    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    cache_creation_tokens: Count | None = None
    cache_creation_token_details: CacheCreation | None = None


class OutputDetails(Shape):
    """``completion_tokens_details``, elsewhere ``output_tokens_details``; Anthropic's reasoning is
    thinking."""

    reasoning_tokens: Count | None = None
    thinking_tokens: Count | None = None


class TokenUsage(Shape):
    """``usage`` of Responses (input includes cached tokens, output reasoning) and of Anthropic
    (`input_tokens` excludes tokens read from the cache or written to it)."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    input_tokens_details: CachedDetails | None = None
    output_tokens_details: OutputDetails | None = None
    cache_creation_input_tokens: Count | None = None
    cache_creation: CacheCreation | None = None
    cache_read_input_tokens: Count | None = None
    speed: Any = None


class UsageShape(Shape):
    """``usage``. The last fields are those of DeepSeek, Moonshot and Groq."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None
    prompt_tokens_details: CachedDetails | None = None
    completion_tokens_details: OutputDetails | None = None
    prompt_cache_hit_tokens: Count | None = None
    cached_tokens: Count | None = None
    queue_time: float | None = None
    prompt_time: float | None = None
    completion_time: float | None = None
    total_time: float | None = None


class Function(Shape):
    """The function of a tool call (`arguments`), or a custom tool (`input`)."""

    name: str | None = None
    arguments: Any = None
    input: Any = None


class ToolCall(Shape):
    index: int | str | None = None
    id: int | str | None = None
    function: Function | None = None
    custom: Function | None = None


class Audio(Shape):
    data: str | None = None
    transcript: str | None = None


class Link(Shape):
    url: str | None = None


class Image(Shape):
    image_url: Link | None = None


class Part(Shape):
    """One part of content that is a list. Reasoning is in `thinking` (Mistral) or `summary`
    (Databricks)."""

    text: str | None = None
    thinking: list["Part"] | None = None
    summary: list["Part"] | None = None


class Delta(Shape):
    """The addition of one event to a choice; also a whole message."""

    role: str | None = None
    content: str | list[Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | ToolCall | None = None
    function_call: Function | None = None
    audio: Audio | None = None
    images: list[Image] | None = None


class Choice(Shape):
    """One choice. Moonshot puts the usage in here (`UsageShape`, raw as in `Chunk`)."""

    index: Count = 0
    delta: Delta | None = None
    text: str | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    usage: Raw = ABSENT
    logprobs: Raw = ABSENT


class PlainMessage(Shape):
    content: Annotated[str, Meta(min_length=1)]
    reasoning_content: None = None
    reasoning: None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    audio: None = None
    images: None = None


class PlainChoice(Shape):
    message: PlainMessage
    finish_reason: Annotated[str, Meta(min_length=1)]
    index: Count = 0
    delta: None = None
    text: None = None
    usage: None = None
    logprobs: None = None


class PlainUsage(UsageShape):
    queue_time: None = None
    prompt_time: None = None
    completion_time: None = None
    total_time: None = None


class PlainAnswer(Shape):
    """The most frequent whole answer of a chat: one text, and its usage. No other decodes as this,
    so msgspec checks at C speed that nothing else must be read."""

    choices: tuple[PlainChoice]
    usage: PlainUsage
    error: None = None
    x_groq: None = None
    base_resp: None = None
    timings: None = None
    time_info: None = None
    service_tier: Any = None


class GroqExtra(Shape):
    """``x_groq``: usage (as in `Chunk`) and errors inside a stream of Groq."""

    usage: Raw = ABSENT
    error: Any = None


class BaseResponse(Shape):
    """``base_resp``: MiniMax's own status, inside a 200."""

    status_code: int = 0
    status_msg: str | None = None


class Chunk(Shape):
    """One event of a stream, or a whole answer. `usage` (`UsageShape`) and the server's times
    (objects) are raw, so that a wrong number in them fails no answer."""

    choices: list[Choice] | None = None
    usage: Raw = ABSENT
    error: Any = None
    x_groq: GroqExtra | None = None
    base_resp: BaseResponse | None = None
    timings: Raw = ABSENT
    time_info: Raw = ABSENT
    service_tier: Any = None

    @property
    def quiet_kind(self) -> str:
        """The kind of `Quiet` that the event is if it holds nothing else."""
        if not self.choices:
            return "no choices"
        role = any(choice.delta is not None and choice.delta.role for choice in self.choices)
        return "role" if role else "empty"
