"""Server role: answers of chat and completions as bytes."""

from collections.abc import Sequence
from typing import Any

from splitsecond.core.events import Done, Event, Finish, Token, TokenKind, ToolPart, Usage
from splitsecond.core.service import Operation
from splitsecond.core.wire.api_format import AnswerWriter, ServerAnswer
from splitsecond.core.wire.server_answer import SLOT, around_slots, function_call, known, to_json
from splitsecond.core.wire.sse import encode_event
from splitsecond.core.wire.translation import Fields

_DELTAS: dict[TokenKind, Any] = {
    "text": {"content": SLOT},
    "reasoning": {"reasoning_content": SLOT, "reasoning": SLOT},
    "refusal": {"refusal": SLOT},
    "audio": {"audio": {"data": SLOT}},
    "image": {"images": [{"type": "image_url", "image_url": {"url": SLOT}}]},
}
"""The delta for each kind of token but "tool". Clients read reasoning under one of two names."""


class StreamWriter(AnswerWriter):
    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:
        self._operation: Operation = operation
        name = "chat.completion" if operation == "chat" else "text_completion"
        self._head: Fields = {"id": id, "object": name, "created": created, "model": model}
        if operation == "chat":
            self._head["object"] = "chat.completion.chunk"
        self._around: dict[tuple[TokenKind, int], list[bytes]] = {}
        self._calls: dict[int, int] = {}  # the number of the latest tool call of each choice

    def opening(self, index: int = 0, usage: Usage | None = None) -> bytes:
        if self._operation == "completions":
            return b""
        return self._choice(index, {"delta": {"role": "assistant", "content": ""}})

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        around = self._around.get((kind, index))
        if around is None:
            around = self._around[kind, index] = self._frame(kind, index)
        return to_json(text).join(around)

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        number = self._calls[index] = self._calls.get(index, -1) + 1
        self._around.pop(("tool", index), None)
        call = function_call(call_id, name, "")
        return self._choice(index, {"delta": {"tool_calls": [{"index": number, **call}]}})

    def event(self, event: Event) -> bytes:
        match event:
            case Token(tool=ToolPart() as part):
                call: Fields = {
                    "index": part.number,
                    "function": {"arguments": event.arguments},
                }
                if part.name:
                    call |= function_call(part.id, part.name, event.arguments)
                return self._choice(event.index, {"delta": {"tool_calls": [call]}})
            case Token():
                return self.token(event.text, event.kind, event.index)
            case Finish():
                return self.finish(event.reason, event.index)
            case Usage():
                return self.usage(event)
            case Done(marker=True):
                return self.done()
            case _:
                return b""

    def finish(self, reason: str, index: int = 0) -> bytes:
        content: Fields = {"delta": {}} if self._operation == "chat" else {"text": ""}
        return self._choice(index, content, reason)

    def usage(self, usage: Usage) -> bytes:
        return encode_event(to_json({**self._head, "choices": [], "usage": usage_fields(usage)}))

    def done(self) -> bytes:
        return b"data: [DONE]\n\n"

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:
        return encode_event(to_json({"error": _error_fields(message, type, code, None)}))

    def whole(self, answers: Sequence[ServerAnswer], usage: Usage) -> bytes:
        choices = [
            {
                "index": index,
                **self._content(answer),
                "logprobs": None,
                "finish_reason": answer.finish,
            }
            for index, answer in enumerate(answers)
        ]
        head = {**self._head, "object": self._head["object"].removesuffix(".chunk")}
        # OpenRouter's clients require it here, and refuse null in chunks
        head["system_fingerprint"] = None
        return to_json({**head, "choices": choices, "usage": usage_fields(usage)})

    def _content(self, answer: ServerAnswer) -> Fields:
        if self._operation == "completions":
            return {"text": answer.text}
        content = answer.text or (None if answer.calls else "")
        message: Fields = {
            "role": "assistant",
            "content": content,
            "refusal": answer.refusal or None,
        }
        if answer.reasoning:
            message["reasoning_content"] = message["reasoning"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [
                function_call(call.id, call.name, call.arguments) for call in answer.calls
            ]
        return {"message": message}

    def _choice(self, index: int, content: Fields, finish: str | None = None) -> bytes:
        choice = {"index": index, **content, "logprobs": None, "finish_reason": finish}
        return encode_event(to_json({**self._head, "choices": [choice]}))

    def _frame(self, kind: TokenKind, index: int) -> list[bytes]:
        if self._operation == "completions":
            content: Fields = {"text": SLOT}
        elif kind == "tool":
            fragment = {"index": self._calls.get(index, 0), "function": {"arguments": SLOT}}
            content = {"delta": {"tool_calls": [fragment]}}
        else:
            content = {"delta": _DELTAS[kind]}
        return around_slots(self._choice(index, content), len(content.get("delta", content)))


def model_list(names: Sequence[str]) -> bytes:
    return to_json({"object": "list", "data": [model(name) for name in names]})


def model(name: str) -> Fields:
    return {"id": name, "object": "model", "created": 0, "owned_by": "splitsecond"}


def error_body(
    status: int, message: str, type: str, code: str | None = None, param: str | None = None
) -> bytes:
    """Return the body of an error response; `code` is the status if None."""
    return to_json({"error": _error_fields(message, type, status if code is None else code, param)})


def numbered_error_body(
    status: int, message: str, type: str, code: str | None, param: str | None
) -> bytes:
    """Return the body of an error response of OpenRouter, whose code is the status: its clients
    require a number."""
    return to_json(
        {"error": {"message": message, "code": status, "metadata": {"error_type": code or type}}}
    )


def _error_fields(message: str, kind: str, code: str | int | None, param: str | None) -> Fields:
    return {"message": message, "type": kind, "param": param, "code": code}


def counts(usage: Usage) -> Fields:
    return {"usage": usage_fields(usage)}


def usage_fields(usage: Usage) -> Fields:
    """Return `usage` as the field ``usage``. Unknown counts are 0: clients require numbers."""
    fields: Fields = {
        "prompt_tokens": usage.input_tokens or 0,
        "completion_tokens": usage.output_tokens or 0,
        "total_tokens": (usage.input_tokens or 0) + (usage.output_tokens or 0),
    }
    if cached := known(
        cached_tokens=usage.cached_tokens, cache_write_tokens=usage.cache_write_tokens
    ):
        fields["prompt_tokens_details"] = cached
    if usage.reasoning_tokens is not None:
        fields["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return fields
