"""Client role: a call in the common chat form as a request for ``/responses``.

Two fields have other defaults here: answers are stored, and the schemas of tools are strict; both
are set to what a chat has. Fields, tools and types of parts that only Responses has pass, and win
over the translation of a field of chat. Earlier reasoning is left out: the API accepts only its
own, by id.

A request in the client's own form may hold items of answers that other targets gave and the gateway
wrote as Responses. Their ids (made from the answer's own, which begins with "resp_") are unknown to
the provider. Such reasoning is left out and reported; other items pass without their id, which is
optional.
"""

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Raw

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.validation import read_json
from splitsecond.core.wire import chat_form
from splitsecond.core.wire.api_format import Encoded, Quirks, chat_request
from splitsecond.core.wire.reasoning import EFFORTS, ReasoningRequest, requested
from splitsecond.core.wire.translation import (
    Fields,
    leave_out,
    left_out,
    not_translatable,
    object_field,
    refuse,
    short,
)

_KNOWN = (
    "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier",
    "service_tier", "store", "user", "verbosity",
)  # fmt: skip
_OWN = (
    *(name for name in _KNOWN if name != "verbosity"), "temperature", "top_p", "background",
    "context_management",
    "conversation", "include", "input", "instructions", "max_output_tokens", "max_tool_calls",
    "previous_response_id",
    "prompt", "top_logprobs", "truncation",
)  # fmt: skip

_OF_MESSAGES = ("phase", "detail")


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    fields = chat_form.chat_fields(call, "Responses", known=_KNOWN)
    leave_out(call, fields, "seed")
    refuse(
        fields, {"stop": ([],), "presence_penalty": (0,), "frequency_penalty": (0,)}, "Responses"
    )
    streamed = quirks.streamed(call)
    body: Fields = {"model": model, "stream": streamed, "store": False}
    if "messages" in fields or "input" not in fields:
        messages = chat_form.chat_messages(
            call, fields.pop("messages", []), "Responses", own=_OF_MESSAGES, pictures=True
        )
        chat_form.leave_reasoning(call, messages)
        body["input"] = _items(messages)
    if (limit := chat_form.take_output_limit(fields)) is not None:
        body["max_output_tokens"] = limit
    if tools := fields.pop("tools", None):
        body["tools"] = [_tool(tool) for tool in tools] if isinstance(tools, list) else tools
    if (choice := fields.pop("tool_choice", None)) is not None:
        body["tool_choice"] = _tool_choice(choice)
    text = {"verbosity": fields.pop("verbosity")} if "verbosity" in fields else {}
    if (setting := fields.pop("response_format", None)) is not None:
        text["format"] = _format(setting)
    if text := text | object_field("text", fields.pop("text", {})):
        body["text"] = text
    setting = requested(call, fields, model, quirks.thinking, own="reasoning")
    if reasoning := (_reasoning(call, setting) if setting else {}) | object_field(
        "reasoning", fields.pop("reasoning", {})
    ):
        body["reasoning"] = reasoning
    return chat_request(
        "/responses", body | quirks.native(call, fields, _OWN) | quirks.extra_fields, streamed
    )


def pass_on(call: Call, model: str, quirks: Quirks) -> Encoded:
    """Encode `call`, whose body is in this format, for `model`: only items of other targets are
    changed."""
    streamed = quirks.streamed(call)
    body = {**call.body, "model": model, "stream": streamed, **quirks.extra_fields}
    if "input" in body:
        body["input"] = _without_foreign_items(call)
    if not streamed:
        body.pop("stream_options", None)  # rejected without a stream
    return chat_request("/responses", body, streamed)


def count(call: Call, model: str) -> Encoded:
    return chat_request("/responses/input_tokens", {**call.body, "model": model}, False)


def _reasoning(call: Call, reasoning: ReasoningRequest) -> Fields:
    """Return ``reasoning``. The answer holds a summary of it only on request."""
    fields = {"effort": reasoning.level(call, EFFORTS)} if reasoning.is_set else {}
    return {**fields, "summary": "auto"} if reasoning.shown else fields


