"""The server role, writing: answers as bytes. A stream is made of text and its end, and says nothing else."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from splitsecond.events import TokenKind, Usage
from splitsecond.service import Operation
from splitsecond.wire.dialect import Answer
from splitsecond.wire.sse import encode_event

_json = msgspec.json.Encoder().encode


class StreamWriter:
    """The bytes of one streamed output. Each method gives whole events, ready to send, or none.

    There is one choice: `index` is always 0. Neither a role, nor a reason, nor counts, nor calls exist here, and
    thoughts and refusals are text like any other.
    """

    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:  # noqa: A002
        self._id = id

    def opening(self, index: int = 0) -> bytes:
        """No bytes."""
        return b""

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        """One content event."""
        return encode_event(text.encode(), "output")

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        """No bytes."""
        return b""

    def finish(self, reason: str, index: int = 0) -> bytes:
        """No bytes."""
        return b""

    def usage(self, usage: Usage) -> bytes:
        """No bytes."""
        return b""

    def done(self) -> bytes:
        """The end mark."""
        return encode_event(b"{}", "done")

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:  # noqa: A002
        """An error inside the stream, which ends it. Replicate has only words for it."""
        return encode_event(_json({"detail": message}), "error") + encode_event(b'{"reason":"error"}', "done")


def created(model: str, *, id: str, created: int, stream: str) -> bytes:  # noqa: A002
    """The answer to a request for a prediction that streams: it begins, and `stream` is the URL of its output."""
    return _json({**_head(id, model, created), "status": "starting", "output": None, "urls": {"stream": stream}})


def whole(
    operation: Operation,
    model: str,
    answers: Sequence[Answer],
    usage: Usage,
    *,
    id: str,  # noqa: A002
    created: int,
) -> bytes:
    """A whole prediction, not streamed; `answers` holds one."""
    (answer,) = answers
    metrics = {"input_token_count": usage.input_tokens, "output_token_count": usage.output_tokens}
    said = [text for text in (answer.reasoning, answer.text or answer.refusal) if text]
    return _json({**_head(id, model, created), "status": "succeeded", "output": said, "urls": {}, "metrics": metrics})


def error_body(status: int, message: str, type: str = "", code: str | None = None, param: str | None = None) -> bytes:  # noqa: A002
    """The body of an error response."""
    return _json({"title": type or "error", "detail": message, "status": status})


def _head(identity: str, model: str, created: int) -> dict[str, Any]:
    made = datetime.fromtimestamp(created, UTC).isoformat()
    return {"id": identity, "model": model, "created_at": made, "error": None}
