"""Messages in OpenAI's form to Ollama's: text is one string, images stand beside it as base64, arguments are objects.

Several texts of one message are joined by line feeds, as servers with one prompt do. A tool's result says whose it is
by the function's name, so the call that it answers must be among the messages, unless the result has a name itself.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.wire.chat_form import Message, ToolCall
from splitsecond.wire.translation import not_translatable

_DATA_URL = re.compile(r"data:[^,]*;base64,", re.ASCII)


def translate(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """``messages`` of a request. Raises `CallerFault` for what Ollama does not take."""
    names: dict[str, str] = {}
    translated = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        text, images = _content(message, where)
        fields: dict[str, Any] = {"role": message.role, "content": text}
        if images:
            fields["images"] = images
        if message.thought:
            fields["thinking"] = message.thought
        if message.tool_calls:
            fields["tool_calls"] = [_call(call, f"{where}.tool_calls") for call in message.tool_calls]
            names |= {call.id: call.function.name for call in message.tool_calls if call.function is not None}
        if message.role == "tool" and "tool_name" not in message.native:
            fields["tool_name"] = _tool_name(message, where, names)
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
        match part:
            case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
                texts.append(text)
            case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
                images.append(_image(url, place))
            case {"type": "text" | "refusal" | "image_url" as kind}:
                raise CallerFault(f"{place} is not a part of type {kind!r} as OpenAI defines it")
            case _:
                raise not_translatable(f"{place}.type {part.get('type')!r}", "Ollama")
    return "\n".join(texts), images


def _image(url: str, place: str) -> str:
    if not url.startswith("data:"):
        raise not_translatable(f"{place}.image_url, a link,", "Ollama", "Send the image as a data URL in base64.")
    found = _DATA_URL.match(url)
    if found is None:
        raise CallerFault(f"{place}.image_url is no data URL in base64", hint="Expected data:image/png;base64,...")
    return url[found.end() :]


def _call(call: ToolCall, where: str) -> dict[str, Any]:
    if call.function is None:
        raise not_translatable(f"{where} of type {call.type!r}", "Ollama")
    try:
        arguments = msgspec.json.decode(call.function.arguments or "{}", type=dict[str, Any])
    except (ValueError, RecursionError):
        raise CallerFault(f"{where}: the arguments of {call.function.name} are not the JSON of an object") from None
    return {"function": {"name": call.function.name, "arguments": arguments}}


def _tool_name(message: Message, where: str, names: Mapping[str, str]) -> str:
    name = message.name or names.get(message.tool_call_id or "")
    if name is None:
        raise CallerFault(
            f"{where}.tool_call_id is {message.tool_call_id!r}, which no earlier tool call has",
            hint="Ollama needs the function's name, which only the call holds.",
        )
    return name
