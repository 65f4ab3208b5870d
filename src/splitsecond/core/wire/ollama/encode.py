"""Client role: a call in the common chat form as a request for ``/api/chat``.

Ollama has no tool choice: for "none" the tools are left out, and "auto" is its default. A call that
must be of one tool is requested as an answer in the form of the tool's arguments, which the decoder
reads as the call (`as_tool`); others are refused. Ollama's own fields (``options``, ``think``,
``keep_alive``, ``format``) pass unchanged and override a translated one.

A message is one string of text, with images in base64 beside it. A tool's result names the function
that it answers, so the call must be among the messages, unless the result has a name itself.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from splitsecond.core.service import Call
from splitsecond.core.wire.api_format import WHOLE_HEADERS, Encoded, Quirks
from splitsecond.core.wire.chat_form import (
    Message,
    chat_fields,
    chat_messages,
    function_answered,
    functions_named,
    media_of,
    output_format,
    read_part,
    stop_list,
    take_output_limit,
)
from splitsecond.core.wire.reasoning import ReasoningRequest, requested
from splitsecond.core.wire.translation import (
    Fields,
    leave_out_unknown,
    left_out,
    not_translatable,
    object_field,
    short,
)

_HEADERS = (("content-type", "application/json"), ("accept", "application/x-ndjson"))

_OPTIONS = (
    "temperature",
    "top_p",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "top_k",
    "min_p",
)
"""Fields with the same name in ``options`` as in OpenAI's format or in common use."""

_OWN = ("think", "keep_alive", "format", "truncate", "shift")
_OF_MESSAGES = ("images", "thinking", "tool_name")
_EFFORTS = ("none", "low", "medium", "high")


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    fields = chat_fields(call, "Ollama")
    streamed = quirks.streamed(call)
    body: Fields = {"model": model, "stream": streamed}
    messages = chat_messages(call, fields.pop("messages", []), "Ollama", own=_OF_MESSAGES)
    body["messages"] = _messages(messages)
    choice, tools = fields.pop("tool_choice", "auto"), fields.pop("tools", None)
    kind, schema = output_format(fields, "Ollama")
    if kind != "text":
        body["format"] = "json" if kind == "json_object" else schema
    as_tool = ""
    if tools and choice == "auto":
        _check_tools(call, tools)
        body["tools"] = tools
    elif choice not in ("auto", "none"):
        if kind != "text":
            left_out(call, "response_format")
        tool = _only_tool(choice, tools)
        as_tool, body["format"] = tool["name"], tool.get("parameters") or {"type": "object"}
        instruction = (
            f"Answer with the arguments of a call of the function {as_tool}, as JSON. "
            f"{tool.get('description') or ''}"
        )
        body["messages"].append({"role": "system", "content": instruction.strip()})
    reasoning = requested(call, fields, model, quirks.thinking, own="think")
    if reasoning is not None and reasoning.is_set:
        body["think"] = _think(call, reasoning)
    if options := _options(fields):
        body["options"] = options
    headers = _HEADERS if streamed else WHOLE_HEADERS
    body |= quirks.native(call, fields, _OWN)
    return Encoded("/api/chat", headers, msgspec.json.encode(body), streamed, as_tool=as_tool)


def _check_tools(call: Call, tools: Any) -> None:
    """Raise `CallerFault` for a tool that is no function, which Ollama would ignore."""
    for tool in tools if isinstance(tools, list) else [tools]:
        match tool:
            case {"function": {"name": str()} as function}:
                leave_out_unknown(call, function, ("name", "description", "parameters"))
            case _:
                raise not_translatable(f"the tool {short(tool)}", "Ollama")


def _only_tool(choice: Any, tools: Any) -> Fields:
    """Return the function that `choice` requires. Raises `CallerFault` unless it is one."""
    match choice:
        case "required":
            functions = functions_named(tools)
        case {"type": "function", "function": {"name": str(name)}}:
            functions = functions_named(tools, name)
        case _:
            functions = []
    if len(functions) != 1:
        hint = "Possible here: auto, none, the name of a tool, and required with one tool."
        raise not_translatable(f"tool_choice {short(choice)}", "Ollama", hint)
    function: Fields = functions[0]["function"]
    return function


def _think(call: Call, reasoning: ReasoningRequest) -> bool | str:
    """Return ``think``: whether to reason, or a level, which most models treat as on."""
    if reasoning.off:
        return False
    return True if reasoning.tokens is None else reasoning.level(call, _EFFORTS)


def _options(fields: Fields) -> Fields:
    options = {name: fields.pop(name) for name in _OPTIONS if name in fields}
    if (limit := take_output_limit(fields)) is not None:
        options["num_predict"] = limit
    if (stop := stop_list(fields)) is not None:
        options["stop"] = stop
    return options | object_field("options", fields.pop("options", {}))


def _messages(messages: Sequence[Message]) -> list[Fields]:
    names: dict[str, str] = {}
    translated = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        text, images = _content(message, where)
        fields: Fields = {"role": message.role, "content": text}
        if images:
            fields["images"] = images
        if message.reasoning_text:
            fields["thinking"] = message.reasoning_text
        if message.tool_calls:
            fields["tool_calls"] = [
                {
                    "function": {
                        "name": call.function.name,
                        "arguments": call.arguments(f"{where}.tool_calls[{place}]"),
                    }
                }
                for place, call in enumerate(message.tool_calls)
            ]
            names |= {call.id: call.function.name for call in message.tool_calls}
        if message.role == "tool" and "tool_name" not in message.native:
            fields["tool_name"] = message.name or function_answered(message, where, names, "Ollama")
        translated.append(fields | message.native)
    return translated


def _content(message: Message, where: str) -> tuple[str, list[str]]:
    content = message.content
    if isinstance(content, str) or content is None:
        return content or message.refusal or "", []
    texts: list[str] = []
    images: list[str] = []
    for number, part in enumerate(content):
        place = f"{where}.content[{number}]"
        match read_part(part, place):
            case "text", text:
                texts.append(text)
            case "image", url:
                if not url.startswith("data:"):
                    hint = "Send the image as a data URL in base64."
                    raise not_translatable(f"{place}.image_url, a link,", "Ollama", hint)
                images.append(media_of(url, f"{place}.image_url")[1])
            case _:
                raise not_translatable(f"{place}.type {part.get('type')!r}", "Ollama")
    return "\n".join(texts), images
