"""Server role: requests for ``/api/chat`` and ``/api/generate`` in the common chat form.

Calls of tools have no ids here: each gets one, and a tool's result belongs to the first call of
that tool which has no result, or to the first of all. Options of Ollama's own models are left out,
and the call's notes name them.
"""

from collections.abc import Mapping
from typing import Any

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.wire.chat_form import assistant_message, schema_format, translated
from splitsecond.core.wire.server_answer import function_call
from splitsecond.core.wire.tool_calls import arguments_text
from splitsecond.core.wire.translation import (
    Fields,
    left_out,
    object_field,
    plain_fields,
    refuse,
    short,
    take_tools,
)

_OPTIONS = (
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
)
_ROLES = ("system", "user", "assistant", "tool")
_REFUSED_IN_GENERATE: Mapping[str, tuple[Any, ...]] = {
    "suffix": ("",), "template": ("",), "raw": (False,), "context": ([],),
}  # fmt: skip
_PNG, _JPEG, _GIF = "iVBOR", "/9j/", "R0lGOD"
"""The base64 of the first bytes of images."""


def chat_to_chat(call: Call) -> Call:
    fields = plain_fields(call, "model", "stream")
    messages = _messages(fields.pop("messages", None))
    tools = take_tools(fields)
    return _chat(call, fields, {"messages": messages, **({"tools": tools} if tools else {})})


def generate_to_chat(call: Call) -> Call:
    fields = plain_fields(call, "model", "stream")
    refuse(fields, _REFUSED_IN_GENERATE, "a chat")
    prompt, system, images = (fields.pop(name, None) for name in ("prompt", "system", "images"))
    if not isinstance(prompt, str) or not prompt:
        raise CallerFault("prompt must be a text", hint="Targets cannot be loaded in advance.")
    before = [{"role": "system", "content": system}] if system else []
    return _chat(
        call,
        fields,
        {"messages": [*before, {"role": "user", "content": _content(prompt, images, "images")}]},
    )


def _chat(call: Call, fields: Fields, body: Fields) -> Call:
    match fields.pop("format", None):
        case None | "":
            pass
        case "json":
            body["response_format"] = {"type": "json_object"}
        case dict(schema):
            body["response_format"] = schema_format(schema, strict=False)
        case other:
            raise CallerFault(f'format must be "json" or a schema, got {short(other)}')
    if (think := fields.pop("think", None)) is not None:
        body["think"] = think
    refuse(fields, {"logprobs": (False,), "top_logprobs": (0,)}, "a chat")
    options = object_field("options", fields.pop("options", {}))
    body |= {name: value for name in _OPTIONS if (value := options.pop(name, None)) is not None}
    limit = options.pop("num_predict", None)
    if isinstance(limit, int) and limit > 0:  # -1: no limit, -2: as much as the context holds
        body["max_completion_tokens"] = limit
    for name in (*options, *fields):
        left_out(call, name)
    return translated(call, body)


def _messages(messages: Any) -> list[Fields]:
    if not isinstance(messages, list) or not messages:
        raise CallerFault("messages must be a list of at least one message")
    turns: list[Fields] = []
    open_calls: list[tuple[str, str]] = []
    count = 0
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if isinstance(message, dict) and message.get("content") is None:
            message = {**message, "content": ""}  # as Ollama reads it
        match message:
            case {"role": "assistant"}:
                calls = [
                    _call(each, f"call_{count + place}", where)
                    for place, each in enumerate(_calls(message))
                ]
                count += len(calls)
                open_calls += [(each["id"], each["function"]["name"]) for each in calls]
                turns.append(assistant_message(*_texts(message), calls))
            case {"role": "tool", "content": str(text)}:
                content = _content(text, message.get("images"), f"{where}.images")
                identity = _answered(message, open_calls, where)
                turns.append({"role": "tool", "tool_call_id": identity, "content": content})
            case {"role": "system" | "user" as role, "content": str(text)}:
                content = _content(text, message.get("images"), f"{where}.images")
                turns.append({"role": role, "content": content})
            case _:
                raise CallerFault(
                    f"{where} must have a role, one of {', '.join(_ROLES)}, and content, a text"
                )
    return turns


def _texts(message: Fields) -> tuple[list[str], list[str]]:
    texts = (
        [value] if isinstance(value := message.get(name), str) and value else []
        for name in ("content", "thinking")
    )
    text, thinking = texts
    return text, thinking


def _calls(message: Fields) -> list[Any]:
    calls = message.get("tool_calls") or []
    return calls if isinstance(calls, list) else [calls]


def _call(call: Any, identity: str, where: str) -> Fields:
    match call:
        case {"function": {"name": str(name)} as function}:
            call_id, text = call.get("id"), arguments_text(function.get("arguments")) or "{}"
            return function_call(
                call_id if isinstance(call_id, str) and call_id else identity, name, text
            )
    raise CallerFault(f"{where}.tool_calls must hold functions with names, got {short(call)}")


def _answered(message: Fields, open_calls: list[tuple[str, str]], where: str) -> str:
    """Return the id of the call that a tool's message answers, which is no longer open."""
    call_id, name = message.get("tool_call_id"), message.get("tool_name") or message.get("name")
    alike = [each for each in open_calls if each[0] == call_id] or [
        each for each in open_calls if each[1] == name
    ]
    call = next(iter(alike or open_calls), None)
    if call is None:
        raise CallerFault(f"{where} answers no call of a tool")
    open_calls.remove(call)
    return call[0]


def _content(text: str, images: Any, where: str) -> str | list[Fields]:
    if not images:
        return text
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise CallerFault(f"{where} must be a list of images in base64")
    urls = [
        image if image.startswith("data:") else f"data:{_media_type(image)};base64,{image}"
        for image in images
    ]
    return [
        {"type": "text", "text": text},
        *({"type": "image_url", "image_url": {"url": url}} for url in urls),
    ]


def _media_type(image: str) -> str:
    image = image[:8].replace("_", "/")
    signatures = {_PNG: "image/png", _JPEG: "image/jpeg", _GIF: "image/gif"}
    return next(
        (kind for begin, kind in signatures.items() if image.startswith(begin)), "image/webp"
    )
