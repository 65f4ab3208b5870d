"""Client role: a call as a request for a provider of OpenAI's API format.

The fields of a call pass byte for byte, but for ``model``, ``stream``, ``stream_options``, the name
of the limit on output tokens and, for Gemini's models (`thought_signatures`), missing signatures of
tool calls.

A chat translated from another API format must hold no fields that some providers reject: of those
that few accept only those stay that the quirks name, reasoning goes to providers that take it back,
and the reasoning effort is written in the provider's own way. What is left out is reported.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import WHOLE_OPERATIONS, Call, Operation
from splitsecond.core.validation import read_json
from splitsecond.core.wire import tool_results
from splitsecond.core.wire.api_format import STREAM_HEADERS, WHOLE_HEADERS, Encoded, Quirks
from splitsecond.core.wire.chat_form import NO_SIGNATURE, REASONING_FIELD, standard_part
from splitsecond.core.wire.reasoning import ReasoningRequest, ReasoningStyle, requested, style_for
from splitsecond.core.wire.translation import Fields, leave_out, left_out, shared_fields

_PATHS: dict[Operation, str] = {"chat": "/chat/completions", "completions": "/completions"}
_MAX_TOKENS = ("max_tokens", "max_completion_tokens")
_USAGE = msgspec.Raw(b'{"include_usage":true}')
_NO_LIMIT = (None, msgspec.Raw(b"null"))
_encode = msgspec.json.Encoder().encode


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    """Encode `call` for `model`.

    Raises `CallerFault` if the call's ``stream_options`` is not an object.
    """
    fields: Fields = dict(call.body)
    fields["model"] = model
    if call.operation in WHOLE_OPERATIONS:
        fields.pop("stream", None)
        return Encoded(f"/{call.operation}", WHOLE_HEADERS, _encode(fields), False)
    streamed = fields["stream"] = quirks.streamed(call)
    options = fields.pop("stream_options", None)
    if quirks.stream_options and streamed:
        fields["stream_options"] = (
            _USAGE if options is None else {**_options(options), "include_usage": True}
        )
    if call.operation == "chat" and ("max_tokens" in fields or "max_completion_tokens" in fields):
        _name_limit(fields, quirks.max_tokens_field)
    if quirks.thought_signatures and "messages" in fields:
        fields["messages"] = _with_signatures(fields["messages"])
    if quirks.extra_fields:
        fields |= quirks.extra_fields
    headers = STREAM_HEADERS if streamed else WHOLE_HEADERS
    return Encoded(_PATHS[call.operation], headers, _encode(fields), streamed)


def _name_limit(fields: Fields, name: str) -> None:
    """Rename the limit on output tokens to the provider's `name` for it."""
    if fields.get(name) not in _NO_LIMIT and len(fields.keys() & _MAX_TOKENS) == 1:
        return
    names = (name, *(other for other in _MAX_TOKENS if other != name))
    for limit in [fields.pop(each, None) for each in names]:
        if limit not in _NO_LIMIT:
            fields.setdefault(name, limit)


def _options(value: Any) -> Fields:
    try:
        options = msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
        return msgspec.convert(options, Fields | None) or {}
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"stream_options must be an object: {error}") from error


_CALLS = re.compile(rb'"tool_calls"')
_UNSIGNED = {"google": {"thought_signature": NO_SIGNATURE}}


def _with_signatures(value: Any) -> Any:
    """Return the messages `value`; unsigned tool calls get a placeholder."""
    messages: Any = value
    if isinstance(value, msgspec.Raw):
        messages = read_json(value) if _CALLS.search(value) else None
    return (
        [_with_signature(message) for message in messages] if isinstance(messages, list) else value
    )


def _with_signature(message: Any) -> Any:
    match message:
        case {"tool_calls": [{"extra_content": dict()}, *_]}:
            return message
        case {"tool_calls": [dict(first), *others]}:  # of parallel calls only the first is signed
            return {**message, "tool_calls": [{**first, "extra_content": _UNSIGNED}, *others]}
    return message


_FEW_TAKE = (
    "top_k", "user", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "verbosity",
)  # fmt: skip
"""Fields of a chat that few providers accept, beside OpenAI itself."""
_USUAL = ("top_k", "user")
"""Those that are taken unless the quirk `takes` names others."""
_OF_EMBEDDINGS = ("input", "dimensions")
_DEFAULTS: Mapping[str, tuple[str]] = {"service_tier": ("auto",), "verbosity": ("medium",)}
"""Values that request the default; they are left out without a report."""


def fit_to_provider(chat: Call, model: str, quirks: Quirks) -> Call:
    """Fit `chat`, or embeddings, translated from another API format, to `model` at a provider."""
    body = dict(chat.body)
    if chat.operation == "embeddings":
        return structs.replace(chat, body=shared_fields(chat, body, _OF_EMBEDDINGS))
    takes = _USUAL if quirks.takes is None else quirks.takes
    for name in _FEW_TAKE:
        if name in body and name not in takes:
            leave_out(chat, body, name, _DEFAULTS.get(name, ()))
    reasoning = requested(chat, body, model, quirks.thinking)
    if reasoning is not None:
        body |= _reasoning(chat, reasoning, style_for(quirks.thinking, model) or ReasoningStyle())
    body["messages"] = _messages(chat, tool_results.text_results(body["messages"]), quirks)
    return structs.replace(chat, body=body)


def _reasoning(chat: Call, reasoning: ReasoningRequest, style: ReasoningStyle) -> Fields:
    match style.field:
        case "reasoning":
            return _reasoning_object(reasoning)
        case _ if not reasoning.is_set:
            return {}
        case "thinking":
            return {"thinking": {"type": "disabled" if reasoning.off else "enabled"}}
        case "enable_thinking":
            budget = {"thinking_budget": reasoning.tokens} if reasoning.tokens else {}
            return {"enable_thinking": not reasoning.off, **budget}
        case _:
            return {"reasoning_effort": reasoning.level(chat)}


def _reasoning_object(reasoning: ReasoningRequest) -> Fields:
    """Return OpenRouter's object, in which effort and budget exclude each other."""
    fields: Fields = {} if reasoning.shown is None else {"exclude": not reasoning.shown}
    if reasoning.off:
        fields["enabled"] = False
    elif reasoning.budget is not None:
        fields["max_tokens"] = reasoning.budget
    elif reasoning.effort:
        fields["effort"] = reasoning.effort
    elif reasoning.on:
        fields["enabled"] = True
    return {"reasoning": fields} if fields else {}


def _messages(chat: Call, messages: list[Fields], quirks: Quirks) -> list[Fields]:
    """Return the messages with their media in standard form, and with their reasoning if the
    provider takes it back: it then requires it with every tool call, even if it is empty."""
    messages = [
        {**each, "content": [standard_part(part) for part in content]}
        if isinstance(content := each.get("content"), list)
        else each
        for each in messages
    ]
    if quirks.takes_thoughts:
        return [
            {REASONING_FIELD: "", **each} if each.get("tool_calls") else each for each in messages
        ]
    if not any(REASONING_FIELD in message for message in messages):
        return messages
    left_out(chat, REASONING_FIELD)
    return [{name: each[name] for name in each if name != REASONING_FIELD} for each in messages]
