"""Demands of a request on its reply, beside the length: tools, structured output, stop sequences,
log-probabilities.

Each API format has its own fields for them, and these do not contradict each other, so one reader
serves all formats. Fields of an unknown form are ignored: the mock of a provider is no judge of
requests.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import WHOLE_OPERATIONS
from splitsecond.core.validation import plain_value
from splitsecond.core.wire.responses.tools import function_name, functions
from splitsecond.simulator.parsing import ServerRequest

_SPECIAL = frozenset(
    (
        "tools", "response_format", "output_config", "output_format", "text", "format", "stop",
        "stop_sequences",
        "generationConfig", "generation_config", "options", "logprobs", "top_logprobs", "include",
    )
)  # fmt: skip
_CHOICES = ("tool_choice", "toolConfig", "tool_config")
_CONVERSATIONS = ("input", "contents", "messages", "prompt")
MAX_TOP_LOGPROBS = 20
_SCHEMAS = ("parameters", "parametersJsonSchema", "parameters_json_schema")
Fields = Mapping[str, Any]


class OfferedTool(Struct, frozen=True):
    """A function that the request offers, and the JSON schema of its arguments.

    A tool in a namespace has the name ``NAMESPACE__NAME``. The text of a custom tool is its
    argument ``input``.
    """

    name: str
    schema: Any


class Wants(Struct, frozen=True, kw_only=True):
    """Demands of a request on its reply.

    `tools`: the functions that may be called; none if the request forbids calls. `schema`: the JSON
    schema of structured output, `True` for any object, None for text. `top_logprobs`: how many
    alternatives to report for each token; None: no log-probabilities.
    """

    tools: tuple[OfferedTool, ...] = ()
    schema: Any = None
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None


class ConversationEnd(Struct, frozen=True, kw_only=True):
    """The end of a conversation.

    `user_text`: the text of the last message of the user. `results`: the names of the tools whose
    results end the conversation ("" for one whose call is not in it).
    """

    user_text: str = ""
    results: tuple[str, ...] = ()


NOTHING = Wants()


def read_wants(request: ServerRequest) -> Wants:
    raw = request.fields
    if _SPECIAL.isdisjoint(raw):
        return NOTHING
    fields = {name: plain_value(raw[name]) for name in (*_SPECIAL, *_CHOICES) if name in raw}
    config = fields.get("generationConfig") or fields.get("generation_config")
    config = config if isinstance(config, dict) else {}
    return Wants(
        tools=() if _forbids_tools(fields) else tuple(_tools(fields.get("tools"))),
        schema=_output_schema(fields, config),
        stop=_stop(fields, config),
        top_logprobs=_top_logprobs(fields, config),
    )


def read_conversation(request: ServerRequest) -> ConversationEnd:
    if request.operation in WHOLE_OPERATIONS:
        return ConversationEnd(user_text=request.prompt_text)
    turns = plain_value(
        next((request.fields[name] for name in _CONVERSATIONS if name in request.fields), None)
    )
    if isinstance(turns, dict):  # Replicate's input
        turns = turns.get("prompt")
    if isinstance(turns, str):
        return ConversationEnd(user_text=turns)
    return _end_of(turns) if isinstance(turns, list) else ConversationEnd()


def _end_of(turns: list[Any]) -> ConversationEnd:
    called: dict[str, str] = {}
    user_text = ""
    results: list[str] = []
    for turn in turns:
        if isinstance(turn, str):  # an entry of a list of prompts
            user_text = turn
        if not isinstance(turn, dict):
            continue
        called |= dict(_calls(turn))
        answered = [name or called.get(call_id, "") for call_id, name in _results(turn)]
        results = [*results, *answered] if answered else []
        if turn.get("role", "user") == "user" and turn.get("type", "message") == "message":
            text = "\n".join(_texts(turn.get("content", turn.get("parts"))))
            user_text = text or user_text
    return ConversationEnd(user_text=user_text, results=tuple(results))


def _forbids_tools(fields: Fields) -> bool:
    match fields.get("tool_choice"), fields.get("toolConfig", fields.get("tool_config")):
        case ("none" | "NONE" | {"type": "none"}, _) | (
            _,
            {"functionCallingConfig": {"mode": "NONE"}},
        ):
            return True
    return False


def _tools(tools: Any) -> Iterator[OfferedTool]:
    for tool in tools if isinstance(tools, list) else ():
        match tool:
            case {"functionDeclarations": [*declared]} | {"function_declarations": [*declared]}:
                yield from _tools([{"function": each} for each in declared])
            case {"function": {"name": str(name)} as function}:
                yield OfferedTool(
                    name,
                    next(
                        (function[key] for key in _SCHEMAS if function.get(key) is not None), None
                    ),
                )
            case {"type": "function" | "custom" | "namespace", "name": str()}:
                with contextlib.suppress(CallerFault):
                    yield from _tools([function for function, _ in functions(tool, "tools")])
            case {"name": str(name), "input_schema": schema}:
                yield OfferedTool(name, schema)


def _output_schema(fields: Fields, config: Fields) -> Any:
    for candidate in (
        fields.get("response_format"),
        fields.get("output_format"),
        _inside(fields.get("text"), "format"),
        _inside(fields.get("output_config"), "format"),
    ):
        match candidate:
            case {"type": "json_schema", "json_schema": {"schema": schema}} | {
                "type": "json_schema",
                "schema": schema,
            }:
                return schema
            case {"type": "json_object", "schema": schema} | {
                "type": "json_object",
                "json_schema": schema,
            }:
                return schema
            case {"type": "json_object" | "json_schema"}:
                return True
    match fields.get("format"):
        case "json":
            return True
        case dict(schema):
            return schema
    names = ("responseJsonSchema", "response_json_schema", "responseSchema", "response_schema")
    candidate = next((config[name] for name in names if config.get(name) is not None), None)
    kind = config.get("responseMimeType", config.get("response_mime_type"))
    if candidate is not None:
        return candidate
    return True if kind == "application/json" else None


def _inside(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _stop(fields: Fields, config: Fields) -> tuple[str, ...]:
    choices = (
        fields.get("stop"),
        fields.get("stop_sequences"),
        config.get("stopSequences", config.get("stop_sequences")),
        _inside(fields.get("options"), "stop"),
    )
    sequences = next((choice for choice in choices if choice), ())
    return tuple(
        each
        for each in ([sequences] if isinstance(sequences, str) else sequences)
        if isinstance(each, str) and each
    )


def _top_logprobs(fields: Fields, config: Fields) -> int | None:
    top = fields.get("top_logprobs")
    of_gemini = config.get("responseLogprobs", config.get("response_logprobs"))
    match fields.get("logprobs"), of_gemini, fields.get("include"):
        case True, _, _:
            count = top or 0
        case int(number), _, _ if not isinstance(number, bool):  # the field of a completion
            count = number
        case _, True, _:
            count = config.get("logprobs") or 0
        case _, _, [*included] if "message.output_text.logprobs" in included:
            count = top or 0
        case _:
            return None
    return min(count, MAX_TOP_LOGPROBS) if isinstance(count, int) and count >= 0 else None


def _calls(turn: Fields) -> Iterator[tuple[str, str]]:
    for part in _parts(turn):
        match part:
            case {
                "type": "function_call" | "custom_tool_call",
                "call_id": str(call_id),
                "name": str(name),
            }:
                yield call_id, function_name(name, part.get("namespace"))
            case {"type": "tool_use", "id": str(call_id), "name": str(name)}:
                yield call_id, name
            case {"id": str(call_id), "function": {"name": str(name)}}:
                yield call_id, name


def _results(turn: Fields) -> Iterator[tuple[str, str]]:
    if turn.get("role") == "tool":
        yield (
            str(turn.get("tool_call_id") or ""),
            str(turn.get("tool_name") or turn.get("name") or ""),
        )
        return
    for part in _parts(turn):
        match part:
            case {
                "type": "function_call_output" | "custom_tool_call_output",
                "call_id": str(call_id),
            }:
                yield call_id, ""
            case {"type": "tool_result", "tool_use_id": str(call_id)}:
                yield call_id, ""
            case {"functionResponse": {"name": str(name)}} | {
                "function_response": {"name": str(name)}
            }:
                yield "", name


def _parts(turn: Fields) -> Iterator[Any]:
    yield turn
    for name in ("content", "parts", "tool_calls"):
        parts = turn.get(name)
        yield from parts if isinstance(parts, list) else ()


def _texts(content: Any) -> Iterator[str]:
    for part in content if isinstance(content, list) else (content,):
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]
