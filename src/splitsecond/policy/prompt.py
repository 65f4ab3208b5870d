"""The messages of a chat, as far as a policy looks at them: who spoke, what was said, whether there was more than text.

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


class Part(Struct, gc=False):
    """One part of a content that is a list: ``type`` is "text", "image_url", "input_audio", …"""

    type: str = ""
    text: str | None = None


class Message(Struct, gc=False):
    """One message; `content` None: a tool call."""

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
        return not isinstance(self.content, str) and any(part.type != "text" for part in self.content or ())


_decode = msgspec.json.Decoder(list[Message]).decode
_decode_raw = msgspec.json.Decoder(list[Raw]).decode


def messages(call: Call) -> list[Message] | None:
    """The messages of a chat. None: there are none, they are not of this form, or longer than `LONGEST_BYTES`."""
    value = call.body.get("messages")
    try:
        if isinstance(value, Raw):
            data = memoryview(value)
            return _decode(data) if len(data) <= LONGEST_BYTES else None
        return msgspec.convert(value, list[Message])
    except (ValueError, RecursionError):
        return None


def last_asked(said: list[Message]) -> str:
    """The text of the last message of a user."""
    return next((message.text for message in reversed(said) if message.role == "user"), "")


def plain(call: Call, name: str) -> Any:
    """The value of a field; None where it is missing, null, or no JSON."""
    value = call.body.get(name)
    if not isinstance(value, Raw):
        return value
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return None


def told(call: Call, instruction: str) -> Call | None:
    """`call` with `instruction` in its system message: at its end, or as the first message where there is none.

    Many models take a system message in the first place only, and one. None: these are not the messages of a chat.
    """
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


def shortened(text: str, most: int) -> str:
    """`text`, with its middle left out where it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]}\n[…]\n{text[-most // 2 :]}"
