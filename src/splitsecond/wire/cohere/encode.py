"""The client role, writing: a call in OpenAI's form to a request for ``/v2/chat``.

Many fields are the same in both, others have another name. A tool choice that names a tool does not exist: only that
tool is offered, and a call required. Strictness is one word for all tools. Every field that is not OpenAI's goes
through (``documents``, ``thinking``, ``safety_mode``, ``citation_options``), and wins over what was made of OpenAI's.
"""

from typing import Any

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.service import Call
from splitsecond.wire.chat_form import Message, ToolCall, chat_fields, chat_messages, looked_up, output_limit
from splitsecond.wire.dialect import STREAM_HEADERS, WHOLE_HEADERS, Encoded, Quirks
from splitsecond.wire.thinking import BUDGETS, Thinking, wished
from splitsecond.wire.translation import not_translatable, short

_RENAMED = {"top_p": "p", "top_k": "k"}
_TOOL_CHOICES = {"auto": None, "none": "NONE", "required": "REQUIRED", "NONE": "NONE", "REQUIRED": "REQUIRED"}
_NO_PARAMETERS = {"type": "object", "properties": {}}


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    """`call` as a request to the model that Cohere calls `model`. Of `quirks`, `stream_whole` and `thinking` matter.

    Raises `CallerFault`: "not_translatable" names the field that Cohere has not.
    """
    fields = chat_fields(call, "Cohere")
    streamed = quirks.streamed(call)
    body: dict[str, Any] = {"model": model, "stream": streamed}
    messages = chat_messages(fields.pop("messages", []), "Cohere")
    body["messages"] = [_message(message, f"messages[{number}]") for number, message in enumerate(messages)]
    if (limit := output_limit(fields)) is not None:
        body["max_tokens"] = limit
    for name, own in _RENAMED.items():
        if name in fields:
            body[own] = fields.pop(name)
    if (stop := fields.pop("stop", None)) is not None:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    _narrow(fields)
    if tools := fields.pop("tools", None):
        body |= _tools(tools)
    hint = "Possible here: auto, none, required, and the name of one of the tools."
    if (choice := looked_up(fields, "tool_choice", _TOOL_CHOICES, "Cohere", hint)) is not None:
        body["tool_choice"] = choice
    if (wanted := fields.pop("response_format", None)) is not None:
        body["response_format"] = _response_format(wanted)
    wish = wished(call, fields, model, quirks.thinking, own="thinking")
    if wish is not None and wish.said:
        body["thinking"] = _thinking(wish)
    headers = STREAM_HEADERS if streamed else WHOLE_HEADERS
    return Encoded("/chat", headers, msgspec.json.encode(body | fields), streamed)


def _thinking(wish: Thinking) -> dict[str, Any]:
    """``thinking``: not at all, up to a budget, or, for what is as much as most give, without one."""
    if wish.off:
        return {"type": "disabled"}
    tokens = wish.tokens
    few = tokens is not None and tokens < BUDGETS["high"]
    return {"type": "enabled", "token_budget": tokens} if few else {"type": "enabled"}


def _message(message: Message, where: str) -> dict[str, Any]:
    """A message as Cohere has it. What was thought before a tool call is its plan, all other thoughts a block."""
    fields: dict[str, Any] = {"role": message.role}
    content: Any = message.content or message.refusal or ""
    if isinstance(content, list):
        content = [_block(part, f"{where}.content[{number}]") for number, part in enumerate(content)]
    if message.thought and not message.tool_calls:
        said = [{"type": "text", "text": content}] if isinstance(content, str) else content
        content = [{"type": "thinking", "thinking": message.thought}, *said]
    if message.tool_calls:
        fields["tool_calls"] = [_call(call, where) for call in message.tool_calls]
        if message.thought:
            fields["tool_plan"] = message.thought
    if content or not message.tool_calls:
        fields["content"] = content
    if message.role == "tool":
        if not message.tool_call_id:
            raise CallerFault(f"{where}.tool_call_id is missing")
        fields["tool_call_id"] = message.tool_call_id
    return fields | message.native


def _block(part: dict[str, Any], place: str) -> dict[str, Any]:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": str(url)}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "image_url", "image_url": {"url": str()}} | {"type": "document" | "thinking"}:
            return part
        case {"type": "text" | "refusal" | "image_url" as kind}:
            raise CallerFault(f"{place} is not a part of type {kind!r} as OpenAI defines it")
    raise not_translatable(f"{place}.type {part.get('type')!r}", "Cohere")


def _call(call: ToolCall, where: str) -> dict[str, Any]:
    if call.function is None:
        raise not_translatable(f"{where}.tool_calls of type {call.type!r}", "Cohere")
    function = {"name": call.function.name, "arguments": call.function.arguments or "{}"}
    return {"id": call.id, "type": "function", "function": function}


def _narrow(fields: dict[str, Any]) -> None:
    """Where the choice names one of the tools: offers it alone, and requires a call."""
    match fields:
        case {"tool_choice": {"type": "function", "function": {"name": str(name)}}, "tools": [*tools]}:
            if named := [tool for tool in tools if _is_named(tool, name)]:
                fields["tools"], fields["tool_choice"] = named, "required"


def _is_named(tool: Any, name: str) -> bool:
    match tool:
        case {"function": {"name": str(own)}}:
            return own == name
    return False


def _tools(tools: Any) -> dict[str, Any]:
    """``tools``, and ``strict_tools`` where they are to be."""
    translated: list[dict[str, Any]] = []
    strict: set[bool] = set()
    for tool in tools if isinstance(tools, list) else [tools]:
        match tool:
            case {"type": "function", "function": {"name": str(), **rest} as function}:
                strict.add(bool(rest.get("strict")))
                kept = {name: value for name, value in function.items() if name != "strict" and value is not None}
                translated.append({"type": "function", "function": {"parameters": _NO_PARAMETERS, **kept}})
            case _:
                raise not_translatable(f"the tool {short(tool)}", "Cohere")
    if len(strict) > 1:
        raise not_translatable("strict for some tools and not for others", "Cohere")
    return {"tools": translated, "strict_tools": True} if True in strict else {"tools": translated}


def _response_format(wanted: Any) -> dict[str, Any]:
    match wanted:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return {"type": "json_object", "json_schema": schema}
        case {"type": "text" | "json_object"}:
            return dict(wanted)
    raise not_translatable(f"response_format {short(wanted)}", "Cohere")
