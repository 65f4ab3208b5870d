"""What can happen on a stream. Every event carries `at`: when its last byte arrived, in monotonic nanoseconds.

Dialects differ in how they say these things; everything above `wire` speaks only of these. `at` is copied from the
read that completed the event: events that shared a packet share it. The structs are frozen and not tracked by the
garbage collector, because a measurement makes one for each token.

The rule for the first token lives in this vocabulary: only a `Token` is content-bearing. A role-only delta, an empty
delta, a ping, an SSE comment and a dialect's opening message are `Quiet`.
"""

from typing import Literal

from msgspec import Struct

from splitsecond.errors import Fault

TokenKind = Literal["text", "reasoning", "refusal", "tool", "audio", "image", "embedding"]


class ToolPart(Struct, frozen=True, gc=False):
    """Which tool call a token is a part of. `number` counts the calls of a choice from 0.

    `name` and `id` stand on the first token of a call only; `id` is "" where the dialect has none.
    """

    number: int
    id: str = ""
    name: str = ""


class Token(Struct, frozen=True, gc=False):
    """Content-bearing: visible text, reasoning, a refusal, a tool call's name or arguments, audio, images, embeddings.

    One event may carry several tokens. `text` is what arrived (for "tool" the name, an argument fragment, or the one
    after the other; for "audio" the base64 data; for "image" a URL, mostly one that holds the data), `index` the choice
    it belongs to. `tokens_so_far` is the provider's own running count of output tokens, from dialects and servers that
    send usage with each chunk; else None. `tool` says of a tool call which one it is; None: of no call that a client
    could answer (code for the provider's own interpreter). `logprobs`: the natural log-probabilities of the tokens in
    it, where they were asked for and the dialect's decoder reads them.
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
        """Of a tool call: what `text` holds of the arguments, which is all after the name."""
        return self.text if self.tool is None else self.text[len(self.tool.name) :]


class TokenRun(Struct, frozen=True, gc=False):
    """Several tokens of text that one read brought, for who asked for them so (`Decoder.in_runs`): how many characters
    each of them has. To make an event of each takes most of the time of such a read."""

    at: int
    lengths: list[int]


class Quiet(Struct, frozen=True, gc=False):
    """The provider is alive but said nothing: a role, an empty delta, a ping, a comment, an opening message.

    `data`, of a "signature" or of "redacted_thinking", is opaque, and means something to the provider if the next
    request brings it back. A signature belongs to the token before it.
    """

    at: int
    what: str = ""
    data: str = ""


class Usage(Struct, frozen=True, gc=False):
    """The provider's own token counts. The last one on a stream is the authoritative one.

    `output_tokens` includes reasoning tokens; `reasoning_tokens` says how many of them. `input_tokens` includes
    cached ones; `cached_tokens` says how many, and `cache_write_tokens` how many were written to the cache for later
    requests. None: not said.
    """

    at: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class Finish(Struct, frozen=True, gc=False):
    """The provider said why choice `index` ended: "stop", "length", "tool_calls", "content_filter", … in its words."""

    at: int
    reason: str
    index: int = 0


class Done(Struct, frozen=True, gc=False):
    """The stream ended well. `marker`: the dialect's end mark (OpenAI's ``[DONE]``) was seen."""

    at: int
    marker: bool


class Broken(Struct, frozen=True, gc=False):
    """The stream failed after it had begun; nothing follows. `fault` says who is to blame, and in which phase."""

    at: int
    fault: Fault


class RateLimits(Struct, frozen=True, omit_defaults=True, gc=False):
    """No event, but said with an answer: how much its provider would still serve us when the answer began.

    For requests and for tokens: how many are `left` of the `limit`, and in how long the limit is whole again. None: not
    said.
    """

    requests_left: int | None = None
    requests_limit: int | None = None
    requests_reset_ns: int | None = None
    tokens_left: int | None = None
    tokens_limit: int | None = None
    tokens_reset_ns: int | None = None


Event = Token | TokenRun | Quiet | Usage | Finish | Done | Broken
