"""Server role: a request for ``/responses`` in the common chat form.

A chat has no items: consecutive reasoning, text and tool calls of the assistant become one message.
Reasoning passes as text, for targets that take it back. Custom tools and namespaces become
functions (`tools`).

What a provider would have to remember or run itself is refused by name: earlier answers by id, its
own tools, files that it holds. What is left out does not change the answer, or is unknown here, and
the call's notes name it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Notes
from splitsecond.core.wire import reasoning
from splitsecond.core.wire.chat_form import (
    assistant_message,
    plain_content,
    schema_format,
    tool_message,
)
from splitsecond.core.wire.responses.tools import (
    ADDITIONAL_TOOLS,
    INPUT,
    all_tools,
    function_name,
    functions,
)
from splitsecond.core.wire.server_answer import function_call
from splitsecond.core.wire.tool_calls import arguments_text
from splitsecond.core.wire.translation import (
    Fields,
    check_word,
    leave_out,
    leave_out_unknown,
    left_out,
    not_translatable,
    object_field,
    plain_fields,
    refuse,
    shared_fields,
    short,
    take_tools,
)

_LEFT_OUT: Mapping[str, tuple[Any, ...]] = {
    "store": (False,),
    "metadata": ({},),
    "include": ([],),
    "truncation": ("disabled",),
    "max_tool_calls": (),
    "client_metadata": (),
}
"""Fields that do not change the answer, and values that are left out without a report."""
_REFUSED = ("conversation", "prompt", "background", "top_logprobs", "context_management")
_SHARED = (
    "temperature", "top_p", "user", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "service_tier",
)  # fmt: skip
_CONTINUES = "previous_response_id"
_ITEMS = (
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
)
_HOLDS_CONTENT = (
    "item_reference", "compaction", "compaction_summary", "computer_call", "computer_call_output",
    "local_shell_call",
    "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call",
    "apply_patch_call_output",
)  # fmt: skip
"""Types of items that hold a part of the conversation in a form that no chat has. They are refused;
other unknown items are left out."""
_OF_ITEMS = frozenset((
    "type", "id", "status", "role", "content", "summary", "call_id", "name", "namespace",
    "arguments", "input",
    "output",
))  # fmt: skip
_OF_PARTS = frozenset((
    "type", "text", "refusal", "image_url", "detail", "filename", "file_data", "input_audio",
    "annotations", "logprobs",
))  # fmt: skip
_OF_TOOLS = frozenset(("type", "name", "description", "parameters", "strict", "format", "tools"))
"""Fields of items, parts and tools that have an equivalent, or only describe an answer."""
_ROLES = ("user", "assistant", "system", "developer")


def to_chat(call: Call) -> Call:
    fields = plain_fields(call, "model", "stream", "stream_options")
    for name, usual in _LEFT_OUT.items():
        leave_out(call, fields, name, usual)
    _refuse_continuation(fields.pop(_CONTINUES, None))
    refuse(fields, dict.fromkeys(_REFUSED, ("", 0, [], {})))
    fields["tools"] = all_tools(take_tools(fields), fields.get("input"))
    body: Fields = {
        "messages": _chat(
            call, fields.pop("instructions", None), fields.pop("input", None)
        ).messages
    }
    if (limit := fields.pop("max_output_tokens", None)) is not None:
        body["max_completion_tokens"] = limit
    body |= _tools(call, fields)
    body |= _text(call, fields)
    if (request := _thinking(call, _set_fields("reasoning", fields))) is not None:
        body[reasoning.FIELD] = request
    return msgspec.structs.replace(
        call, body=body | shared_fields(call, fields, _SHARED), api_format="openai"
    )


def _refuse_continuation(previous: Any) -> None:
    """Raise `CallerFault` if a request continues an earlier answer; after its code clients send
    all."""
    if previous not in (None, ""):
        hint = "Send the whole conversation as input; the gateway stores no answers."
        fault = not_translatable(f"{_CONTINUES} {short(previous)}", hint=hint)
        fault.code, fault.param = "previous_response_not_found", _CONTINUES
        raise fault


def sources(call: Call) -> list[int]:
    own = msgspec.structs.replace(call, notes=Notes())
    fields = plain_fields(own)
    return _chat(own, fields.get("instructions"), fields.get("input")).sources


class _Assistant(msgspec.Struct):
    """A message of the assistant that is still growing."""

    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[Fields] = []


class _Chat(msgspec.Struct):
    """The messages so far. `sources`: the first item of each; `number`: of the next item."""

    call: Call
    sources: list[int] = []
    number: int = -1
    _messages: list[Fields | _Assistant] = []
    _open: _Assistant | None = None  # the assistant's message that is still growing

    @property
    def messages(self) -> list[Fields]:
        return [
            assistant_message(each.texts, each.reasoning, each.calls)
            if isinstance(each, _Assistant)
            else each
            for each in self._messages
        ]

    def assistant(self) -> _Assistant:
        if self._open is None:
            self._open = _Assistant()
            self._add(self._open)
        return self._open

    def add(self, message: Fields) -> None:
        self._open = None
        self._add(message)

    def _add(self, message: Fields | _Assistant) -> None:
        self._messages.append(message)
        self.sources.append(self.number)


def _chat(call: Call, instructions: Any, request_input: Any) -> _Chat:
    chat = _Chat(call)
    if instructions is not None:
        if not isinstance(instructions, str):
            raise CallerFault(f"instructions must be a text, got {short(instructions)}")
        chat.add({"role": "system", "content": instructions})
    if isinstance(request_input, str):
        chat.add({"role": "user", "content": request_input})
    elif isinstance(request_input, list) and request_input:
        for chat.number, item in enumerate(request_input):
            _item(item, f"input[{chat.number}]", chat)
    else:
        raise CallerFault("input must be a text, or a list of at least one item")
    return chat


def _leave_out(item: Fields, chat: _Chat) -> None:
    if item.get("type", "message") in (*_ITEMS, "reasoning"):
        leave_out_unknown(chat.call, item, _OF_ITEMS)
    for parts in (item.get("content"), item.get("output")):
        for part in filter(_is_object, parts if isinstance(parts, list) else ()):
            leave_out_unknown(chat.call, part, _OF_PARTS)


def _item(item: Any, where: str, chat: _Chat) -> None:
    if _is_object(item):
        _leave_out(item, chat)
    match item:
        case {"role": str(role), "content": str() | list() as content} if (
            item.get("type", "message") == "message"
        ):
            _message(role, content, where, chat)
        case {"type": "reasoning"}:
            _think(item, chat)
        case {
            "type": "function_call",
            "call_id": str(identity),
            "name": str(name),
            "arguments": str() | dict() as arguments,
        }:
            called = function_name(name, item.get("namespace"))
            chat.assistant().calls.append(
                function_call(identity, called, arguments_text(arguments))
            )
        case {
            "type": "custom_tool_call",
            "call_id": str(identity),
            "name": str(name),
            "input": str(text),
        }:
            called = function_name(name, item.get("namespace"))
            chat.assistant().calls.append(
                function_call(identity, called, msgspec.json.encode({INPUT: text}).decode())
            )
        case {
            "type": "function_call_output" | "custom_tool_call_output",
            "call_id": str(identity),
            "output": str() | list() as output,
        }:
            chat.add(tool_message(identity, _parts(output, f"{where}.output")))
        case {"type": str(kind)} if kind in _ITEMS:
            raise CallerFault(
                f"{where} is not an item of type {kind!r} as the Responses API defines it"
            )
        case {"type": str(kind)} if kind in _HOLDS_CONTENT:
            raise not_translatable(f"{where} of type {kind!r}")
        case {"type": str(kind)}:
            if kind != ADDITIONAL_TOOLS:
                left_out(chat.call, kind)
        case _:
            raise CallerFault(
                f"{where} must be an object with a type, or a role and content, got {short(item)}"
            )


def _message(role: str, content: str | list[Any], where: str, chat: _Chat) -> None:
    if role not in _ROLES:
        raise CallerFault(f"{where}.role is {role!r}: expected one of {', '.join(_ROLES)}")
    parts = _parts(content, f"{where}.content")
    if role != "assistant":
        role = "user" if role == "user" else "system"
        chat.add({"role": role, "content": plain_content(parts)})
    elif text := _texts(parts, where):
        chat.assistant().texts.append(text)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _think(item: Fields, chat: _Chat) -> None:
    sections = (item.get(name) for name in ("summary", "content"))
    parts = [part for each in sections if isinstance(each, list) for part in each]
    if text := "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict)):
        chat.assistant().reasoning.append(text)


def _parts(content: str | list[Any], where: str) -> list[Fields]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part, f"{where}[{number}]") for number, part in enumerate(content)]


def _part(part: Any, place: str) -> Fields:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url)}:
            details = (
                {"detail": detail}
                if isinstance(detail := part.get("detail"), str) and detail != "auto"
                else {}
            )
            return {"type": "image_url", "image_url": {"url": url, **details}}
        case {"type": "input_file", "file_data": str(data)}:
            return {
                "type": "file",
                "file": {"filename": part.get("filename") or "file", "file_data": data},
            }
        case {"type": "input_audio", "input_audio": dict(audio)}:
            return {"type": "input_audio", "input_audio": audio}
        case {"type": str(kind)}:
            hint = "Send the data itself." if kind in ("input_image", "input_file") else ""
            raise not_translatable(f"{place} of type {kind!r}, as it is,", hint=hint)
    raise CallerFault(f"{place} must be an object with a type, got {short(part)}")


def _texts(parts: list[Fields], where: str) -> str:
    if any(part["type"] != "text" for part in parts):
        raise not_translatable(f"{where}, an assistant's message that is not all text,")
    return "\n".join(part["text"] for part in parts)


def _tools(call: Call, fields: Fields) -> Fields:
    tools, choice = take_tools(fields), fields.pop("tool_choice", None)
    parallel = fields.pop("parallel_tool_calls", True)
    if not tools:
        return {}
    for tool in filter(_is_object, tools):
        inner = tool.get("tools")
        for each in (tool, *filter(_is_object, inner if isinstance(inner, list) else ())):
            leave_out_unknown(call, each, _OF_TOOLS)
    chat_tools = [
        each for number, tool in enumerate(tools) for each, _ in functions(tool, f"tools[{number}]")
    ]
    body: Fields = {"tools": list({each["function"]["name"]: each for each in chat_tools}.values())}
    if choice is not None:
        body["tool_choice"] = _tool_choice(choice)
    if not parallel:
        body["parallel_tool_calls"] = False
    return body


def _tool_choice(choice: Any) -> Any:
    match choice:
        case "auto" | "none" | "required":
            return choice
        case {"type": "function" | "custom", "name": str(name)}:
            return {
                "type": "function",
                "function": {"name": function_name(name, choice.get("namespace"))},
            }
        case {"type": "allowed_tools", "mode": str(mode), "tools": [*tools]}:
            allowed = {"mode": mode, "tools": [_tool_choice(tool) for tool in tools]}
            return {"type": "allowed_tools", "allowed_tools": allowed}
    raise not_translatable(f"tool_choice {short(choice)}")


def _thinking(call: Call, settings: Fields) -> reasoning.ReasoningRequest | None:
    effort, summary, older = (
        settings.pop(name, None) for name in ("effort", "summary", "generate_summary")
    )
    if effort is not None:
        check_word("reasoning.effort", effort, reasoning.EFFORTS)
    for name in list(settings):
        leave_out(call, settings, name)
    visible = True if summary or older else None
    if effort is None and visible is None:
        return None
    return reasoning.ReasoningRequest(name="reasoning", effort=effort or "", shown=visible)


def _text(call: Call, fields: Fields) -> Fields:
    settings = _set_fields("text", fields)
    leave_out_unknown(call, settings, ("format", "verbosity"))
    body: Fields = {}
    if (verbosity := settings.get("verbosity")) is not None:
        body["verbosity"] = verbosity
    match settings.get("format"):
        case None | {"type": "text"}:
            pass
        case {"type": "json_object"}:
            body["response_format"] = {"type": "json_object"}
        case {"type": "json_schema", "schema": dict(schema)} as form:
            others = {
                key: form[key] for key in ("description", "strict") if form.get(key) is not None
            }
            body["response_format"] = schema_format(schema, form.get("name") or "answer", **others)
        case other:
            raise not_translatable(f"text.format {short(other)}")
    return body


def _set_fields(name: str, fields: Fields) -> Fields:
    """Return the object in the field `name`, which is removed, without null values."""
    return {
        key: value
        for key, value in object_field(name, fields.pop(name, {})).items()
        if value is not None
    }
