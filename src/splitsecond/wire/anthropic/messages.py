"""Messages in OpenAI's form to Anthropic's: turns of blocks by "user" and "assistant", the system's words beside them.

Turns of one role that follow each other become one, because Anthropic wants the results of parallel calls together. The
system's words go to the front, as they do at Anthropic's own compatibility endpoint. Blocks of types that only
Anthropic has go through as they are, and so do the marks of its prompt cache (``cache_control``), on a part or on a
message.

What an assistant thought before goes on only as Anthropic's own block, which carries a signature. The bare text
(``reasoning_content``) is left out: Anthropic takes no thoughts without their signature.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.wire.anthropic.answers import NOT_IN_AN_ID
from splitsecond.wire.chat_form import Message, ToolCall
from splitsecond.wire.translation import not_translatable

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[^,]*)?;base64,", re.ASCII)

Blocks = list[dict[str, Any]]


def translate(messages: Sequence[Message]) -> tuple[Blocks, list[dict[str, Any]]]:
    """The blocks of ``system``, and ``messages``. Raises `CallerFault` for what Anthropic does not take."""
    system: Blocks = []
    turns: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        role, blocks = "user" if message.role == "tool" else message.role, _blocks(message, where)
        native = dict(message.native)
        if (mark := native.pop("cache_control", None)) is not None and blocks:
            blocks[-1] = {**blocks[-1], "cache_control": mark}
        if role == "assistant" and not blocks:
            continue  # Anthropic refuses an answer that says nothing
        if role == "system":
            system += blocks
        elif turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
            turns[-1] |= native
        else:
            turns.append({"role": role, "content": blocks, **native})
    return system, turns


def mark_end(system: Blocks, turns: Sequence[dict[str, Any]]) -> None:
    """Marks the last block of the system's words, or where there are none of the last turn: all up to it is cached.

    What differs from request to request belongs behind the mark, as a prompt is looked up by all that stands before
    one. A mark that is there stays.
    """
    blocks = system or (turns[-1]["content"] if turns else [])
    if blocks:
        blocks[-1] = {"cache_control": {"type": "ephemeral"}, **blocks[-1]}


def _blocks(message: Message, where: str) -> Blocks:
    blocks = _content(message.content, where)
    if message.role == "tool":
        identity = _identity(message.tool_call_id or "")
        failed = {"is_error": True} if message.is_error else {}
        return [{"type": "tool_result", "tool_use_id": identity, "content": blocks, **failed}]
    if message.refusal:
        blocks.append({"type": "text", "text": message.refusal})
    return blocks + [
        _call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(message.tool_calls or ())
    ]


def _content(content: str | list[dict[str, Any]] | None, where: str) -> Blocks:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    blocks = [_block(part, f"{where}.content[{number}]") for number, part in enumerate(parts)]
    return [block for block in blocks if block.get("type") != "text" or block["text"]]  # Anthropic refuses empty ones


def _block(part: dict[str, Any], place: str) -> dict[str, Any]:
    kind = part.get("type")
    if not isinstance(kind, str) or kind in _REFUSED:
        raise not_translatable(f"{place}.type {kind!r}", "Anthropic")
    if kind not in _BLOCKS:
        return part
    try:
        block = _BLOCKS[kind](part, place)
    except (KeyError, TypeError, AttributeError):
        raise CallerFault(f"{place} is not a part of type {kind!r} as OpenAI defines it") from None
    mark = part.get("cache_control")
    return block if mark is None else {**block, "cache_control": mark}


def _text(part: dict[str, Any], place: str) -> dict[str, Any]:
    if not isinstance(part["text"], str):
        raise TypeError
    return part


def _image(part: dict[str, Any], place: str) -> dict[str, Any]:
    image = part["image_url"]
    url = image if isinstance(image, str) else image["url"]
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image", "source": _inline(url, f"{place}.image_url")}


def _file(part: dict[str, Any], place: str) -> dict[str, Any]:
    file = part["file"]
    if "file_data" not in file:
        raise not_translatable(f"{place}.file without file_data", "Anthropic", "Send the file's data as a data URL.")
    named = {"title": file["filename"]} if file.get("filename") else {}
    return {"type": "document", "source": _inline(file["file_data"], f"{place}.file.file_data"), **named}


_BLOCKS: Mapping[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
    "text": _text,
    "refusal": lambda part, place: {"type": "text", "text": part["refusal"]},
    "image_url": _image,
    "file": _file,
}
_REFUSED = ("input_audio",)


def _inline(url: str, place: str) -> dict[str, Any]:
    found = _DATA_URL.match(url)
    if found is None:
        raise CallerFault(f"{place} is no data URL in base64", hint="Expected data:image/png;base64,...")
    return {"type": "base64", "media_type": found[1], "data": url[found.end() :]}


def _call(call: ToolCall, place: str) -> dict[str, Any]:
    if call.function is None:
        raise not_translatable(f"{place}.type {call.type!r}", "Anthropic")
    try:
        arguments = msgspec.json.decode(call.function.arguments or "{}", type=dict[str, Any])
    except (ValueError, RecursionError):
        raise CallerFault(f"{place}.function.arguments is not the JSON of an object") from None
    return {"type": "tool_use", "id": _identity(call.id), "name": call.function.name, "input": arguments}


def _identity(given: str) -> str:
    """A call's id with what Anthropic takes in one; other providers put dots and colons there."""
    return NOT_IN_AN_ID.sub("_", given)
