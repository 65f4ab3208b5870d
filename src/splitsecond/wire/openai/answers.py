"""The server role, writing: answers as bytes.

All that is the same in every event of a stream is put into JSON once; a token then costs the JSON of its own text and
one concatenation.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from splitsecond.events import TokenKind, ToolPart, Usage
from splitsecond.service import Operation
from splitsecond.wire.dialect import Answer
from splitsecond.wire.sse import encode_event

_json = msgspec.json.Encoder().encode

_OBJECTS: dict[Operation, str] = {"chat": "chat.completion", "completions": "text_completion"}
_MARK = b'"\\u0000"'
_DELTAS: dict[TokenKind, Any] = {
    "text": {"content": "\0"},
    "reasoning": {"reasoning_content": "\0"},
    "refusal": {"refusal": "\0"},
    "audio": {"audio": {"data": "\0"}},
    "image": {"images": [{"type": "image_url", "image_url": {"url": "\0"}}]},
}
"""Where each kind of token but "tool" stands in a delta; the NUL is where its text goes."""


class StreamWriter:
    """The bytes of one streamed answer. Each method gives whole events, ready to send; the order is the caller's.

    A stream of chat begins with `opening` for each choice; all end with `finish` for each, `usage` if asked, `done`.
    """

    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:  # noqa: A002
        self._operation: Operation = operation
        name = "chat.completion.chunk" if operation == "chat" else "text_completion"
        self._head: dict[str, Any] = {"id": id, "object": name, "created": created, "model": model}
        self._around: dict[tuple[TokenKind, int], tuple[bytes, bytes]] = {}
        self._calls: dict[int, int] = {}  # the number of each choice's latest tool call

    def opening(self, index: int = 0) -> bytes:
        """The role, which says nothing yet. A completion has none: no bytes."""
        if self._operation == "completions":
            return b""
        return self._choice(index, {"delta": {"role": "assistant", "content": ""}})

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        """One content event. For "tool", `text` is a fragment of the arguments (`tool_call` comes before it)."""
        around = self._around.get((kind, index))
        if around is None:
            around = self._around[kind, index] = self._frame(kind, index)
        return around[0] + _json(text) + around[1]

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        """A tool call begins: its name."""
        number = self._calls[index] = self._calls.get(index, -1) + 1
        self._around.pop(("tool", index), None)
        call = {"index": number, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        return self._choice(index, {"delta": {"tool_calls": [call]}})

    def tool_part(self, part: ToolPart, arguments: str, index: int = 0) -> bytes:
        """A piece of the tool call that `part` says, which is begun where `part` has its name."""
        call: dict[str, Any] = {"index": part.number, "function": {"arguments": arguments}}
        if part.name:
            call |= {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": arguments}}
        return self._choice(index, {"delta": {"tool_calls": [call]}})

    def finish(self, reason: str, index: int = 0) -> bytes:
        """Why the choice ended."""
        content: dict[str, Any] = {"delta": {}} if self._operation == "chat" else {"text": ""}
        return self._choice(index, content, reason)

    def usage(self, usage: Usage) -> bytes:
        """The counts, in a chunk of their own."""
        return encode_event(_json({**self._head, "choices": [], "usage": usage_fields(usage)}))

    def done(self) -> bytes:
        """The end mark."""
        return b"data: [DONE]\n\n"

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:  # noqa: A002
        """An error inside the stream; nothing but `done` should follow."""
        return encode_event(_json({"error": _error_fields(message, type, code, None)}))

    def _choice(self, index: int, content: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": index, **content, "logprobs": None, "finish_reason": finish}
        return encode_event(_json({**self._head, "choices": [choice]}))

    def _frame(self, kind: TokenKind, index: int) -> tuple[bytes, bytes]:
        if self._operation == "completions":
            content: dict[str, Any] = {"text": "\0"}
        elif kind == "tool":
            fragment = {"index": self._calls.get(index, 0), "function": {"arguments": "\0"}}
            content = {"delta": {"tool_calls": [fragment]}}
        else:
            content = {"delta": _DELTAS[kind]}
        before, _, after = self._choice(index, content).rpartition(_MARK)
        return before, after


def whole(
    operation: Operation,
    model: str,
    answers: Sequence[Answer],
    usage: Usage,
    *,
    id: str,  # noqa: A002
    created: int,
) -> bytes:
    """A whole answer, not streamed: one choice for each of `answers`."""
    choices = [
        {"index": index, **_answer_fields(operation, answer), "logprobs": None, "finish_reason": answer.finish}
        for index, answer in enumerate(answers)
    ]
    head = {"id": id, "object": _OBJECTS[operation], "created": created, "model": model}
    return _json({**head, "choices": choices, "usage": usage_fields(usage)})


def error_body(status: int, message: str, type: str, code: str | None = None, param: str | None = None) -> bytes:  # noqa: A002
    """The body of an error response; `code` is the status where there is no better word."""
    return _json({"error": _error_fields(message, type, status if code is None else code, param)})


def _error_fields(message: str, kind: str, code: str | int | None, param: str | None) -> dict[str, Any]:
    return {"message": message, "type": kind, "param": param, "code": code}


def _answer_fields(operation: Operation, answer: Answer) -> dict[str, Any]:
    if operation == "completions":
        return {"text": answer.text}
    content = answer.text or (None if answer.calls else "")
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": answer.refusal or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ]
    return {"message": message}


def usage_fields(usage: Usage) -> dict[str, Any]:
    """The ``usage`` that these counts are."""
    fields: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": (usage.input_tokens or 0) + (usage.output_tokens or 0),
    }
    cached = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens}
    if known := {name: count for name, count in cached.items() if count is not None}:
        fields["prompt_tokens_details"] = known
    if usage.reasoning_tokens is not None:
        fields["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return fields
