"""Client role: a call in the common chat form as a request for ``generateContent``, streamed or
not.

Gemini's own fields pass unchanged (``safetySettings``, ``generationConfig``, ``contents`` instead
of messages) and override a translated field. Tools without a ``type`` are Gemini's own too
(``{"googleSearch": {}}``). Consecutive turns of one role become one, because Gemini expects the
results of parallel calls together. A result names the function that it answers, so the call must be
among the messages.

Models from Gemini 3 on refuse a function call in the conversation without the signature of the
reasoning before it. Clients return it in the form of Google's own compatibility endpoint
(``extra_content.google.thought_signature``). For a call without it, Google documents a placeholder.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.validation import read_json
from splitsecond.core.wire import chat_form
from splitsecond.core.wire.api_format import Encoded, Quirks, chat_request
from splitsecond.core.wire.reasoning import ReasoningRequest, requested
from splitsecond.core.wire.translation import (
    Fields,
    left_out,
    not_translatable,
    object_field,
    short,
)

_WITH_PREFIX = ("models/", "tunedModels/")

CONFIG = {
    "max_completion_tokens": "maxOutputTokens",
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "n": "candidateCount",
    "stop": "stopSequences",
}
"""OpenAI's name (for `top_k` the common one) to that in ``generationConfig``; the first of two
wins."""

_KNOWN = ("n", "service_tier")
"""Fields that most other formats lack, and this one has."""

_OWN = (
    "contents", "systemInstruction", "system_instruction", "safetySettings", "safety_settings",
    "cachedContent",
    "cached_content", "toolConfig", "tool_config", "serviceTier", "labels", "store",
)  # fmt: skip

_LEVELS = ("low", "medium", "high", "xhigh", "minimal")
"""Levels from Gemini 3 on, which always thinks; all models have the first."""
_BUDGETS = (0, 24576)
_BUDGETS_OF_PRO = (128, 32768)
"""The minimum and maximum thinking budget of Gemini 2.5."""
_DYNAMIC_BUDGET = -1
_NOT_THINKING = re.compile(r"gemma|gemini-(?:1|2\.0)(?!\d)")

_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_SERVICE_TIERS = {"auto": None, "default": "standard", "flex": "flex", "priority": "priority"}


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    fields = chat_form.chat_fields(call, "Gemini", known=_KNOWN)
    body: Fields = {}
    config = _config(fields)
    reasoning = requested(call, fields, model, quirks.thinking)
    if reasoning is not None:
        config |= _thinking(call, reasoning, model)
    if "messages" in fields:
        turns = chat_form.chat_messages(
            call, fields.pop("messages"), "Gemini", failures=True, system_apart=True
        )
        chat_form.leave_reasoning(call, turns)
        body["contents"], system = _turns(turns, signed=_is_new(model))
        if system:
            body["systemInstruction"] = {"parts": system}
    elif "contents" not in fields:
        raise CallerFault("the request has no messages")
    if tools := fields.pop("tools", None):
        body["tools"] = _tools(call, tools)
    if (choice := fields.pop("tool_choice", None)) is not None:
        body["toolConfig"] = {"functionCallingConfig": _tool_choice(choice)}
    if (
        tier := chat_form.mapped_field(fields, "service_tier", _SERVICE_TIERS, "Gemini")
    ) is not None:
        body["serviceTier"] = tier
    config |= object_field("generationConfig", fields.pop("generationConfig", {}))
    if config:
        body["generationConfig"] = config
    streamed = quirks.streamed(call)
    return chat_request(_path(model, streamed), body | quirks.native(call, fields, _OWN), streamed)


def _path(model: str, streamed: bool) -> str:
    name = model if model.startswith(_WITH_PREFIX) else f"models/{model}"
    return (
        f"/{quote(name, safe='/@')}:"
        f"{'streamGenerateContent?alt=sse' if streamed else 'generateContent'}"
    )


def _config(fields: Fields) -> Fields:
    fields["stop"], config = chat_form.stop_list(fields), Fields()
    for name, native in CONFIG.items():
        if (value := fields.pop(name, None)) is not None:
            config.setdefault(native, value)
    kind, schema = chat_form.output_format(fields, "Gemini")
    if kind != "text":
        config["responseMimeType"] = "application/json"
    if schema:
        config["responseJsonSchema"] = schema
    return config


def _thinking(call: Call, reasoning: ReasoningRequest, model: str) -> Fields:
    """Return ``thinkingConfig``: a level from Gemini 3 on, a budget before; nothing before 2.5."""
    if _NOT_THINKING.search(model):
        if reasoning.is_set and not reasoning.off:
            left_out(call, reasoning.name)
        return {}
    visible = reasoning.shown
    if visible is None and reasoning.name == "thinking":
        # the formats with a field of that name show reasoning by default; Gemini only on request
        visible = True
    config: Fields = {} if visible is None or reasoning.off else {"includeThoughts": visible}
    if _is_new(model):
        if reasoning.tokens is not None:  # else the model decides
            config["thinkingLevel"] = reasoning.level(call, _LEVELS).upper()
    elif reasoning.is_set:
        config["thinkingBudget"] = _budget(call, reasoning, model)
    return {"thinkingConfig": config} if config else {}


def _budget(call: Call, reasoning: ReasoningRequest, model: str) -> int:
    least, most = _BUDGETS_OF_PRO if "pro" in model else _BUDGETS
    if reasoning.off and least:
        left_out(call, reasoning.name)
    return _DYNAMIC_BUDGET if reasoning.tokens is None else min(max(reasoning.tokens, least), most)


def _is_new(model: str) -> bool:
    """Return whether the model is Gemini 3 or later, as "gemini-flash-latest", with levels and
    signatures."""
    version = re.search(r"gemini-(\d+)", model)
    return int(version[1]) >= 3 if version else "gemini" in model


def _tools(call: Call, tools: Any) -> list[Fields]:
    """Return OpenAI's functions in one tool, followed by Gemini's own tools."""
    declarations: list[Fields] = []
    native: list[Fields] = []
    for tool in tools if isinstance(tools, list) else [tools]:
        match tool:
            case {"type": "function", "function": {"name": str(name), **rest}}:
                declared: Fields = {"name": name}
                if rest.get("description"):
                    declared["description"] = rest["description"]
                if rest.get("parameters"):
                    declared["parametersJsonSchema"] = rest["parameters"]
                if rest.get("strict"):
                    left_out(call, "strict")
                declarations.append(declared)
            case dict() if "type" not in tool:
                native.append(tool)
            case _:
                raise not_translatable(f"the tool {short(tool)}", "Gemini")
    return [{"functionDeclarations": declarations}, *native] if declarations else native


def _tool_choice(choice: Any) -> Fields:
    match choice:
        case str() if choice in _MODES:
            return {"mode": _MODES[choice]}
        case {"type": "function", "function": {"name": str(name)}}:
            return {"mode": "ANY", "allowedFunctionNames": [name]}
        case {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [*tools]}}:
            return {"mode": "ANY", "allowedFunctionNames": [_allowed_name(tool) for tool in tools]}
    raise not_translatable(f"tool_choice {short(choice)}", "Gemini")


def _allowed_name(tool: Any) -> str:
    match tool:
        case {"type": "function", "function": {"name": str(name)}}:
            return name
    raise not_translatable(f"in tool_choice, the tool {short(tool)}", "Gemini")


Parts = list[Fields]


def _media(url: str, place: str) -> Fields:
    """Return the data of a data URL, or a link."""
    if not url.startswith("data:"):
        media_type = chat_form.media_type(url)
        return {"fileData": {"fileUri": url, **({"mimeType": media_type} if media_type else {})}}
    kind, data = chat_form.media_of(url, place)
    return {"inlineData": {"mimeType": kind, "data": data}}


def _turns(messages: Sequence[chat_form.Message], *, signed: bool) -> tuple[list[Fields], Parts]:
    system: Parts = []
    contents: list[Fields] = []
    names: dict[str, str] = {}
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if message.role == "system":
            system += _parts(message, where)
            continue
        names |= {call.id: call.function.name for call in message.tool_calls or ()}
        if message.role == "tool":
            parts = [_result(message, where, names)]
        else:
            parts = _parts(message, where) + _calls(message, where, signed=signed)
        role = "model" if message.role == "assistant" else "user"
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"role": role, "parts": parts})
    return contents, system


def _parts(message: chat_form.Message, where: str) -> Parts:
    content = message.content
    if isinstance(content, str) or content is None:
        return [{"text": text} for text in (content, message.refusal) if text]
    parts = [_part(part, f"{where}.content[{number}]") for number, part in enumerate(content)]
    return [part for part in parts if part != {"text": ""}]


def _part(part: Fields, place: str) -> Fields:
    kind, value = chat_form.read_part(part, place)
    match kind, part:
        case "text", _:
            return {"text": value}
        case "image", _:
            return _media(value, f"{place}.image_url")
        case "file", _:
            return _media(chat_form.file_data(part, place, "Gemini"), f"{place}.file.file_data")
        case _, {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
            return {"inlineData": {"mimeType": f"audio/{form}", "data": data}}
    if part.get("type") is not None:
        raise not_translatable(f"{place}.type {part['type']!r}", "Gemini")
    return part  # Gemini's own


def _calls(message: chat_form.Message, where: str, *, signed: bool) -> Parts:
    parts: Parts = []
    for number, call in enumerate(message.tool_calls or ()):
        args = call.arguments(f"{where}.tool_calls[{number}]")
        identity = {"id": call.id} if call.id else {}
        part: Fields = {"functionCall": {**identity, "name": call.function.name, "args": args}}
        match call.extra_content:
            case {"google": {"thought_signature": str(signature)}}:
                part["thoughtSignature"] = signature
            case _ if signed and number == 0:  # of parallel calls only the first is signed
                part["thoughtSignature"] = chat_form.NO_SIGNATURE
        parts.append(part)
    return parts


def _result(message: chat_form.Message, where: str, names: Mapping[str, str]) -> Fields:
    name = chat_form.function_answered(message, where, names, "Gemini")
    parts = _parts(message, where)
    if any(part.keys() != {"text"} or not isinstance(part["text"], str) for part in parts):
        raise not_translatable(f"{where}.content with anything but text", "Gemini")
    text = "".join(part["text"] for part in parts)
    output: Any = read_json(text)
    response = output if isinstance(output, dict) else {"output": text}
    if message.is_error:
        response = {"error": text}
    return {"functionResponse": {"id": message.tool_call_id, "name": name, "response": response}}
