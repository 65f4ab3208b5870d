"""The server role, writing: answers as bytes.

Cohere's streams are made of blocks: text, thinking, tool calls, each with an event for its beginning and its end. The
writer begins and ends them itself, so that the caller only says what comes. What is the same in every event of a block
is put into JSON once. Reason and counts share the last event, so `finish` and `usage` do not write them yet.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from splitsecond.events import TokenKind, Usage
from splitsecond.service import Operation
from splitsecond.wire.dialect import Answer
from splitsecond.wire.sse import encode_event

_json = msgspec.json.Encoder().encode

_MARK = b'"\\u0000"'
_FIELDS: dict[TokenKind, str] = {"text": "text", "refusal": "text", "reasoning": "thinking"}
"""The field of a block's content where each kind of token stands; it is the block's type too."""
_TOOL = "tool"
_FINISH = {"stop": "COMPLETE", "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL", "content_filter": "COMPLETE"}
"""OpenAI's words to Cohere's, which has none for a filter; its own go through."""


class StreamWriter:
    """The bytes of one streamed answer. Each method gives whole events, ready to send.

    There is one choice: `index` is always 0. The order: `opening`, tokens and tool calls, `finish`, `usage`, `done`.
    """

    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:  # noqa: A002
        self._id = id
        self._block = ""  # the type of the block that is open
        self._numbers = {"content": -1, "tool-call": -1}
        self._around = b"", b""
        self._last: dict[str, Any] = {}

    def opening(self, index: int = 0) -> bytes:
        """The role, which says nothing yet."""
        message = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        return _event("message-start", id=self._id, delta={"message": message})

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        """One content event, after the beginning of its block if need be.

        For "tool", `text` is a fragment of the arguments (`tool_call` comes before it). Raises `KeyError` for "audio",
        which Cohere has not.
        """
        block = _TOOL if kind == "tool" else _FIELDS[kind]
        begun = b"" if block == self._block else self._begun(block)
        before, after = self._around
        return begun + before + _json(text) + after

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        """A tool call begins: its name."""
        ended = self._ended_block()
        self._block = _TOOL
        number = self._next("tool-call")
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        fragment = {"function": {"arguments": "\0"}}
        self._around = _frame("tool-call-delta", index=number, delta={"message": {"tool_calls": fragment}})
        return ended + _event("tool-call-start", index=number, delta={"message": {"tool_calls": call}})

    def finish(self, reason: str, index: int = 0) -> bytes:
        """The end of the block that is open. Why the answer ended waits for the last event."""
        self._last["finish_reason"] = _FINISH.get(reason, reason)
        return self._ended_block()

    def usage(self, usage: Usage) -> bytes:
        """The counts, for the last event."""
        self._last["usage"] = _usage_fields(usage)
        return b""

    def done(self) -> bytes:
        """The last event."""
        return _event("message-end", delta=self._last)

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:  # noqa: A002
        """An error inside the stream, which ends it. Cohere has only words for it."""
        return _event("message-end", delta={"finish_reason": "ERROR", "error": message})

    def _begun(self, block: str) -> bytes:
        ended = self._ended_block()
        self._block = block
        number = self._next("content")
        self._around = _frame("content-delta", index=number, delta={"message": {"content": {block: "\0"}}})
        opened = {"type": block, block: ""}
        return ended + _event("content-start", index=number, delta={"message": {"content": opened}})

    def _ended_block(self) -> bytes:
        block, self._block = self._block, ""
        if not block:
            return b""
        name = "tool-call" if block == _TOOL else "content"
        return _event(f"{name}-end", index=self._numbers[name])

    def _next(self, name: str) -> int:
        self._numbers[name] += 1
        return self._numbers[name]


def whole(
    operation: Operation,
    model: str,
    answers: Sequence[Answer],
    usage: Usage,
    *,
    id: str,  # noqa: A002
    created: int,
) -> bytes:
    """A whole answer, not streamed; `answers` holds one."""
    (answer,) = answers
    said = {"thinking": answer.reasoning, "text": answer.text or answer.refusal}
    content = [{"type": block, block: text} for block, text in said.items() if text]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if answer.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ]
    reason = _FINISH.get(answer.finish, answer.finish)
    return _json({"id": id, "message": message, "finish_reason": reason, "usage": _usage_fields(usage)})


def error_body(status: int, message: str, type: str, code: str | None = None, param: str | None = None) -> bytes:  # noqa: A002
    """The body of an error response: Cohere has only words for it."""
    return _json({"message": message})


def _event(name: str, **fields: Any) -> bytes:
    return encode_event(_json({"type": name, **fields}), name)


def _frame(name: str, **fields: Any) -> tuple[bytes, bytes]:
    before, _, after = _event(name, **fields).rpartition(_MARK)
    return before, after


def _usage_fields(usage: Usage) -> dict[str, Any]:
    named = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    counts = {name: count for name, count in named.items() if count is not None}
    cached = {} if usage.cached_tokens is None else {"cached_tokens": usage.cached_tokens}
    return {"billed_units": counts, "tokens": counts, **cached}
