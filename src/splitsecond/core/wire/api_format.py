"""Types of an API format, in its client role and its server role.

A format is a package with functions for both roles; the catalogue names the format of each
provider. Client: `encode` a call, `decoder` for its answer, `fault_from_response` for an error
response. Server: a `StreamWriter` (`AnswerWriter`), and an `error_body`. The differences between
providers of one format are data: `Quirks`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from splitsecond.core.events import TokenKind, Usage
from splitsecond.core.service import Call
from splitsecond.core.wire.reasoning import ReasoningStyle
from splitsecond.core.wire.translation import shared_fields

UsagePlace = Literal["", "own_chunk", "last_chunk", "every_chunk", "choices", "x_groq"]
"""The place of the usage in a stream of OpenAI's format; "": unknown."""
USAGE_WORDS: Mapping[str, str] = {
    "own_chunk": "in a chunk of their own at the end",
    "last_chunk": "on the last chunk of the answer",
    "every_chunk": "on every chunk, totals so far",
    "choices": "inside choices[0] of the last chunk",
    "x_groq": "in x_groq on the last chunk",
}
"""Text for each place, to follow "token counts"."""


class Quirks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Differences of a provider from its API format. The defaults fit most OpenAI-compatible
    providers.

    The last three are information only: decoders find usage and reasoning in any place, and read
    rate limits of every family.

    `stream_options`    accepts ``stream_options``
    `max_tokens_field`  its name of the limit on output tokens of a chat
    `default_max_tokens`  the limit on output tokens of a translated chat without one, where the
                          format requires it (Anthropic); None: the model's maximum, or else 8,192
    `done_marker`       ends a stream with ``[DONE]``; information only
    `on_vertex`         accepts Anthropic's Messages in the form of Google's Vertex
    `drop_tools`        beginnings of the types of tools that a translated request leaves out
    `threads`           keeps conversations of Anthropic's Messages (``thread``)
    `takes_thoughts`    accepts earlier reasoning, as ``reasoning_content`` of a message
    `thought_signatures`  requires a signature of the reasoning before a tool call (Gemini 3)
    `extra_fields`      fields of every chat, over those of the client (a speed tier)
    `betas`             beta features of every request, beside those of the client (Anthropic)
    `session_field`     the field of a chat that keeps a session at its prompt cache; "": none
    `session_header`    the same as a header
    `stream_whole`      what the client wants whole may be requested as a stream, which can be timed
    `takes`             the fields that few providers accept and a translated chat keeps
                        (`openai.encode`); in another format, fields beside those that it defines;
                        None: the usual ones
    `thinking`          how to set the reasoning of its models; the first entry that matches counts
    `stream_hosts`      hosts beside its own to which it may refer for a stream (Replicate)
    `usage`             the place of the token counts, for messages about missing counts
    `reasoning_field`   the field of the reasoning; "content": it is part of the answer's text
    `rate_limits`       the common beginning of its rate limit headers; "none": it sends none
    """

    stream_options: bool = True
    max_tokens_field: str = "max_tokens"
    default_max_tokens: int | None = None
    done_marker: bool = True
    on_vertex: bool = False
    drop_tools: tuple[str, ...] = ()
    threads: bool = False
    takes_thoughts: bool = False
    thought_signatures: bool = False
    extra_fields: dict[str, str] = {}
    betas: str = ""
    session_field: str = ""
    session_header: str = ""
    stream_whole: bool = True
    takes: tuple[str, ...] | None = None
    thinking: tuple[ReasoningStyle, ...] = (ReasoningStyle(),)
    stream_hosts: tuple[str, ...] = ()
    usage: UsagePlace = ""
    reasoning_field: Literal["", "reasoning_content", "reasoning", "content"] = ""
    rate_limits: Literal["", "x-ratelimit", "anthropic-ratelimit", "none"] = ""

    def native(self, call: Call, fields: dict[str, Any], own: Collection[str]) -> dict[str, Any]:
        """Return those of the `fields` of a chat that are in `own` or in `takes`; the call's notes
        name the others."""
        return shared_fields(call, fields, {*own, *(self.takes or ())})

    def streamed(self, call: Call) -> bool:
        return call.stream or (self.stream_whole and call.whole_ns is None)


STREAM_HEADERS = (("content-type", "application/json"), ("accept", "text/event-stream"))
WHOLE_HEADERS = (("content-type", "application/json"), ("accept", "application/json"))


def chat_request(path: str, body: Mapping[str, Any], streamed: bool) -> "Encoded":
    return Encoded(
        path, STREAM_HEADERS if streamed else WHOLE_HEADERS, msgspec.json.encode(body), streamed
    )


Follow = Callable[[bytes], str]
"""Returns the address of the answer from the first response's body, or raises `ProviderFault`."""


