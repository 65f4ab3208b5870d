"""Messages for Anthropic: translated from OpenAI's form, or the client's own without unsigned
reasoning.

Consecutive turns of one role become one, because Anthropic requires the results of parallel tool
calls together. System messages go to the front, as at Anthropic's own compatibility endpoint. Block
types that only Anthropic has pass unchanged, and so do the marks of its prompt cache
(``cache_control``).

Anthropic accepts reasoning only in its own signed blocks. Plain text of reasoning is left out of a
translated request. In a conversation of Anthropic's own form, answers of other targets leave blocks
without a signature, and those are removed: only the types and signatures are decoded, and the rest
only if one is missing. If a tool call that is being answered loses the reasoning before it, a model
with a reasoning budget would reject the request, so reasoning is switched off.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.service import Call
from splitsecond.core.validation import plain_value, read_json
from splitsecond.core.wire.anthropic.answers import NOT_IN_AN_ID
from splitsecond.core.wire.chat_form import (
    DOCUMENT_TYPES,
    PICTURE_TYPES,
    Message,
    file_data,
    media_of,
    read_part,
    refuse_type,
    text_of,
)
from splitsecond.core.wire.translation import Fields, left_out, not_translatable

_REASONING = re.compile(rb'"thinking"')
UNSIGNED_REASONING = "thinking blocks"
"""The name of what was left out, for the client."""

Blocks = list[Fields]


class _Block(Struct, gc=False):
    type: Any = None
    signature: Any = None

    @property
    def unsigned(self) -> bool:
        """Whether this is reasoning that Anthropic would reject."""
        return self.type == "thinking" and not self.signature


class _Turn(Struct, gc=False):
    content: list[_Block] | str | None = None


_decode_turns = msgspec.json.Decoder(list[_Turn]).decode


def translate(messages: Sequence[Message]) -> tuple[Blocks, list[Fields]]:
    """Return the blocks of ``system``, and ``messages``. Raises `CallerFault` for what Anthropic
    rejects."""
    system: Blocks = []
    turns: list[Fields] = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        role, blocks = "user" if message.role == "tool" else message.role, _blocks(message, where)
        if (mark := message.native.get("cache_control")) is not None and blocks:
            blocks[-1] = {**blocks[-1], "cache_control": mark}
        if role == "assistant" and not blocks:
            continue  # Anthropic rejects an empty message of the assistant
        if role == "system":
            system += blocks
        elif turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if turns and turns[-1]["role"] == "assistant":
        turns[-1]["content"][-1] = _without_trailing_space(turns[-1]["content"][-1])
    return system, turns


def _without_trailing_space(block: Fields) -> Fields:
    """Return the last block of the beginning of an answer, which Anthropic rejects if it ends in
    whitespace."""
    return {**block, "text": block["text"].rstrip()} if block.get("type") == "text" else block


def mark_end(system: Blocks, turns: Sequence[Fields]) -> None:
    """Mark the last block of the system prompt, or else of the last turn, unless it has a mark: all
    up to it is cached.

    The cache finds a prompt by everything before a mark, so parts that change from request to
    request belong after it.
    """
    blocks = system or (turns[-1]["content"] if turns else [])
    if blocks:
        blocks[-1] = {"cache_control": {"type": "ephemeral"}, **blocks[-1]}


def _blocks(message: Message, where: str) -> Blocks:
    blocks = _content(message.content, where)
    if message.role == "tool":
        identity = NOT_IN_AN_ID.sub("_", message.tool_call_id or "")
        failed = {"is_error": True} if message.is_error else {}
        return [{"type": "tool_result", "tool_use_id": identity, "content": blocks, **failed}]
    if message.refusal:
        blocks.append({"type": "text", "text": message.refusal})
    for number, call in enumerate(message.tool_calls or ()):
        arguments = call.arguments(f"{where}.tool_calls[{number}]")
        head = {"id": NOT_IN_AN_ID.sub("_", call.id), "name": call.function.name}
        blocks.append({"type": "tool_use", **head, "input": arguments})
    return blocks


def _content(content: str | list[Fields] | None, where: str) -> Blocks:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    blocks = [_block(part, f"{where}.content[{number}]") for number, part in enumerate(parts)]
    # Anthropic rejects empty ones, also of whitespace
    return [block for block in blocks if block.get("type") != "text" or block["text"].strip()]


def _block(part: Fields, place: str) -> Fields:
    kind, value = read_part(part, place)
    match kind:
        case "text":
            cited = {"citations": part["citations"]} if part.get("citations") else {}
            block = {"type": "text", "text": value, **cited}
        case "image" if not value.startswith("data:"):
            block = {"type": "image", "source": {"type": "url", "url": value}}
        case "image":
            block = {"type": "image", "source": _inline(value, f"{place}.image_url", PICTURE_TYPES)}
        case "file":
            source = _inline(
                file_data(part, place, "Anthropic"), f"{place}.file.file_data", DOCUMENT_TYPES
            )
            title = {"title": name} if (name := part["file"].get("filename")) else {}
            block = {"type": "document", "source": source, **title}
        case _ if not isinstance(part.get("type"), str) or part["type"] == "input_audio":
            raise not_translatable(f"{place}.type {part.get('type')!r}", "Anthropic")
        case _:
            return part
    mark = part.get("cache_control")
    return block if mark is None else {**block, "cache_control": mark}


def _inline(url: str, place: str, kinds: tuple[str, ...]) -> Fields:
    kind, data = media_of(url, place)
    refuse_type(kind, kinds, place, "Anthropic")
    if kind.startswith("text/"):
        return {"type": "text", "media_type": "text/plain", "data": text_of(data, place)}
    return {"type": "base64", "media_type": kind, "data": data}


def own_body(call: Call) -> Mapping[str, Any]:
    """Return the body of `call`, in Anthropic's form, without unsigned reasoning, which the notes
    name."""
    body = call.body
    messages = body.get("messages")
    if not isinstance(messages, Raw) or not _REASONING.search(messages):
        return body
    decoded = read_json(messages, _decode_turns)
    if decoded is not None and not any(
        block.unsigned
        for turn in decoded
        if isinstance(turn.content, list)
        for block in turn.content
    ):
        return body
    turns = without_unsigned_reasoning(messages)
    if turns is messages:
        return body
    left_out(call, UNSIGNED_REASONING)
    reduced = {**body, "messages": turns}
    thinking = plain_value(body.get("thinking"))
    if isinstance(thinking, dict) and thinking.get("type") == "enabled" and lacks_reasoning(turns):
        left_out(call, "thinking")
        del reduced["thinking"]
    return reduced


def without_unsigned_reasoning(messages: Raw) -> Any:
    turns: Any = read_json(messages)
    remaining: list[Any] = []
    has_unsigned = False
    for turn in turns if isinstance(turns, list) else ():
        match turn:
            case {"role": "assistant", "content": [*blocks]}:
                signed = [block for block in blocks if not _is_unsigned(block)]
                has_unsigned = has_unsigned or len(signed) < len(blocks)
                if signed or not blocks:
                    remaining.append({**turn, "content": signed})
            case _:
                remaining.append(turn)
    return remaining if has_unsigned else messages


def _is_unsigned(block: Any) -> bool:
    match block:
        case {"type": "thinking"}:
            return not block.get("signature")
    return False


def lacks_reasoning(turns: Sequence[Any]) -> bool:
    """Return whether the assistant's last turn calls a tool and does not begin with reasoning."""
    for turn in reversed(turns):
        match turn:
            case {"role": "assistant", "content": [{"type": "thinking" | "redacted_thinking"}, *_]}:
                return False
            case {"role": "assistant"}:
                blocks = turn.get("content")
                return isinstance(blocks, list) and any(
                    isinstance(block, dict) and block.get("type") == "tool_use" for block in blocks
                )
    return False
