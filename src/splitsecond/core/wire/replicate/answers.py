"""Server role: the output of a prediction as bytes. A stream consists of text and its end."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from splitsecond.core.events import TokenKind, Usage
from splitsecond.core.service import Operation
from splitsecond.core.wire.api_format import AnswerWriter, ServerAnswer
from splitsecond.core.wire.server_answer import to_json
from splitsecond.core.wire.sse import encode_event


class StreamWriter(AnswerWriter):
    """Writer of one output: see `AnswerWriter`. A stream holds text only."""

    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:
        self._head = _head(id, model, created)

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        return encode_event(text.encode(), "output")

    def done(self) -> bytes:
        return encode_event(b"{}", "done")

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:
        return encode_event(to_json({"detail": message}), "error") + encode_event(
            b'{"reason":"error"}', "done"
        )

    def whole(self, answers: Sequence[ServerAnswer], usage: Usage) -> bytes:
        (answer,) = answers
        metrics = {
            "input_token_count": usage.input_tokens,
            "output_token_count": usage.output_tokens,
        }
        output = [text for text in (answer.reasoning, answer.text or answer.refusal) if text]
        return to_json(
            {**self._head, "status": "succeeded", "output": output, "urls": {}, "metrics": metrics}
        )


def created(model: str, *, id: str, created: int, stream: str) -> bytes:
    """Return the response to a streaming prediction's creation; `stream` is the URL of its
    output."""
    return to_json(
        {
            **_head(id, model, created),
            "status": "starting",
            "output": None,
            "urls": {"stream": stream},
        }
    )


def error_body(status: int, message: str, type: str = "", *_others: object) -> bytes:
    return to_json({"title": type or "error", "detail": message, "status": status})


def _head(identity: str, model: str, created: int) -> dict[str, Any]:
    created_at = datetime.fromtimestamp(created, UTC).isoformat()
    return {"id": identity, "model": model, "created_at": created_at, "error": None}
