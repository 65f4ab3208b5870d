"""What every dialect offers in the client role: `encode`, `decoder` and `fault_from_response`.

A dialect is a module (or package) with these three functions; it is chosen by name from the catalogue's data. What sets
one provider of a dialect apart from the next is data too: `Quirks`. `ServerRequest` and `Answer` are what the server
role reads and writes.
"""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from msgspec import Raw, Struct

from splitsecond.events import Event, TokenKind, Usage
from splitsecond.service import Call, Operation
from splitsecond.wire.thinking import Told

UsagePlace = Literal["", "own_chunk", "last_chunk", "every_chunk", "choices", "x_groq"]
"""Where a stream of OpenAI's dialect has the token counts: in a chunk of their own after the answer, on the chunk that
ends the answer, on each chunk (totals so far), inside a choice, in Groq's own field. "": not known.
"""
USAGE_WORDS: Mapping[str, str] = {
    "own_chunk": "in a chunk of their own at the end",
    "last_chunk": "on the last chunk of the answer",
    "every_chunk": "on every chunk, totals so far",
    "choices": "inside choices[0] of the last chunk",
    "x_groq": "in x_groq on the last chunk",
}
"""The same in words, to stand after "token counts"."""


FewTake = Literal[
    "top_k", "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "verbosity"
]
"""Fields of a chat that few providers of OpenAI's dialect take, beside OpenAI itself."""


class Quirks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a provider departs from its dialect. The defaults are what most OpenAI-compatible providers do.

    The last three are to know: decoders find counts and reasoning wherever they are, and read limits of every family.

    `stream_options`    takes ``stream_options`` (some reject a field they do not know)
    `max_tokens_field`  what it calls the limit on output tokens of a chat, "max_tokens" or "max_completion_tokens"
    `done_marker`       ends a stream with ``[DONE]``; to know, as its absence alone is no fault
    `on_vertex`         takes Anthropic's messages as Google's Vertex has them: the path names the model
    `takes_thoughts`    takes back what its model thought, as ``reasoning_content`` of an assistant's message
    `stream_whole`      an answer wanted whole is asked for as a stream and put together: only a stream can be timed
    `takes`             which of the fields that few providers take a chat from another dialect keeps (`openai.fitting`)
    `thinking`          how its models are told how far to think; the first entry that is for a model counts
    `usage`             where the token counts are (see `UsagePlace`); what to expect where none came
    `reasoning_field`   the field that holds what a model thinks; "content": it stands in the answer's own
    `rate_limits`       how the headers that tell of its limits begin; "none": it sends none
    """

    stream_options: bool = True
    max_tokens_field: str = "max_tokens"
    done_marker: bool = True
    on_vertex: bool = False
    takes_thoughts: bool = False
    stream_whole: bool = True
    takes: tuple[FewTake, ...] = ("top_k", "user")
    thinking: tuple[Told, ...] = (Told(),)
    usage: UsagePlace = ""
    reasoning_field: Literal["", "reasoning_content", "reasoning", "content"] = ""
    rate_limits: Literal["", "x-ratelimit", "anthropic-ratelimit", "none"] = ""

    def streamed(self, call: Call) -> bool:
        """Whether the answer to `call` is to be asked for as a stream."""
        return call.stream or self.stream_whole


STREAM_HEADERS = (("content-type", "application/json"), ("accept", "text/event-stream"))
WHOLE_HEADERS = (("content-type", "application/json"), ("accept", "application/json"))


Follow = Callable[[bytes], str]
"""Where an answer is, out of the body of the one that only says that. Raises `ProviderFault` where it says nothing."""


class Encoded(Struct, frozen=True):
    """A request ready to send. `path` is relative to the provider's base URL; `headers` hold no key.

    `streamed`: it asks for a stream. `follow`: the answer to it only says where the answer is. None: it is the one.
    `fresh`: headers that are this request's own.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    streamed: bool = True
    follow: Follow | None = None
    fresh: tuple[tuple[str, str], ...] = ()


class Decoder(Protocol):
    """One answer's body in, events out; made anew for each answer, and ended by `Done` or `Broken`, given once.

    `server_timings` is what the provider itself says on where the time went: its names, its units. `in_runs`: whoever
    reads the events counts tokens only, so those of one read may come as `TokenRun`; set it before the first `feed`.
    """

    server_timings: dict[str, float]
    in_runs: bool

    def feed(self, data: bytes, at: int) -> list[Event]:
        """The events that `data` completes; each carries `at`. After the end: none."""
        ...

    def close(self, at: int) -> list[Event]:
        """The body ended. The last events, with `Done` or `Broken` unless that was given already."""
        ...


class Writer(Protocol):
    """The server role, writing: the bytes of one streamed answer. Each method gives whole events, or none.

    The order: for each choice `opening`, its tokens (after `tool_call` those of that call's arguments) and `finish`,
    then `usage`, then `done`. `error` ends a stream that broke.
    """

    def opening(self, index: int = 0) -> bytes: ...

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes: ...

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes: ...

    def finish(self, reason: str, index: int = 0) -> bytes: ...

    def usage(self, usage: Usage) -> bytes: ...

    def done(self) -> bytes: ...

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes: ...  # noqa: A002


class ServerRequest(Struct, frozen=True, kw_only=True):
    """A request, read. `prompt_text` is all its text, joined by line feeds, for counting; `fields` all its fields, raw.

    `max_tokens` is None where the client set no limit; `include_usage` says that it wants a stream's usage chunk.
    `tool`: the name of the tool that the answer must call; "" where it need not call one. `cache_marks`: how much of
    `prompt_text`, in characters, comes before each place that the client marked as worth keeping in a prompt cache.
    """

    operation: Operation
    model: str
    stream: bool
    max_tokens: int | None
    include_usage: bool
    prompt_text: str
    n: int
    fields: dict[str, Raw]
    tool: str = ""
    cache_marks: tuple[int, ...] = ()


class CalledTool(Struct, frozen=True):
    """A tool call of a whole answer; `arguments` is JSON."""

    id: str
    name: str
    arguments: str = "{}"


class Answer(Struct, frozen=True, kw_only=True):
    """One choice of a whole answer. A completion holds `text` only."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[CalledTool, ...] = ()
    finish: str = "stop"
