"""Fields of a request that policies read in any API format: its messages, its response format, its
reasoning effort.

A call holds its fields as the client's own bytes.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.large_bodies import off_loop
from splitsecond.core.service import Call
from splitsecond.core.upstream.prompt_size import raw_bytes
from splitsecond.core.validation import has_too_many_values, plain_value, read_json
from splitsecond.core.wire.client_format import client_format

T = TypeVar("T")

LONGEST_BYTES = 64 * 1024
"""The most messages that are decoded. Of longer ones only the length is known."""

_SYSTEM_ROLES = ("system", "developer")
_TEXT_PARTS = frozenset(
    {"text", "input_text", "output_text", "refusal", "thinking", "tool_use", "tool_result"}
)
"""Types of parts without pictures or sound."""
_OPTIONAL = (None, "auto", "none")
"""Values of ``tool_choice`` that do not require a tool."""


class PromptPart(Struct, gc=False):
    """One part of a content that is a list: ``type`` is "text", "image_url", "input_audio", …"""

    type: str = ""
    text: str | None = None


class PromptMessage(Struct, gc=False):
    """One message. `content` None: a tool call, or an item of OpenAI's Responses that is not a
    message."""

    role: str = ""
    content: str | list[PromptPart] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or () if part.text)

    @property
    def has_media(self) -> bool:
        return not isinstance(self.content, str) and any(
            part.type not in _TEXT_PARTS for part in self.content or ()
        )


_decode = msgspec.json.Decoder(list[PromptMessage] | str).decode
_decode_raw = msgspec.json.Decoder(list[Raw]).decode


async def examined(call: Call, work: Callable[[Call], T]) -> T:
    return await off_loop(call.client, work, call) if call.notes.large else work(call)


def messages(call: Call) -> list[PromptMessage] | None:
    value = call.body.get(client_format(call).messages_field)
    try:
        if isinstance(value, Raw):
            data = memoryview(value)
            if len(data) > LONGEST_BYTES:
                return None
            prompt = _decode(data)
        else:
            prompt = msgspec.convert(value, list[PromptMessage] | str)
    except (ValueError, RecursionError):
        return None
    return [PromptMessage("user", prompt)] if isinstance(prompt, str) else prompt


def raw_items(call: Call, name: str) -> list[Raw] | None:
    """Return the items of the list in a field, not decoded; None: it is not a list, or one of too
    many values."""
    data = raw_bytes(call.body.get(name))
    return None if has_too_many_values(data) else read_json(data, _decode_raw)


def last_user_text(turns: list[PromptMessage]) -> str:
    return next(
        (text for message in reversed(turns) if message.role == "user" and (text := message.text)),
        "",
    )


def field_value(call: Call, name: str) -> Any:
    return plain_value(call.body.get(name))


def wanted_form(call: Call) -> Any:
    paths = client_format(call).output_format
    form = next((form for path in paths if (form := _at(call, path)) is not None), None)
    return None if form == {"type": "text"} else form


def wanted_effort(call: Call) -> str:
    effort = _at(call, client_format(call).effort)
    return effort if isinstance(effort, str) else ""


def must_call(call: Call) -> bool:
    choice = field_value(call, "tool_choice")
    return (choice.get("type") if isinstance(choice, dict) else choice) not in _OPTIONAL


def _at(call: Call, path: tuple[str, ...]) -> Any:
    name, *keys = path
    value = field_value(call, name) if name in call.body else None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def with_instruction(call: Call, instruction: str) -> Call | None:
    """Return `call` with `instruction` at the end of its system prompt; None: these are not the
    messages of a chat.

    Many models take one system message only, as the first one: it is extended, or added if it is
    missing.
    """
    request = client_format(call)
    if request.system_field:
        return _with_system(call, request.system_field, instruction)
    turns = raw_items(call, request.messages_field)
    first: Any = read_json(turns[0]) if turns else {}
    if turns is None or not isinstance(first, dict):
        return None
    content = first.get("content")
    if first.get("role") in _SYSTEM_ROLES and isinstance(content, str | list):
        text = {"type": "text", "text": instruction}
        first["content"] = (
            f"{content}\n\n{instruction}" if isinstance(content, str) else [*content, text]
        )
        turns[0] = Raw(msgspec.json.encode(first))
    else:
        turns.insert(0, Raw(msgspec.json.encode({"role": "system", "content": instruction})))
    body = {**call.body, request.messages_field: Raw(msgspec.json.encode(turns))}
    return msgspec.structs.replace(call, body=body)


def _with_system(call: Call, name: str, instruction: str) -> Call | None:
    match field_value(call, name):
        case None | "":
            system: Any = instruction
        case str(text):
            system = f"{text}\n\n{instruction}"
        case [*blocks]:
            system = [*blocks, {"type": "text", "text": instruction}]
        case _:
            return None
    return msgspec.structs.replace(call, body={**call.body, name: system})


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}\n[…]\n{text[-most // 2 :]}"
