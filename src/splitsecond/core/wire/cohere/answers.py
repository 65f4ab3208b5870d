"""Server role: answers of Cohere's chat as bytes.

A stream consists of blocks (text, thinking, tool calls), each with a start event and an end event.
Finish reason and counts share the last event.
"""

from collections.abc import Sequence
from typing import Any

from splitsecond.core.events import TokenKind, Usage
from splitsecond.core.service import Operation
from splitsecond.core.wire.api_format import AnswerWriter, ServerAnswer
from splitsecond.core.wire.server_answer import (
    SLOT,
    around_slots,
    function_call,
    known,
    to_json,
    typed_event,
)

_FIELDS: dict[TokenKind, str] = {"text": "text", "refusal": "text", "reasoning": "thinking"}
"""The field of a block's content for each kind of token; it is the block's type too."""
_TOOL = "tool"
_FINISH = {
    "stop": "COMPLETE",
    "length": "MAX_TOKENS",
    "tool_calls": "TOOL_CALL",
    "content_filter": "COMPLETE",
}
"""OpenAI's finish reasons, and Cohere's for them, which has none for a filter."""


class StreamWriter(AnswerWriter):
    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:
        self._id = id
        self._block = ""  # the type of the open block
        self._numbers = {"content": -1, "tool-call": -1}
        self._around: list[bytes] = []
        self._last: dict[str, Any] = {}

    def opening(self, index: int = 0, usage: Usage | None = None) -> bytes:
        message = {
            "role": "assistant",
            "content": [],
            "tool_plan": "",
            "tool_calls": [],
            "citations": [],
        }
        return typed_event("message-start", id=self._id, delta={"message": message})

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        block = _TOOL if kind == "tool" else _FIELDS[kind]
        start = b"" if block == self._block else self._start_block(block)
        return start + to_json(text).join(self._around)

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        ended = self._end_block()
        self._block = _TOOL
        number = self._next("tool-call")
        call = function_call(call_id, name, "")
        fragment = {"function": {"arguments": SLOT}}
        delta = typed_event(
            "tool-call-delta", index=number, delta={"message": {"tool_calls": fragment}}
        )
        self._around = around_slots(delta)
        return ended + typed_event(
            "tool-call-start", index=number, delta={"message": {"tool_calls": call}}
        )

    def finish(self, reason: str, index: int = 0) -> bytes:
        self._last["finish_reason"] = _FINISH.get(reason, reason)
        return self._end_block()

    def usage(self, usage: Usage) -> bytes:
        self._last["usage"] = _usage_fields(usage)
        return b""

    def done(self) -> bytes:
        return typed_event("message-end", delta=self._last)

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:
        return typed_event("message-end", delta={"finish_reason": "ERROR", "error": message})

    def whole(self, answers: Sequence[ServerAnswer], usage: Usage) -> bytes:
        (answer,) = answers
        texts = {"thinking": answer.reasoning, "text": answer.text or answer.refusal}
        content = [{"type": block, block: text} for block, text in texts.items() if text]
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if answer.calls:
            message["tool_calls"] = [
                function_call(call.id, call.name, call.arguments) for call in answer.calls
            ]
        end = {
            "finish_reason": _FINISH.get(answer.finish, answer.finish),
            "usage": _usage_fields(usage),
        }
        return to_json({"id": self._id, "message": message, **end})

    def _start_block(self, block: str) -> bytes:
        ended = self._end_block()
        self._block = block
        number = self._next("content")
        delta = typed_event(
            "content-delta", index=number, delta={"message": {"content": {block: SLOT}}}
        )
        self._around = around_slots(delta)
        opened = {"type": block, block: ""}
        return ended + typed_event(
            "content-start", index=number, delta={"message": {"content": opened}}
        )

    def _end_block(self) -> bytes:
        block, self._block = self._block, ""
        if not block:
            return b""
        name = "tool-call" if block == _TOOL else "content"
        return typed_event(f"{name}-end", index=self._numbers[name])

    def _next(self, name: str) -> int:
        self._numbers[name] += 1
        return self._numbers[name]


def error_body(status: int, message: str, *_others: object) -> bytes:
    return to_json({"message": message})


def _usage_fields(usage: Usage) -> dict[str, Any]:
    counts = known(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
    return {"billed_units": counts, "tokens": counts, **known(cached_tokens=usage.cached_tokens)}
