"""Server role: answers of Gemini as bytes, with Google's line ends (CR LF). Finish reasons are
OpenAI's in, Gemini's out."""

from collections.abc import Sequence
from typing import Any

from splitsecond.core.events import TokenKind, Usage
from splitsecond.core.service import Operation
from splitsecond.core.wire.api_format import AnswerWriter, ServerAnswer
from splitsecond.core.wire.server_answer import SLOT, around_slots, call_arguments, known, to_json
from splitsecond.core.wire.translation import Fields

_PARTS: dict[TokenKind, Fields] = {
    "text": {"text": SLOT},
    "reasoning": {"text": SLOT, "thought": True},
    "refusal": {"text": SLOT},
    "audio": {"inlineData": {"mimeType": "audio/pcm", "data": SLOT}},
}
"""A part for each kind of token. Gemini has no refusals; its models refuse in text."""

_REASONS = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
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


class StreamWriter(AnswerWriter):
    """Writer of one answer: see `AnswerWriter`.

    Gemini sends neither an opening nor an end mark. Its last event has the finish reasons and the
    token counts, so `finish` keeps the reason until then. It sends a function call in one piece,
    with the next call or `finish`.
    """

    has_marker = False

    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:
        self._head = {"modelVersion": model, "responseId": id}
        self._around: dict[tuple[TokenKind, int], list[bytes]] = {}
        self._calls: dict[int, tuple[str, str, list[str]]] = {}
        self._ended: list[Fields] = []

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        if kind == "tool":
            self._calls[index][2].append(text)
            return b""
        if kind == "image":
            return self._candidate(index, _content([_image_part(text)]))
        around = self._around.get((kind, index))
        if around is None:
            around = self._around[kind, index] = around_slots(
                self._candidate(index, _content([_PARTS[kind]]))
            )
        return to_json(text).join(around)

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        """Begin a function call; return the one before it."""
        before = self._pending_call(index)
        self._calls[index] = name, call_id, []
        return before

    def finish(self, reason: str, index: int = 0) -> bytes:
        ended = {"finishReason": _REASONS.get(reason, reason), "index": index}
        self._ended.append({**_content([{"text": ""}]), **ended})
        return self._pending_call(index)

    def usage(self, usage: Usage) -> bytes:
        return self._last(**counts(usage))

    def done(self) -> bytes:
        return self._last() if self._ended else b""

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:
        return _event(_error(code if isinstance(code, int) else 500, message))

    def whole(self, answers: Sequence[ServerAnswer], usage: Usage) -> bytes:
        candidates = [
            {
                **_content(_answer_parts(each)),
                "finishReason": _REASONS.get(each.finish, each.finish),
                "index": index,
            }
            for index, each in enumerate(answers)
        ]
        return to_json({"candidates": candidates, **counts(usage), **self._head})

    def _last(self, **fields: Any) -> bytes:
        candidates, self._ended = self._ended, []
        return _event({"candidates": candidates, **fields, **self._head})

    def _pending_call(self, index: int) -> bytes:
        call = self._calls.pop(index, None)
        if call is None:
            return b""
        name, call_id, fragments = call
        return self._candidate(index, _content([_call_part(call_id, name, "".join(fragments))]))

    def _candidate(self, index: int, fields: Fields) -> bytes:
        return _event({"candidates": [{**fields, "index": index}], **self._head})


def error_body(
    status: int, message: str, *_others: object, retry_after_s: float | None = None
) -> bytes:
    """Return the body of an error response; `retry_after_s` is in it instead of a header."""
    fields = _error(status, message)
    if retry_after_s is not None:
        delay = {
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": f"{retry_after_s:.9g}s",
        }
        fields["error"]["details"] = [delay]
    return to_json(fields)


def token_count(tokens: int) -> bytes:
    return to_json({"totalTokens": tokens})


def model_list(names: Sequence[str]) -> bytes:
    return to_json({"models": [model(name) for name in names]})


def model(name: str) -> Fields:
    methods = ["generateContent", "countTokens"]
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}


def _event(fields: Fields) -> bytes:
    return b"data: " + to_json(fields) + b"\r\n\r\n"


def _error(status: int, message: str) -> Fields:
    return {
        "error": {"code": status, "message": message, "status": _STATUSES.get(status, "UNKNOWN")}
    }


def _content(parts: list[Fields]) -> Fields:
    return {"content": {"parts": parts, "role": "model"}}


def _answer_parts(answer: ServerAnswer) -> list[Fields]:
    thought = [{"text": answer.reasoning, "thought": True}] if answer.reasoning else []
    text = answer.text or answer.refusal
    texts = [{"text": text}] if text or not answer.calls else []
    return [
        *thought,
        *texts,
        *(_call_part(call.id, call.name, call.arguments) for call in answer.calls),
    ]


def _call_part(call_id: str, name: str, arguments: str) -> Fields:
    return {"functionCall": {"id": call_id, "name": name, "args": call_arguments(name, arguments)}}


def _image_part(url: str) -> Fields:
    head, _, data = url.partition(";base64,")
    if data and head.startswith("data:"):
        return {"inlineData": {"mimeType": head.removeprefix("data:"), "data": data}}
    return {"fileData": {"fileUri": url}}


def counts(usage: Usage) -> Fields:
    output = usage.output_tokens
    fields = known(
        promptTokenCount=usage.input_tokens,
        cachedContentTokenCount=usage.cached_tokens,
        candidatesTokenCount=None if output is None else output - (usage.reasoning_tokens or 0),
        thoughtsTokenCount=usage.reasoning_tokens,
        totalTokenCount=(usage.input_tokens or 0) + (output or 0),
    )
    return {"usageMetadata": fields}