def _tool(tool: Any) -> Fields:
    match tool:
        case {"type": "function", "function": {"name": str()} as function}:
            fields = {name: value for name, value in function.items() if value is not None}
            return {"type": "function", "parameters": None, "strict": False, **fields}
        case {"type": "custom", "custom": {"name": str()} as custom}:
            return {"type": "custom", **custom}
        case {"type": str(), **_rest}:
            return dict(tool)
    raise CallerFault(f"a tool must be an object with a type, got {short(tool)}")


def _tool_choice(choice: Any) -> Any:
    match choice:
        case "auto" | "none" | "required":
            return choice
        case {"type": "function", "function": {"name": str(name)}}:
            return {"type": "function", "name": name}
        case {"type": "custom", "custom": {"name": str(name)}}:
            return {"type": "custom", "name": name}
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*tools]}}:
            return {
                "type": "allowed_tools",
                "mode": mode,
                "tools": [_tool_choice(tool) for tool in tools],
            }
        case {"type": str()}:
            return choice
    raise not_translatable(f"tool_choice {short(choice)}", "Responses")


def _format(form: Any) -> Fields:
    match form:
        case {"type": "text" | "json_object"}:
            return dict(form)
        case {"type": "json_schema", "json_schema": {"schema": dict()} as json_schema}:
            return {"type": "json_schema", "name": "answer", **json_schema}
    raise not_translatable(f"response_format {short(form)}", "Responses")


def _items(messages: Sequence[chat_form.Message]) -> list[Fields]:
    items: list[Fields] = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        content = _content(message, where)
        if message.role == "tool":
            identity = chat_form.call_answered(message, where)
            items.append(
                {"type": "function_call_output", "call_id": identity, "output": content or ""}
            )
            continue
        if content:
            items.append({"role": message.role, "content": content, **message.native})
        for call in message.tool_calls or ():
            function = {"name": call.function.name, "arguments": call.arguments_text or "{}"}
            items.append({"type": "function_call", "call_id": call.id, **function})
    return items


def _content(message: chat_form.Message, where: str) -> str | list[Fields]:
    content = message.content or message.refusal or ""
    if isinstance(content, str):
        return content
    text = "output_text" if message.role == "assistant" else "input_text"
    return [_part(part, text, f"{where}.content[{number}]") for number, part in enumerate(content)]


def _part(part: Fields, text: str, place: str) -> Fields:
    kind, value = chat_form.read_part(part, place)
    match kind:
        case "text":
            return {"type": text, "text": value}
        case "image":
            chat_form.refuse_type(
                chat_form.media_type(value),
                chat_form.PICTURE_TYPES,
                f"{place}.image_url",
                "Responses",
            )
            image = part["image_url"]
            detail = image.get("detail") if isinstance(image, dict) else None
            return {"type": "input_image", "image_url": value, "detail": detail or "auto"}
        case "file":
            return {"type": "input_file", **chat_form.file_of(part, place)}
    match part.get("type"):
        case str(own) if own.startswith(("input_", "output_")) and own != "input_audio":
            return part
        case other:
            raise not_translatable(f"{place}.type {other!r}", "Responses")


_FOREIGN = re.compile(rb'"id"\s*:\s*"[a-z]+_resp_')
FOREIGN_REASONING = "reasoning items"
"""The name of what was left out, for the client."""
_BEGINS = re.compile(r"[a-z]+_resp_")


def _without_foreign_items(call: Call) -> Any:
    """Return ``input`` of `call` without reasoning and ids of other targets."""
    request_input = call.body["input"]
    if not isinstance(request_input, Raw) or not _FOREIGN.search(request_input):
        return request_input
    items: Any = read_json(request_input)
    if not isinstance(items, list):
        return request_input
    remaining: list[Any] = []
    for item in items:
        match item:
            case {"id": str(identity), **rest} if _BEGINS.match(identity):
                if item.get("type") == "reasoning":
                    left_out(call, FOREIGN_REASONING)
                else:
                    remaining.append(rest)
            case _:
                remaining.append(item)
    return remaining
