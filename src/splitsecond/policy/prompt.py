"""What a policy looks at of a chat, whatever the dialect of its client: who spoke, what was said, what is asked for.

A call holds them as the client's own bytes. They are decoded to what is named here, and only where they are short
enough; an instruction is put in without decoding the rest.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.service import Call

LONGEST_BYTES = 64 * 1024
"""Of messages that are decoded. What is longer is known by its length alone."""

_SYSTEM = ("system", "developer")
_IN_WORDS = frozenset({"text", "input_text", "output_text", "refusal", "thinking", "tool_use", "tool_result"})
"""Types of parts that hold nothing to be seen or heard."""
_FREE = (None, "auto", "none")


class Part(Struct, gc=False):
    """One part of a content that is a list: ``type`` is "text", "image_url", "input_audio", …"""

    type: str = ""
    text: str | None = None


class Message(Struct, gc=False):
    """One message; `content` None: a tool call, or (OpenAI's Responses) another item that is no message."""

    role: str = ""
    content: str | list[Part] | None = None

    @property
    def text(self) -> str:
        """What it says in words."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or () if part.text)

    @property
    def shows(self) -> bool:
        """It holds more than text: a picture, a sound, a file."""
        return not isinstance(self.content, str) and any(part.type not in _IN_WORDS for part in self.content or ())


_decode = msgspec.json.Decoder(list[Message] | str).decode
_decode_raw = msgspec.json.Decoder(list[Raw]).decode


def messages(call: Call) -> list[Message] | None:
    """The messages of a chat. None: there are none, they are not of this form, or longer than `LONGEST_BYTES`."""
    value = call.body.get("input" if call.dialect == "responses" else "messages")
    try:
        if isinstance(value, Raw):
            data = memoryview(value)
            if len(data) > LONGEST_BYTES:
                return None
            said = _decode(data)
        else:
            said = msgspec.convert(value, list[Message] | str)
    except (ValueError, RecursionError):
        return None
    return [Message("user", said)] if isinstance(said, str) else said


def last_asked(said: list[Message]) -> str:
    """The text of the last message of a user that has some; of results of tools Anthropic makes such messages too."""
    return next((text for message in reversed(said) if message.role == "user" and (text := message.text)), "")


def plain(call: Call, name: str) -> Any:
    """The value of a field; None where it is missing, null, or no JSON."""
    value = call.body.get(name)
    if not isinstance(value, Raw):
        return value
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return None


def wanted_form(call: Call) -> Any:
    """What form the answer must have, in the words of the call's dialect; None where any will do."""
    body = call.body
    match call.dialect:
        case "openai":
            form = plain(call, "response_format") if "response_format" in body else None
        case "anthropic":
            form = _inside(call, "output_config", "format") or plain(call, "output_format")
        case "responses":
            form = _inside(call, "text", "format")
    return None if form == {"type": "text"} else form


def wanted_effort(call: Call) -> str:
    """How far the model is to think, in a word; "" where nothing is said of that."""
    match call.dialect:
        case "openai":
            effort = plain(call, "reasoning_effort") if "reasoning_effort" in call.body else None
        case "anthropic":
            effort = _inside(call, "output_config", "effort")
        case "responses":
            effort = _inside(call, "reasoning", "effort")
    return effort if isinstance(effort, str) else ""


def must_call(call: Call) -> bool:
    """Whether the answer must call a tool."""
    choice = plain(call, "tool_choice")
    return (choice.get("type") if isinstance(choice, dict) else choice) not in _FREE


def _inside(call: Call, name: str, key: str) -> Any:
    value = plain(call, name) if name in call.body else None
    return value.get(key) if isinstance(value, dict) else None


def told(call: Call, instruction: str) -> Call | None:
    """`call` with `instruction` in its system message: at its end, or as the first message where there is none.

    Many models take a system message in the first place only, and one. None: these are not the messages of a chat.
    Where the dialect has its system's words beside the messages, it stands at their end.
    """
    if call.dialect != "openai":
        return _told_beside(call, "system" if call.dialect == "anthropic" else "instructions", instruction)
    value = call.body.get("messages")
    try:
        said = _decode_raw(value if isinstance(value, Raw) else msgspec.json.encode(value))
        first = msgspec.json.decode(said[0], type=dict[str, Any]) if said else {}
    except (ValueError, TypeError, RecursionError):
        return None
    content = first.get("content")
    if first.get("role") in _SYSTEM and isinstance(content, str | list):
        text = {"type": "text", "text": instruction}
        first["content"] = f"{content}\n\n{instruction}" if isinstance(content, str) else [*content, text]
        said[0] = Raw(msgspec.json.encode(first))
    else:
        said.insert(0, Raw(msgspec.json.encode({"role": "system", "content": instruction})))
    return msgspec.structs.replace(call, body={**call.body, "messages": Raw(msgspec.json.encode(said))})


def _told_beside(call: Call, name: str, instruction: str) -> Call | None:
    match plain(call, name):
        case None | "":
            words: Any = instruction
        case str(system):
            words = f"{system}\n\n{instruction}"
        case [*blocks]:
            words = [*blocks, {"type": "text", "text": instruction}]
        case _:
            return None
    return msgspec.structs.replace(call, body={**call.body, name: words})


def shortened(text: str, most: int) -> str:
    """`text`, with its middle left out where it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]}\n[…]\n{text[-most // 2 :]}"
