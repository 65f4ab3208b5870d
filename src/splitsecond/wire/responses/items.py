"""Messages of a chat to the items of ``input``: what is said stays a message, calls and their results stand beside it.

What an assistant thought before is left out: the API takes no thoughts but its own, with their ids. Parts of types that
only this API has go through as they are.
"""

from collections.abc import Sequence
from typing import Any

from splitsecond.errors import CallerFault
from splitsecond.wire.chat_form import Message, ToolCall
from splitsecond.wire.translation import not_translatable

Items = list[dict[str, Any]]


def translate(messages: Sequence[Message]) -> Items:
    """``input`` of a request. Raises `CallerFault` for what the API does not take."""
    items: Items = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        content = _content(message, where)
        if message.role == "tool":
            if not message.tool_call_id:
                raise CallerFault(f"{where}.tool_call_id is missing")
            items.append({"type": "function_call_output", "call_id": message.tool_call_id, "output": content or ""})
            continue
        if content:
            items.append({"role": message.role, "content": content, **message.native})
        items += [_call(call, f"{where}.tool_calls") for call in message.tool_calls or ()]
    return items


def _content(message: Message, where: str) -> str | Items:
    content = message.content or message.refusal or ""
    if isinstance(content, str):
        return content
    text = "output_text" if message.role == "assistant" else "input_text"
    return [_part(part, text, f"{where}.content[{number}]") for number, part in enumerate(content)]


def _part(part: dict[str, Any], text: str, place: str) -> dict[str, Any]:
    match part:
        case {"type": "text", "text": str(said)} | {"type": "refusal", "refusal": str(said)}:
            return {"type": text, "text": said}
        case {"type": "image_url", "image_url": str(url)}:
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case {"type": "image_url", "image_url": {"url": str(url), **rest}}:
            return {"type": "input_image", "image_url": url, "detail": rest.get("detail") or "auto"}
        case {"type": "file", "file": dict(file)}:
            return {"type": "input_file", **file}
        case {"type": "text" | "refusal" | "image_url" | "file" as kind}:
            raise CallerFault(f"{place} is not a part of type {kind!r} as OpenAI defines it")
        case {"type": str(kind)} if kind.startswith(("input_", "output_")) and kind != "input_audio":
            return part
    raise not_translatable(f"{place}.type {part.get('type')!r}", "Responses")


def _call(call: ToolCall, where: str) -> dict[str, Any]:
    if call.function is None:
        raise not_translatable(f"{where} of type {call.type!r}", "Responses")
    arguments = call.function.arguments or "{}"
    return {"type": "function_call", "call_id": call.id, "name": call.function.name, "arguments": arguments}
