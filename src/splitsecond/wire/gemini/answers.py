"""The server role, writing: answers as bytes, with the line ends that Google sends (CR LF).

All that is the same in every event of a stream is put into JSON once; a token then costs the JSON of its own text and
one concatenation. The writer takes OpenAI's words for why an answer ends and says Gemini's.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from splitsecond.events import TokenKind, Usage
from splitsecond.service import Operation
from splitsecond.wire.dialect import Answer

_json = msgspec.json.Encoder().encode

_MARK = b'"\\u0000"'
_PARTS: dict[TokenKind, dict[str, Any]] = {
    "text": {"text": "\0"},
    "reasoning": {"text": "\0", "thought": True},
    "refusal": {"text": "\0"},
    "audio": {"inlineData": {"mimeType": "audio/pcm", "data": "\0"}},
}
"""A part for each kind of token; the NUL is where its text goes. Gemini has no refusals; its models say no in text."""

_REASONS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class StreamWriter:
    """The bytes of one streamed answer. Each method gives whole events, ready to send; the order is the caller's.

    Gemini sends neither an opening nor an end mark, so `opening` and `done` give no bytes. It sends a function call in
    one piece: `tool_call` and tokens of kind "tool" give none either, until the next call or `finish` completes them.
    """

    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:  # noqa: A002
        self._head = {"modelVersion": model, "responseId": id}
        self._around: dict[tuple[TokenKind, int], tuple[bytes, bytes]] = {}
        self._calls: dict[int, tuple[str, str, list[str]]] = {}

    def opening(self, index: int = 0) -> bytes:
        """No bytes."""
        return b""

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        """One content event. For "tool", `text` is a fragment of the arguments (`tool_call` comes before it)."""
        if kind == "tool":
            self._calls[index][2].append(text)
            return b""
        if kind == "image":
            return self._candidate(index, _content([_image_part(text)]))
        around = self._around.get((kind, index))
        if around is None:
            before, _, after = self._candidate(index, _content([_PARTS[kind]])).rpartition(_MARK)
            around = self._around[kind, index] = before, after
        return around[0] + _json(text) + around[1]

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        """A function call begins. Gives the one before it."""
        before = self._pending_call(index)
        self._calls[index] = name, call_id, []
        return before

    def finish(self, reason: str, index: int = 0) -> bytes:
        """Why the candidate ended; before it a function call that was begun."""
        ended = {"finishReason": _REASONS.get(reason, reason)}
        return self._pending_call(index) + self._candidate(index, {**_content([{"text": ""}]), **ended})

    def usage(self, usage: Usage) -> bytes:
        """The counts, in a chunk of their own."""
        return _event({"usageMetadata": _usage_fields(usage), **self._head})

    def done(self) -> bytes:
        """No bytes."""
        return b""

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:  # noqa: A002
        """An error inside the stream. Gemini has a word for each status, and no place for `type`."""
        return _event(_error(code if isinstance(code, int) else 500, message))

    def _pending_call(self, index: int) -> bytes:
        call = self._calls.pop(index, None)
        if call is None:
            return b""
        name, call_id, fragments = call
        return self._candidate(index, _content([_call_part(call_id, name, "".join(fragments) or "{}")]))

    def _candidate(self, index: int, fields: dict[str, Any]) -> bytes:
        return _event({"candidates": [{**fields, "index": index}], **self._head})


def whole(
    operation: Operation,
    model: str,
    answers: Sequence[Answer],
    usage: Usage,
    *,
    id: str,  # noqa: A002
    created: int,
) -> bytes:
    """A whole answer, not streamed: one candidate for each of `answers`."""
    candidates = [
        {**_content(_answer_parts(answer)), "finishReason": _REASONS.get(answer.finish, answer.finish), "index": index}
        for index, answer in enumerate(answers)
    ]
    fields = {"candidates": candidates, "usageMetadata": _usage_fields(usage)}
    return _json({**fields, "modelVersion": model, "responseId": id})


def error_body(
    status: int,
    message: str,
    type: str = "",  # noqa: A002
    code: str | None = None,
    param: str | None = None,
    retry_after_s: float | None = None,
) -> bytes:
    """The body of an error response. Gemini has a word for each status, and no place for the rest.

    `retry_after_s` stands in it, and in no header.
    """
    fields = _error(status, message)
    if retry_after_s is not None:
        delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_after_s:.9g}s"}
        fields["error"]["details"] = [delay]
    return _json(fields)


def token_count(tokens: int) -> bytes:
    """The answer to the question how many tokens a request has."""
    return _json({"totalTokens": tokens})


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + _json(fields) + b"\r\n\r\n"


def _error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "UNKNOWN")}}


def _content(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": {"parts": parts, "role": "model"}}


def _answer_parts(answer: Answer) -> list[dict[str, Any]]:
    thought = [{"text": answer.reasoning, "thought": True}] if answer.reasoning else []
    text = answer.text or answer.refusal
    said = [{"text": text}] if text or not answer.calls else []
    return [*thought, *said, *(_call_part(call.id, call.name, call.arguments) for call in answer.calls)]


def _call_part(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    args = msgspec.json.decode(arguments, type=dict[str, Any])
    return {"functionCall": {"id": call_id, "name": name, "args": args}}


def _image_part(url: str) -> dict[str, Any]:
    head, _, data = url.partition(";base64,")
    if data and head.startswith("data:"):
        return {"inlineData": {"mimeType": head.removeprefix("data:"), "data": data}}
    return {"fileData": {"fileUri": url}}


def _usage_fields(usage: Usage) -> dict[str, int]:
    counts = {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "candidatesTokenCount": None
        if usage.output_tokens is None
        else usage.output_tokens - (usage.reasoning_tokens or 0),
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": (usage.input_tokens or 0) + (usage.output_tokens or 0),
    }
    return {name: count for name, count in counts.items() if count is not None}
