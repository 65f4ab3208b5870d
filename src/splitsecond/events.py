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

TokenKind = Literal["text", "reasoning", "refusal", "tool", "audio"]


class Token(Struct, frozen=True, gc=False):
    """Content-bearing: visible text, reasoning, refusal, a tool call's name or arguments, audio.

    One event may carry several tokens. `text` is what arrived (for "tool" the argument fragment or the name, for
    "audio" the base64 data), `index` the choice it belongs to. `tokens_so_far` is the provider's own running count
    of output tokens, from dialects and servers that send usage with each chunk; else None.
    """

    at: int
    text: str
    kind: TokenKind = "text"
    index: int = 0
    tokens_so_far: int | None = None


class Quiet(Struct, frozen=True, gc=False):
    """The provider is alive but said nothing: a role, an empty delta, a ping, a comment, an opening message."""

    at: int
    what: str = ""


class Usage(Struct, frozen=True, gc=False):
    """The provider's own token counts. The last one on a stream is the authoritative one.

    `output_tokens` includes reasoning tokens; `reasoning_tokens` says how many of them. `input_tokens` includes
    cached ones; `cached_tokens` says how many. None: not said.
    """

    at: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


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


Event = Token | Quiet | Usage | Finish | Done | Broken
