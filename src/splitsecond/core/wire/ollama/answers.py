"""Server role: answers of Ollama as bytes, one JSON object per line.

Ollama's Python library ends a line wherever Python does, also within a text at U+2028, so those
characters are escaped.

Finish reason, counts and durations share the last line, so `finish` and `usage` only store them; a
tool call is sent whole, so its fragments wait for its end.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from splitsecond.core.events import TokenKind, Usage
from splitsecond.core.service import Operation
from splitsecond.core.wire.api_format import AnswerWriter, ServerAnswer, ServerTimes, TimesForm
from splitsecond.core.wire.server_answer import SLOT, around_slots, call_arguments, known, to_json
from splitsecond.core.wire.translation import Fields

_MESSAGES: dict[TokenKind, dict[str, str]] = {
    "text": {"content": SLOT},
    "reasoning": {"content": "", "thinking": SLOT},
    "refusal": {"content": SLOT},
}
_FINISH = {"tool_calls": "stop", "content_filter": "stop"}
"""OpenAI's finish reasons that Ollama lacks; "stop" and "length" are the same in both."""


SERVED_VERSION = "0.12.0"
"""The version of Ollama whose API is served. Some clients refuse servers before 0.6.4."""
_FAMILY = "splitsecond"


_LINE_ENDS = tuple((end.encode(), rb"\u%04x" % ord(end)) for end in "\x85\u2028\u2029")
"""What ends a line in Python, in UTF-8 and as JSON escapes it; JSON escapes the others always."""


def _in_a_line(json: bytes) -> bytes:
    if not json.isascii():
        for end, escaped in _LINE_ENDS:
            json = json.replace(end, escaped)
    return json


class StreamWriter(AnswerWriter):
    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:
        created_at = datetime.fromtimestamp(created, UTC).isoformat()
        self._head: Fields = {"model": model, "created_at": created_at}
        self._around = {
            kind: around_slots(self._line(message)) for kind, message in _MESSAGES.items()
        }
        self._call: str | None = None
        self._call_id = ""
        self._calls = 0
        self._arguments: list[str] = []
        self._last: Fields = {}
        self._durations: dict[str, int] = {}

    def report_times(self, times: ServerTimes, form: TimesForm | None) -> None:
        """Report the times as Ollama's durations; waiting counts as loading the model."""
        self._durations = {
            "total_duration": times.total_ns,
            "load_duration": times.queue_ns,
            "prompt_eval_duration": times.prompt_ns,
            "eval_duration": times.output_ns,
        }

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        if kind == "tool":
            self._arguments.append(text)
            return b""
        return self._end_call() + _in_a_line(to_json(text)).join(self._around[kind])

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        ended = self._end_call()
        self._call, self._call_id = name, call_id
        return ended

    def finish(self, reason: str, index: int = 0) -> bytes:
        self._last["done_reason"] = _FINISH.get(reason, reason)
        return self._end_call()

    def usage(self, usage: Usage) -> bytes:
        self._last |= counts(usage)
        return b""

    def done(self) -> bytes:
        last = {"done": True, **self._last, **self._durations}
        return to_json({**self._head, **self._content({"content": ""}), **last}) + b"\n"

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:
        return _in_a_line(to_json({"error": message})) + b"\n"

    def _end_call(self) -> bytes:
        if self._call is None:
            return b""
        arguments = call_arguments(self._call, "".join(self._arguments))
        function = {"name": self._call, "arguments": arguments}
        # Ollama sends no index here, but LiteLLM takes all calls without one for parts of the
        # first.
        call = {"id": self._call_id, "index": self._calls, "function": function}
        self._call = None
        self._calls += 1
        self._arguments.clear()
        return self._line({"content": "", "tool_calls": [call]})

    def _line(self, message: Fields) -> bytes:
        line = {**self._head, **self._content(message), "done": False}
        return _in_a_line(to_json(line)) + b"\n"

    def _content(self, message: Fields) -> Fields:
        return {"message": {"role": "assistant", **message}}

    def whole(self, answers: Sequence[ServerAnswer], usage: Usage) -> bytes:
        answer = answers[0]  # there is one choice: others are left out
        message: Fields = {"content": answer.text or answer.refusal}
        if answer.reasoning:
            message["thinking"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "function": {
                        "name": call.name,
                        "arguments": call_arguments(call.name, call.arguments),
                    },
                }
                for call in answer.calls
            ]
        reason = _FINISH.get(answer.finish, answer.finish)
        last = {"done": True, "done_reason": reason, **counts(usage), **self._durations}
        return to_json({**self._head, **self._content(message), **last})


class GenerateWriter(StreamWriter):
    def _content(self, message: Fields) -> Fields:
        thinking = {"thinking": message["thinking"]} if "thinking" in message else {}
        return {"response": message["content"], **thinking}


def error_body(status: int, message: str, *_others: object) -> bytes:
    return to_json({"error": message})


def model_list(names: Sequence[str]) -> bytes:
    return to_json(
        {
            "models": [
                {"name": name, "model": name, "size": 0, "digest": "", "details": {}}
                for name in names
            ]
        }
    )


def model_details(name: str, context_tokens: int | None) -> bytes:
    """Return the description of one model, for its abilities and its context length in tokens."""
    about: Fields = {"general.architecture": _FAMILY, "general.basename": name}
    if context_tokens is not None:
        about[f"{_FAMILY}.context_length"] = context_tokens
    details = {
        "format": "",
        "family": _FAMILY,
        "families": [_FAMILY],
        "parameter_size": "",
        "quantization_level": "",
    }
    abilities = ["completion", "tools", "vision"]
    return to_json(
        {
            "details": details,
            "model_info": about,
            "capabilities": abilities,
            "template": "",
            "license": "",
        }
    )


def counts(usage: Usage) -> dict[str, int]:
    return known(prompt_eval_count=usage.input_tokens, eval_count=usage.output_tokens)
