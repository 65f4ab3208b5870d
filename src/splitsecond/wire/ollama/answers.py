"""The server role, writing: answers as bytes, one JSON object a line.

All that is the same in every line is put into JSON once; a token then costs the JSON of its own text. Reason, counts
and durations share the last line, so `finish` and `usage` write nothing yet; and a tool call goes out whole, so its
fragments wait for its end.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from splitsecond.events import TokenKind, Usage
from splitsecond.service import Operation
from splitsecond.wire.dialect import Answer
from splitsecond.wire.server_times import Took

_json = msgspec.json.Encoder().encode

_MARK = b'"\\u0000"'
_MESSAGES: dict[TokenKind, dict[str, str]] = {
    "text": {"content": "\0"},
    "reasoning": {"content": "", "thinking": "\0"},
    "refusal": {"content": "\0"},
}
"""Where each kind of token stands in a message; the NUL is where its text goes."""
_FINISH = {"tool_calls": "stop", "content_filter": "stop"}
"""OpenAI's words that Ollama has not; "stop" and "length" are the same in both."""
_NO_TIMINGS: Mapping[str, int] = {}


class StreamWriter:
    """The bytes of one streamed answer. Each method gives whole lines, ready to send, or none yet.

    There is one choice: `index` is always 0. The order: tokens, `finish`, `usage`, `done`.
    """

    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:  # noqa: A002
        self._head = _head(model, created)
        self._around = {kind: self._frame(message) for kind, message in _MESSAGES.items()}
        self._call: str | None = None
        self._call_id = ""
        self._arguments: list[str] = []
        self._last: dict[str, Any] = {}

    def opening(self, index: int = 0) -> bytes:
        """Nothing: a stream begins with its first token."""
        return b""

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        """One content line. For "tool", `text` is a fragment of the arguments: no bytes until the call has ended.

        Raises `KeyError` for "audio", which Ollama has not.
        """
        if kind == "tool":
            self._arguments.append(text)
            return b""
        before, after = self._around[kind]
        return self._ended_call() + before + _json(text) + after

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        """A tool call begins; the one before it goes out."""
        ended = self._ended_call()
        self._call, self._call_id = name, call_id
        return ended

    def finish(self, reason: str, index: int = 0) -> bytes:
        """Why the answer ended, for the last line; a tool call that is open goes out."""
        self._last["done_reason"] = _FINISH.get(reason, reason)
        return self._ended_call()

    def usage(self, usage: Usage) -> bytes:
        """The counts, for the last line."""
        self._last |= _counts(usage)
        return b""

    def done(self, timings: Mapping[str, int] = _NO_TIMINGS) -> bytes:
        """The last line. `timings`: Ollama's durations by name (``eval_duration`` …), in nanoseconds."""
        message = {"role": "assistant", "content": ""}
        return _json({**self._head, "message": message, "done": True, **self._last, **timings}) + b"\n"

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:  # noqa: A002
        """An error inside the stream; nothing should follow. Ollama has only words for it."""
        return _json({"error": message}) + b"\n"

    def _ended_call(self) -> bytes:
        if self._call is None:
            return b""
        arguments = msgspec.Raw("".join(self._arguments).encode() or b"{}")
        call = {"id": self._call_id, "function": {"name": self._call, "arguments": arguments}}
        self._call = None
        self._arguments.clear()
        return self._line({"content": "", "tool_calls": [call]})

    def _line(self, message: dict[str, Any]) -> bytes:
        return _json({**self._head, "message": {"role": "assistant", **message}, "done": False}) + b"\n"

    def _frame(self, message: dict[str, str]) -> tuple[bytes, bytes]:
        before, _, after = self._line(message).rpartition(_MARK)
        return before, after


def whole(
    operation: Operation,
    model: str,
    answers: Sequence[Answer],
    usage: Usage,
    *,
    id: str,  # noqa: A002
    created: int,
    timings: Mapping[str, int] = _NO_TIMINGS,
) -> bytes:
    """A whole answer, not streamed; `answers` holds one, and `timings` are as `StreamWriter.done` has them."""
    (answer,) = answers
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or answer.refusal}
    if answer.reasoning:
        message["thinking"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": msgspec.Raw(call.arguments.encode())}}
            for call in answer.calls
        ]
    last = {"done": True, "done_reason": _FINISH.get(answer.finish, answer.finish), **_counts(usage), **timings}
    return _json({**_head(model, created), "message": message, **last})


def durations(took: Took) -> dict[str, int]:
    """Ollama's, by name. Loading the model is where the wait before the prompt belongs."""
    return {
        "total_duration": took.total_ns,
        "load_duration": took.queue_ns,
        "prompt_eval_duration": took.prompt_ns,
        "eval_duration": took.output_ns,
    }


def error_body(status: int, message: str, type: str, code: str | None = None, param: str | None = None) -> bytes:  # noqa: A002
    """The body of an error response: Ollama has only words for it."""
    return _json({"error": message})


def _head(model: str, created: int) -> dict[str, Any]:
    return {"model": model, "created_at": datetime.fromtimestamp(created, UTC).isoformat()}


def _counts(usage: Usage) -> dict[str, int]:
    counts = {"prompt_eval_count": usage.input_tokens, "eval_count": usage.output_tokens}
    return {name: count for name, count in counts.items() if count is not None}
