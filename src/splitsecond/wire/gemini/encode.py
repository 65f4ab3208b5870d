"""The client role, writing: a call in OpenAI's form to a request for ``streamGenerateContent``, or ``generateContent``.

A table says which of OpenAI's fields ``generationConfig`` has under another name; what becomes of those that Gemini has
not, `chat_form` says. Every other field is Gemini's own and goes through as it is (``safetySettings``,
``cachedContent``, ``generationConfig``, ``contents`` in the place of messages); where it says the same as a field of
OpenAI's, it wins. Tools without a ``type`` are Gemini's own too (``{"googleSearch": {}}``).
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.service import Call
from splitsecond.wire import tool_results
from splitsecond.wire.chat_form import THOUGHTS, chat_fields
from splitsecond.wire.dialect import STREAM_HEADERS, WHOLE_HEADERS, Encoded, Quirks
from splitsecond.wire.gemini import messages
from splitsecond.wire.thinking import Thinking, wished
from splitsecond.wire.translation import left_out, not_translatable, short

_WITH_PREFIX = ("models/", "tunedModels/")

_CONFIG = {
    "max_completion_tokens": "maxOutputTokens",
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "n": "candidateCount",
}
"""OpenAI's name (and for `top_k` everyone else's) to the one in ``generationConfig``; the first of two wins."""

_KNOWN = ("n", "service_tier")
"""Fields that other dialects have not, and this one has."""

_LEVELS = ("low", "medium", "high", "xhigh", "minimal")
"""From Gemini 3 on, where thinking cannot be turned off; the first is one that all models have."""
_BUDGETS = (0, 24576)
_BUDGETS_OF_PRO = (128, 32768)
"""The least and the most tokens that Gemini 2.5 may be told to think."""
_AS_FOUND_RIGHT = -1
_NOT_THINKING = re.compile(r"gemma|gemini-(1|2\.0)")

_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_SERVICE_TIERS = {"default": "standard", "flex": "flex", "priority": "priority"}


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    """`call` as a request to the model that Google calls `model`. Of `quirks`, `stream_whole` and `thinking` matter.

    Raises `CallerFault`: "not_translatable" names the field that Gemini has not.
    """
    fields = chat_fields(call, "Gemini", known=_KNOWN)
    body: dict[str, Any] = {}
    config = _config(fields)
    wish = wished(call, fields, model, quirks.thinking)
    if wish is not None:
        config |= _thinking(call, wish, model)
    if "messages" in fields:
        fields["messages"] = _results(call, fields["messages"])
        body["contents"], system = messages.translate(fields.pop("messages"), signed=_is_new(model))
        if system:
            body["systemInstruction"] = {"parts": system}
    elif "contents" not in fields:
        raise CallerFault("the request has no messages")
    if tools := fields.pop("tools", None):
        body["tools"] = _tools(call, tools)
    if (choice := fields.pop("tool_choice", None)) is not None:
        body["toolConfig"] = {"functionCallingConfig": _tool_choice(choice)}
    if (tier := fields.pop("service_tier", "auto")) != "auto":
        body["serviceTier"] = _looked_up("service_tier", tier, _SERVICE_TIERS)
    config |= _object("generationConfig", fields.pop("generationConfig", {}))
    if config:
        body["generationConfig"] = config
    streamed = quirks.streamed(call)
    headers = STREAM_HEADERS if streamed else WHOLE_HEADERS
    return Encoded(_path(model, streamed), headers, msgspec.json.encode(body | fields), streamed)


def _path(model: str, streamed: bool) -> str:
    name = model if model.startswith(_WITH_PREFIX) else f"models/{model}"
    return f"/{quote(name, safe='/@')}:{'streamGenerateContent?alt=sse' if streamed else 'generateContent'}"


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    """``generationConfig``, out of the fields that go into it; they are taken out of `fields`."""
    config: dict[str, Any] = {}
    for name, native in _CONFIG.items():
        if (value := fields.pop(name, None)) is not None:
            config.setdefault(native, value)
    if (stop := fields.pop("stop", None)) is not None:
        config["stopSequences"] = [stop] if isinstance(stop, str) else stop
    if (wanted := fields.pop("response_format", None)) is not None:
        config |= _response_format(wanted)
    return config


def _thinking(call: Call, wish: Thinking, model: str) -> dict[str, Any]:
    """``thinkingConfig``: a level from Gemini 3 on, a budget before; nothing for models that do not think."""
    if _NOT_THINKING.search(model):
        if wish.said and not wish.off:
            left_out(call, wish.name)
        return {}
    shown = wish.shown
    if shown is None and wish.name == "thinking":
        shown = True  # where the word comes from thoughts are part of the answer, and here only if asked for
    made: dict[str, Any] = {} if shown is None or wish.off else {"includeThoughts": shown}
    if _is_new(model):
        if wish.tokens is not None:  # else it finds out itself
            made["thinkingLevel"] = wish.level(call, _LEVELS).upper()
    elif wish.said:
        least, most = _BUDGETS_OF_PRO if "pro" in model else _BUDGETS
        tokens = wish.tokens
        if wish.off and least:
            left_out(call, wish.name)
        made["thinkingBudget"] = _AS_FOUND_RIGHT if tokens is None else min(max(tokens, least), most)
    return {"thinkingConfig": made} if made else {}


def _results(call: Call, messages: Any) -> Any:
    """The messages with results of tools as Gemini takes them, which are text, or a failure with its text."""
    if isinstance(messages, list) and any(isinstance(each, dict) and each.get(THOUGHTS) for each in messages):
        left_out(call, THOUGHTS)
    return tool_results.as_text(messages, failures=True)


def _is_new(model: str) -> bool:
    """Whether it is Gemini 3 or later: it thinks in levels and signs its thoughts. "gemini-flash-latest" is."""
    version = re.search(r"gemini-(\d+)", model)
    return int(version[1]) >= 3 if version else "gemini" in model


def _response_format(wanted: Any) -> dict[str, Any]:
    match wanted:
        case {"type": "text"}:
            return {}
        case {"type": "json_object"}:
            return {"responseMimeType": "application/json"}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return {"responseMimeType": "application/json", "responseJsonSchema": schema}
    raise not_translatable(f"response_format {short(wanted)}", "Gemini")


def _tools(call: Call, tools: Any) -> list[dict[str, Any]]:
    """OpenAI's functions in one tool, as Gemini wants them, and Gemini's own tools after it."""
    declarations: list[dict[str, Any]] = []
    native: list[dict[str, Any]] = []
    for tool in tools if isinstance(tools, list) else [tools]:
        match tool:
            case {"type": "function", "function": {"name": str(name), **rest}}:
                declared: dict[str, Any] = {"name": name}
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


def _tool_choice(choice: Any) -> dict[str, Any]:
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


def _looked_up(field: str, value: Any, table: Mapping[str, Any]) -> Any:
    if not isinstance(value, str) or value not in table:
        raise not_translatable(f"{field} {short(value)}", "Gemini", f"Possible here: {', '.join(table)}.")
    return table[value]


def _object(field: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CallerFault(f"{field} must be an object, got {short(value)}")
    return value
