"""Client role: a call in the common chat form as a request for ``/v2/chat``.

Cohere cannot force the call of one tool: only that tool is offered, and a call is required.
Strictness applies to all tools or none. Fields of Cohere's own (``documents``, ``thinking``,
``safety_mode``, ``citation_options``) pass unchanged and override a translated one.
"""

from typing import Any

from splitsecond.core.service import Call
from splitsecond.core.wire import chat_form
from splitsecond.core.wire.api_format import Encoded, Quirks, chat_request
from splitsecond.core.wire.reasoning import BUDGETS, ReasoningRequest, requested
from splitsecond.core.wire.server_answer import function_call
from splitsecond.core.wire.translation import Fields, not_translatable, short

_OWN = (
    "temperature", "seed", "frequency_penalty", "presence_penalty", "p", "k", "stop_sequences",
    "documents", "thinking",
    "citation_options", "safety_mode", "strict_tools", "priority", "raw_prompting",
)  # fmt: skip
_OF_MESSAGES = ("tool_plan", "citations", "detail")
_RENAMED = {"top_p": "p", "top_k": "k"}
_TOOL_CHOICES = {
    "auto": None,
    "none": "NONE",
    "required": "REQUIRED",
    "NONE": "NONE",
    "REQUIRED": "REQUIRED",
}
_NO_PARAMETERS = {"type": "object", "properties": {}}


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    fields = chat_form.chat_fields(call, "Cohere")
    streamed = quirks.streamed(call)
    body: Fields = {"model": model, "stream": streamed}
    messages = chat_form.chat_messages(call, fields.pop("messages", []), "Cohere", own=_OF_MESSAGES)
    body["messages"] = [
        _message(message, f"messages[{number}]") for number, message in enumerate(messages)
    ]
    if (limit := chat_form.take_output_limit(fields)) is not None:
        body["max_tokens"] = limit
    for name, own in _RENAMED.items():
        if name in fields:
            body[own] = fields.pop(name)
    if (stop := chat_form.stop_list(fields)) is not None:
        body["stop_sequences"] = stop
    _offer_named_tool(fields)
    if tools := fields.pop("tools", None):
        body |= _tools(tools)
    hint = "Possible here: auto, none, required, and the name of one of the tools."
    if (
        choice := chat_form.mapped_field(fields, "tool_choice", _TOOL_CHOICES, "Cohere", hint)
    ) is not None:
        body["tool_choice"] = choice
    if (form := fields.pop("response_format", None)) is not None:
        body["response_format"] = _response_format(form)
    reasoning = requested(call, fields, model, quirks.thinking, own="thinking")
    if reasoning is not None and reasoning.is_set:
        body["thinking"] = _thinking(reasoning)
    return chat_request("/chat", body | quirks.native(call, fields, _OWN), streamed)


def _thinking(reasoning: ReasoningRequest) -> Fields:
    """Return ``thinking``: disabled, limited by a budget, or, for large budgets, unlimited."""
    if reasoning.off:
        return {"type": "disabled"}
    tokens = reasoning.tokens
    few = tokens is not None and tokens < BUDGETS["high"]
    return {"type": "enabled", "token_budget": tokens} if few else {"type": "enabled"}


def _message(message: chat_form.Message, where: str) -> Fields:
    """Return a message in Cohere's form. Reasoning before a tool call is its plan, else a block."""
    fields: Fields = {"role": message.role}
    content: Any = message.content or message.refusal or ""
    if isinstance(content, list):
        content = [
            _block(part, f"{where}.content[{number}]") for number, part in enumerate(content)
        ]
    if message.reasoning_text and not message.tool_calls:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        content = [{"type": "thinking", "thinking": message.reasoning_text}, *blocks]
    if message.tool_calls:
        fields["tool_calls"] = [
            function_call(call.id, call.function.name, call.arguments_text or "{}")
            for call in message.tool_calls
        ]
        if message.reasoning_text:
            fields["tool_plan"] = message.reasoning_text
    if content or not message.tool_calls:
        fields["content"] = content
    if message.role == "tool":
        fields["tool_call_id"] = chat_form.call_answered(message, where)
    return fields | message.native


def _block(part: Fields, place: str) -> Fields:
    kind, value = chat_form.read_part(part, place)
    if kind == "text":
        return {"type": "text", "text": value}
    if kind == "image":
        chat_form.refuse_type(
            chat_form.media_type(value), chat_form.PICTURE_TYPES, f"{place}.image_url", "Cohere"
        )
        return (
            {"type": "image_url", "image_url": {"url": value}}
            if isinstance(part["image_url"], str)
            else part
        )
    if part.get("type") in ("document", "thinking"):
        return part
    raise not_translatable(f"{place}.type {part.get('type')!r}", "Cohere")


def _offer_named_tool(fields: Fields) -> None:
    """Replace a tool choice that names one of the tools: offer it alone, and require a call."""
    match fields:
        case {
            "tool_choice": {"type": "function", "function": {"name": str(name)}},
            "tools": [*tools],
        }:
            if matches := chat_form.functions_named(tools, name):
                fields["tools"], fields["tool_choice"] = matches, "required"


def _tools(tools: Any) -> Fields:
    translated: list[Fields] = []
    strict: set[bool] = set()
    for tool in tools if isinstance(tools, list) else [tools]:
        match tool:
            case {"type": "function", "function": {"name": str(), **rest} as function}:
                strict.add(bool(rest.get("strict")))
                fields = {
                    name: value
                    for name, value in function.items()
                    if name != "strict" and value is not None
                }
                translated.append(
                    {"type": "function", "function": {"parameters": _NO_PARAMETERS, **fields}}
                )
            case _:
                raise not_translatable(f"the tool {short(tool)}", "Cohere")
    if len(strict) > 1:
        raise not_translatable("strict for some tools and not for others", "Cohere")
    return {"tools": translated, "strict_tools": True} if True in strict else {"tools": translated}


def _response_format(form: Any) -> Fields:
    match form:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return {"type": "json_object", "json_schema": schema}
        case {"type": "text" | "json_object"}:
            return dict(form)
    raise not_translatable(f"response_format {short(form)}", "Cohere")
