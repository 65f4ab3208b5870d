"""Server role: answers of Anthropic's Messages as bytes. Finish reasons are OpenAI's in,
Anthropic's out."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from splitsecond.core.events import TokenKind, Usage
from splitsecond.core.service import Operation
from splitsecond.core.wire.api_format import AnswerWriter, ServerAnswer
from splitsecond.core.wire.provider_errors import THREADS
from splitsecond.core.wire.server_answer import (
    SLOT,
    around_slots,
    call_arguments,
    known,
    to_json,
    typed_event,
)
from splitsecond.core.wire.sse import encode_event
from splitsecond.core.wire.translation import Fields

NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_TEXT = ({"type": "text", "text": ""}, {"type": "text_delta", "text": SLOT})
_BLOCKS: dict[TokenKind, tuple[Fields, dict[str, str]]] = {
    "text": _TEXT,
    "reasoning": (
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": SLOT},
    ),
    "refusal": _TEXT,
    "tool": ({}, {"type": "input_json_delta", "partial_json": SLOT}),
}
"""The start of a block and a delta, for each kind of token. A refusal is a text, and the stop
reason tells that it is one."""

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def _stop_reason(finish: str, *, refused: bool) -> str:
    return "refusal" if refused and finish == "stop" else _REASONS.get(finish, finish)


class StreamWriter(AnswerWriter):
    """Writer of one answer: see `AnswerWriter`. There is one choice.

    A block begins with the first token of its kind and ends with the first of another. One event
    has the finish reason and the usage: `usage` returns it, or `done` if there is no usage.
    """

    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:
        head = {"id": id, "type": "message", "role": "assistant", "model": model}
        self._message: Fields = {**head, "stop_reason": None, "stop_sequence": None}
        self._block = -1
        self._open = False
        self._kind: TokenKind | None = None
        self._around: list[bytes] = []
        self._reason: str | None = None
        self._refused = False
        self._prompt_tokens: int | None = None

    def resume(self, blocks: int, kind: TokenKind | None, *, is_open: bool) -> None:
        """Continue an answer that another writer began, with that number of blocks.

        `is_open`: the last block has not ended; `kind`: the kind of tokens that it takes.
        """
        self._block, self._open, self._kind = blocks - 1, is_open, kind
        if kind is not None:
            self._around = self._frame(kind)

    @property
    def kind(self) -> TokenKind | None:
        return self._kind

    def opening(self, index: int = 0, usage: Usage | None = None) -> bytes:
        usage = usage or Usage(0)
        self._prompt_tokens = usage.input_tokens
        fields = counts(replace(usage, output_tokens=0, reasoning_tokens=None))
        return typed_event("message_start", message={**self._message, "content": [], **fields})

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        begun = b"" if kind == self._kind else self._begin(kind, _BLOCKS[kind][0])
        return begun + to_json(text).join(self._around)

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        """Return the start of a tool call. Anthropic rejects dots and colons in ids of other
        providers."""
        return self._begin(
            "tool",
            {"type": "tool_use", "id": NOT_IN_AN_ID.sub("_", call_id), "name": name, "input": {}},
        )

    def finish(self, reason: str, index: int = 0) -> bytes:
        self._reason = _stop_reason(reason, refused=self._refused)
        return self._end_block()

    def usage(self, usage: Usage) -> bytes:
        delta = {"stop_reason": self._reason, "stop_sequence": self.stop_sequence}
        self._reason = None
        if usage.input_tokens is None:
            usage = replace(usage, input_tokens=self._prompt_tokens)
        return typed_event("message_delta", delta=delta, **counts(usage))

    def done(self) -> bytes:
        return (self.usage(Usage(0)) if self._reason is not None else b"") + typed_event(
            "message_stop"
        )

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:
        return encode_event(error_body(code if isinstance(code, int) else 500, message), "error")

    def whole(self, answers: Sequence[ServerAnswer], usage: Usage) -> bytes:
        (answer,) = answers
        content: list[Fields] = []
        if answer.reasoning:
            content.append({"type": "thinking", "thinking": answer.reasoning, "signature": ""})
        if text := answer.text or answer.refusal:
            content.append({"type": "text", "text": text})
        content += [
            {
                "type": "tool_use",
                "id": call.id,
                "name": call.name,
                "input": call_arguments(call.name, call.arguments),
            }
            for call in answer.calls
        ]
        reason = _stop_reason(answer.finish, refused=bool(answer.refusal))
        end = {"stop_reason": reason, "stop_sequence": self.stop_sequence, **counts(usage)}
        return to_json({**self._message, "content": content, **end})

    def _begin(self, kind: TokenKind, block: Fields) -> bytes:
        ended = self._end_block()
        self._open, self._kind = True, kind
        self._refused = self._refused or kind == "refusal"
        self._block += 1
        self._around = self._frame(kind)
        return ended + typed_event("content_block_start", index=self._block, content_block=block)

    def _frame(self, kind: TokenKind) -> list[bytes]:
        return around_slots(
            typed_event("content_block_delta", index=self._block, delta=_BLOCKS[kind][1])
        )

    def _end_block(self) -> bytes:
        if not self._open:
            return b""
        self._open, self._kind = False, None
        return typed_event("content_block_stop", index=self._block)


def error_body(
    status: int, message: str, type: str = "", code: str | None = None, param: str | None = None
) -> bytes:
    """Return the body of an error response. Its type follows from the status; of codes only those
    about threads have a place."""
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")
    details = {"details": {"error_code": code}} if code and code.startswith(THREADS) else {}
    return to_json({"type": "error", "error": {"type": kind, "message": message, **details}})


def model_list(names: Sequence[str]) -> bytes:
    ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    return to_json({"data": [model(name) for name in names], "has_more": False, **ends})


def model(name: str) -> Fields:
    head = {"type": "model", "id": name, "display_name": name}
    return {**head, "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active"}


def token_count(tokens: int) -> bytes:
    return to_json({"input_tokens": tokens})


def counts(usage: Usage) -> Fields:
    fields: Fields = {
        "input_tokens": (usage.input_tokens or 0)
        - (usage.cached_tokens or 0)
        - (usage.cache_write_tokens or 0),
        "output_tokens": usage.output_tokens or 0,
    }
    fields |= known(
        cache_read_input_tokens=usage.cached_tokens,
        cache_creation_input_tokens=usage.cache_write_tokens,
    )
    if hour := usage.cache_write_1h_tokens:
        short = (usage.cache_write_tokens or 0) - hour
        fields["cache_creation"] = {
            "ephemeral_5m_input_tokens": short,
            "ephemeral_1h_input_tokens": hour,
        }
    if usage.reasoning_tokens is not None:
        fields["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return {"usage": fields}
