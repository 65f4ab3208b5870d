"""Events of a stream. Each has `at`, the arrival time of its last byte in monotonic nanoseconds.

API formats encode these events differently; everything above `wire` uses only the events. `at` is
copied from the read that completed the event, so events that shared a packet share it. The structs
are frozen and not tracked by the garbage collector, because a measurement makes one for each token.
Only a `Broken` is tracked: its fault, once raised, refers to frames that can refer to the `Broken`.

These types define what the first token is: only a `Token` is content. A delta with only a role, an
empty delta, a ping, an SSE comment and the opening message of a format are `Quiet`.
"""

from typing import Literal

from msgspec import Struct

from splitsecond.core.errors import Fault

TokenKind = Literal["text", "reasoning", "refusal", "tool", "audio", "image", "embedding", "result"]


class ToolPart(Struct, frozen=True, gc=False):
    """The tool call that a token belongs to. `number` counts the calls of a choice from 0.

    Only the first token of a tool call has `name` and `id`; `id` is "" if the API format has none.
    """

    number: int
    id: str = ""
    name: str = ""


class Token(Struct, frozen=True, gc=False):
    """Content: visible text, reasoning, a refusal, a tool call's name or arguments, audio, images,
    embeddings, results.

    One event may contain several tokens of the model. `text` is what arrived (for "tool" the name,
    a fragment of the arguments, or both in this order; for "audio" base64 data; for "image" a URL,
    mostly one with the data), `index` the choice. `tokens_so_far` is the provider's running count
    of output tokens, from formats and servers that send usage with each chunk; otherwise None.
    `tool`: the tool call it belongs to; None for one that clients cannot answer (code for the
    provider's own interpreter). `logprobs`: the natural log-probabilities of its tokens, if they
    were requested and the decoder of the format reads them.
    """

    at: int
    text: str
    kind: TokenKind = "text"
    index: int = 0
    tokens_so_far: int | None = None
    tool: ToolPart | None = None
    logprobs: tuple[float, ...] | None = None

    @property
    def arguments(self) -> str:
        return self.text if self.tool is None else self.text[len(self.tool.name) :]


class TokenRun(Struct, frozen=True, gc=False):
    """Several tokens of text in one read, for callers that asked for runs (`Decoder.in_runs`): the
    characters of each.

    Making an event of each token would take most of the time of such a read. `times`: the arrival
    of each, if packets brought them one by one; empty: all of them have the time `at`.
    """

    at: int
    lengths: list[int]
    times: list[int] = []


class WholeText(Struct, frozen=True, gc=False):
    """A complete answer of one text that was not streamed, for callers that asked for runs
    (`Decoder.in_runs`): the characters of the text, the finish reason and the counts.

    It stands for a `Token`, a `Finish`, a `Usage` and a `Done` without an end mark.
    """

    at: int
    length: int
    reason: str
    usage: "Usage"


class Quiet(Struct, frozen=True, gc=False):
    """A sign of life without content: a role, an empty delta, a ping, a comment, an opening
    message.

    `data`, of a "signature" or of "redacted_thinking", is opaque; the provider expects it back in
    the next request. A signature belongs to the token before it. The data of "vectors" are
    embeddings, as JSON.
    """

    at: int
    what: str = ""
    data: str = ""


class Usage(Struct, frozen=True, gc=False):
    """The provider's token counts. The last ones on a stream are final, unless content follows
    them.

    `output_tokens` includes `reasoning_tokens`. `input_tokens` includes `cached_tokens`, which were
    read from the prompt cache, and `cache_write_tokens`, which were written to it for later
    requests, `cache_write_1h_tokens` of them for an hour. None: not reported. `implausible`: the
    provider reported counts that cannot be true, so none of them is in here.
    """

    at: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    implausible: bool = False


class Finish(Struct, frozen=True, gc=False):
    """Why choice `index` ended, in the provider's words: "stop", "length", "tool_calls",
    "content_filter", …"""

    at: int
    reason: str
    index: int = 0


class Done(Struct, frozen=True, gc=False):
    """The stream ended well. `marker`: it had the end mark of the API format (OpenAI's
    ``[DONE]``)."""

    at: int
    marker: bool


class Broken(Struct, frozen=True):
    """The stream failed after it had begun; nothing follows. `fault` tells who is at fault, and in
    which phase."""

    at: int
    fault: Fault


class RateLimits(Struct, frozen=True, omit_defaults=True, gc=False):
    """A provider's report on its rate limits, when the answer began. Not an event."""

    requests_left: int | None = None
    """Requests that are left."""
    requests_limit: int | None = None
    """The limit on requests."""
    requests_reset_ns: int | None = None
    """How long until the limit on requests is reset."""
    tokens_left: int | None = None
    """Tokens that are left."""
    tokens_limit: int | None = None
    """The limit on tokens."""
    tokens_reset_ns: int | None = None
    """How long until the limit on tokens is reset."""


Event = Token | TokenRun | WholeText | Quiet | Usage | Finish | Done | Broken
