"""The server role, writing: answers as bytes.

All that is the same in every event of a block is put into JSON once; a token then costs the JSON of its own text and
one concatenation. The writer takes OpenAI's words for why an answer ends and says Anthropic's.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from splitsecond.events import TokenKind, Usage
from splitsecond.service import Operation
from splitsecond.wire.dialect import Answer
from splitsecond.wire.sse import encode_event

_json = msgspec.json.Encoder().encode

NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_MARK = b'"\\u0000"'
_TEXT = ({"type": "text", "text": ""}, {"type": "text_delta", "text": "\0"})
_BLOCKS: dict[TokenKind, tuple[dict[str, Any], dict[str, str]]] = {
    "text": _TEXT,
    "reasoning": (
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "\0"},
    ),
    "refusal": _TEXT,
    "tool": ({}, {"type": "input_json_delta", "partial_json": "\0"}),
}
"""How a block for each kind of token begins, and a delta of it; the NUL is where the text goes.

A block of a tool call begins with its name. Anthropic has no refusals; its models say no in text.
"""

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
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


class StreamWriter:
    """The bytes of one streamed answer. Each method gives whole events, ready to send.

    There is one choice: `index` is always 0. The order: `opening`, tokens, `finish`, `usage`, `done`. A block begins
    with the first token of its kind, and ends with the first of another. Reason and counts share an event, so `finish`
    only ends the last block; the event comes with `usage`, or with `done` where there was none.
    """

    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:  # noqa: A002
        self._message = _message(id, model)
        self._block = -1
        self._open = False
        self._kind: TokenKind | None = None
        self._around = (b"", b"")
        self._reason: str | None = None

    def resume(self, blocks: int, kind: TokenKind | None, *, is_open: bool) -> None:
        """Goes on with an answer of which somebody else has told the beginning, with so many blocks.

        `is_open`: the last one has not ended; `kind`: tokens of that kind are deltas of it, None for no kind.
        """
        self._block, self._open, self._kind = blocks - 1, is_open, kind
        if kind is not None:
            self._around = self._frame(kind)

    @property
    def kind(self) -> TokenKind | None:
        """Of which kind the tokens of the open block are; None: no block is open, or one for none."""
        return self._kind

    def opening(self, index: int = 0, usage: Usage | None = None) -> bytes:
        """The message begins. Of `usage` only the input is said, as far as it is known by now."""
        counts = {**_usage_fields(usage or Usage(0)), "output_tokens": 0}
        return _event("message_start", message={**self._message, "content": [], "usage": counts})

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        """One content event, after the beginning of its block where it is the first.

        For "tool", `text` is a fragment of the arguments (`tool_call` comes before it). Raises `KeyError` for "audio",
        which Anthropic has not.
        """
        begun = b"" if kind == self._kind else self._begin(kind, _BLOCKS[kind][0])
        before, after = self._around
        return begun + before + _json(text) + after

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        """A tool call begins: its name. Other makers' ids have dots and colons, which Anthropic would refuse later."""
        return self._begin(
            "tool", {"type": "tool_use", "id": NOT_IN_AN_ID.sub("_", call_id), "name": name, "input": {}}
        )

    def finish(self, reason: str, index: int = 0) -> bytes:
        """Why the answer ended; now only the end of its last block."""
        self._reason = _REASONS.get(reason, reason)
        return self._end_block()

    def usage(self, usage: Usage) -> bytes:
        """Why the answer ended, and the counts."""
        delta = {"stop_reason": self._reason, "stop_sequence": None}
        self._reason = None
        return _event("message_delta", delta=delta, usage=_usage_fields(usage))

    def done(self) -> bytes:
        """The end mark."""
        return (self.usage(Usage(0)) if self._reason is not None else b"") + _event("message_stop")

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:  # noqa: A002
        """An error inside the stream; nothing should follow. Anthropic has a word for each status, none for `type`."""
        return encode_event(error_body(code if isinstance(code, int) else 500, message), "error")

    def _begin(self, kind: TokenKind, block: dict[str, Any]) -> bytes:
        ended = self._end_block()
        self._open, self._kind = True, kind
        self._block += 1
        self._around = self._frame(kind)
        return ended + _event("content_block_start", index=self._block, content_block=block)

    def _frame(self, kind: TokenKind) -> tuple[bytes, bytes]:
        """What stands before and after the text of a delta of the block."""
        delta = _event("content_block_delta", index=self._block, delta=_BLOCKS[kind][1])
        before, _, after = delta.rpartition(_MARK)
        return before, after

    def _end_block(self) -> bytes:
        if not self._open:
            return b""
        self._open, self._kind = False, None
        return _event("content_block_stop", index=self._block)


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
    content: list[dict[str, Any]] = []
    if answer.reasoning:
        content.append({"type": "thinking", "thinking": answer.reasoning, "signature": ""})
    if text := answer.text or answer.refusal:
        content.append({"type": "text", "text": text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": msgspec.Raw(call.arguments.encode())}
        for call in answer.calls
    ]
    reason = _REASONS.get(answer.finish, answer.finish)
    return _json(
        {**_message(id, model), "content": content, "stop_reason": reason, "usage": _usage_fields(usage)},
    )


def error_body(status: int, message: str, type: str = "", code: str | None = None, param: str | None = None) -> bytes:  # noqa: A002
    """The body of an error response. Anthropic has a word for each status, and no place for the rest."""
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")
    return _json({"type": "error", "error": {"type": kind, "message": message}})


def token_count(tokens: int) -> bytes:
    """The answer to the question how many tokens a request has."""
    return _json({"input_tokens": tokens})


def _event(name: str, **fields: Any) -> bytes:
    return encode_event(_json({"type": name, **fields}), name)


def _message(identity: str, model: str) -> dict[str, Any]:
    head = {"id": identity, "type": "message", "role": "assistant", "model": model}
    return {**head, "stop_reason": None, "stop_sequence": None}


def _usage_fields(usage: Usage) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "input_tokens": (usage.input_tokens or 0) - (usage.cached_tokens or 0) - (usage.cache_write_tokens or 0),
        "output_tokens": usage.output_tokens or 0,
    }
    if usage.cached_tokens is not None:
        fields["cache_read_input_tokens"] = usage.cached_tokens
    if usage.cache_write_tokens is not None:
        fields["cache_creation_input_tokens"] = usage.cache_write_tokens
    if usage.reasoning_tokens is not None:
        fields["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return fields