class Encoded(Struct, frozen=True):
    """A request ready to send. `path` is relative to the provider's base URL; `headers` hold no
    key.

    `streamed`: it requests a stream. `follow`: reads the address of the answer from the response;
    None: the response is the answer. `fresh`: headers of this request only. `as_tool`: the answer's
    text is the arguments of a call of this tool.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    streamed: bool = True
    follow: Follow | None = None
    fresh: tuple[tuple[str, str], ...] = ()
    as_tool: str = ""


class Encode(Protocol):
    """A format's encoding of a call in the common chat form.

    Raises `CallerFault`; its kind is "not_translatable" for what the format does not have.
    """

    def __call__(self, call: Call, model: str, quirks: Quirks) -> Encoded: ...


class CalledTool(Struct, frozen=True):
    id: str
    name: str
    arguments: str = "{}"


class ServerAnswer(Struct, frozen=True, kw_only=True):
    """One choice of a whole answer. A completion holds `text` only."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[CalledTool, ...] = ()
    finish: str = "stop"


class ServerTimes(Struct, frozen=True):
    """Nanoseconds of a server: waiting, on the prompt until the first token, and from there to the
    last."""

    queue_ns: int
    prompt_ns: int
    output_ns: int

    @property
    def total_ns(self) -> int:
        return self.queue_ns + self.prompt_ns + self.output_ns


TimesForm = Literal["groq", "cerebras", "llama.cpp"]
"""The forms in which providers of OpenAI's format report these times."""


class AnswerWriter(Protocol):
    """Writer of one answer in the server role: a stream, or `whole`.

    Each method of a stream returns the bytes of whole events, or b"". The order: for each choice
    `opening`, its tokens (after `tool_call` those of that call's arguments) and `finish`, then
    `usage`, then `done`. `end` is the last three in one; `error` ends a stream that failed. Methods
    here send nothing. Formats with one choice ignore `index`.

    `repeats_text`: the end of a stream repeats the text. `stop_sequence`: the client's stop
    sequence that ended the answer, for formats that report it.
    """

    repeats_text: bool = False
    stop_sequence: str | None = None
    has_marker: bool = True

    @property
    def kind(self) -> TokenKind | None:
        """The kind of tokens that the open part takes; None: it takes none, or no part is open."""
        return None

    def read_tools(self, fields: Mapping[str, Any]) -> None:
        """Read the client's tools in the fields of its request, if answers describe the tools."""
        return

    def report_times(self, times: ServerTimes, form: TimesForm | None) -> None:
        """Report these times at the end; `form`: as in OpenAI's format, None for none."""
        return

    def opening(self, index: int = 0, usage: Usage | None = None) -> bytes:
        """Return the beginning of a choice; `usage`: the tokens of the prompt."""
        return b""

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        """Return one token of `kind`; for "tool" a fragment of the arguments of the last
        `tool_call`.

        Raises `KeyError` for a kind that the format does not have.
        """
        ...

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        return b""

    def finish(self, reason: str, index: int = 0) -> bytes:
        """Return the end of a choice; `reason` is OpenAI's finish reason."""
        return b""

    def usage(self, usage: Usage) -> bytes:
        return b""

    def done(self) -> bytes:
        return b""

    def end(
        self,
        reason: str,
        usage: Usage,
        *,
        choices: int = 1,
        counts: bool = True,
        marker: bool = True,
    ) -> bytes:
        """Return the end of all choices and of the stream, with the usage and the end mark."""
        finish = b"".join(self.finish(reason, index) for index in range(choices))
        return (
            finish
            + (self.usage(usage) if counts else b"")
            + (self.done() if marker or not self.has_marker else b"")
        )

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes: ...

    def whole(self, answers: Sequence[ServerAnswer], usage: Usage) -> bytes: ...
