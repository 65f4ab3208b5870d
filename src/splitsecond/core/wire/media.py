"""What the model reads in a request beside its text: pictures, and content of unknown length.

Media count only where the client's API format defines them: in parts of messages and of tool
results. Base64 anywhere else is text. Of unknown length, because their size in bytes tells little,
are documents, sounds and videos, inline or by reference; what the provider has stored (an earlier
response, a file, a cached prompt); what tools of the provider read, such as a web search. A picture
has a largest number of tokens. An address counts as a picture if its ending says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.service import Call, Spoken
from splitsecond.core.validation import may_have_too_many_values, read_json
from splitsecond.core.wire.chat_form import media_type
from splitsecond.core.wire.translation import MAX_MESSAGES

MAX_DEPTH = 4
"""Parts within parts: a picture in a document in a tool's result. Deeper ones are text."""
_CONTAINERS = (list, dict)
_PICTURES = "image/"


_PARTS: Mapping[Spoken, Mapping[str, tuple[str, ...]]] = {
    "openai": {
        "image_url": ("image_url",),
        "input_audio": ("input_audio",),
        "audio_url": ("audio_url",),
        "video_url": ("video_url",),
        "file": ("file",),
        # Without a type: Gemini's own parts, which pass to its targets, and the assistant's sound
        # in a message.
        "": ("inlineData", "inline_data", "fileData", "file_data", "audio"),
    },
    "anthropic": {
        "image": ("source",),
        "document": ("source",),
        "container_upload": ("file_id",),
    },
    "responses": {
        "input_image": ("image_url", "file_id"),
        "computer_screenshot": ("image_url", "file_id"),
        "image_generation_call": ("result", "id"),
        "input_audio": ("input_audio",),
        "input_file": ("file_data", "file_url", "file_id"),
        "item_reference": ("id",),
    },
}
"""The types of parts, and of items of a conversation, that are media or refer to something, and
the fields that hold or name it."""
_PICTURE_PARTS = frozenset(
    {"image_url", "", "image", "input_image", "computer_screenshot", "image_generation_call"}
)
"""Those that can be a picture."""
_CONVERSATIONS: Mapping[Spoken, Sequence[str]] = {
    "openai": ("messages", "input"),
    "anthropic": ("messages",),
    "responses": ("input",),
}
"""The fields with messages, items or parts. OpenAI's ``input`` is that of embeddings."""
_INNER_PARTS = ("content", "output")
_ALWAYS_PICTURES = ("file_id", "result", "id")
"""Fields that hold a picture in a part that can be one: no target takes anything else there."""
_REFERENCES = frozenset(
    {"previous_response_id", "conversation", "container", "cachedContent", "cached_content",
    "mcp_servers",
     "web_search_options", "search_parameters", "plugins", "connectors"}
)  # fmt: skip
"""Fields that refer to something at the provider, or let it search."""
_CLIENT_TOOLS = (
    "function", "custom", "namespace", "local_shell", "apply_patch", "bash", "text_editor",
    "computer", "memory",
)  # fmt: skip
"""How the types of tools begin that the client runs itself."""


class _Tool(Struct, gc=False):
    type: str | None = None
    name: str | None = None


_decode_tools = msgspec.json.Decoder(list[_Tool]).decode


class RequestContent(Struct):
    """What a model reads in a request. `text`: JSON by field, without media. `unbounded`: some
    content has no known length."""

    text: dict[str, memoryview] = {}
    pictures: int = 0
    unbounded: bool = False


def request_content(call: Call) -> RequestContent:
    """Return what a model reads in the body of `call`, in linear time for any body."""
    content = RequestContent()
    for name, value in call.body.items():
        data = memoryview(value if isinstance(value, Raw) else msgspec.json.encode(value))
        first = bytes(data[:1])
        if name == "model" or first not in b'"[{':
            continue
        if name in _CONVERSATIONS[call.api_format] and first != b'"':
            data = _Reader(content, _PARTS[call.api_format]).without_media(data)
        elif name == "tools":
            content.unbounded |= _has_provider_tools(data, call.api_format)
        elif name in _REFERENCES or (name == "prompt" and first == b"{"):
            content.unbounded |= len(data) > len('""')
        elif name == "extra_body":
            content.unbounded |= _has_cached_content(data)
        content.text[name] = data
    return content


class _Reader:
    """Counts the media of a conversation in `content`. `media`: the types of parts."""

    def __init__(self, content: RequestContent, media: Mapping[str, tuple[str, ...]]) -> None:
        self._content = content
        self._media = media
        self._parts = 0
        self._found = False

    def without_media(self, data: memoryview) -> memoryview:
        conversation: Any = None if may_have_too_many_values(data) else read_json(data)
        if conversation is None:
            self._content.unbounded = True
            return data
        self._read(conversation, 0)
        return memoryview(msgspec.json.encode(conversation)) if self._found else data

    def _read(self, value: Any, depth: int) -> None:
        media = self._media
        for item in value if isinstance(value, list) else (value,):
            if not isinstance(item, dict):
                continue
            self._parts += 1
            if self._parts > MAX_MESSAGES:
                self._content.unbounded = True
                return
            kind = item.get("type", "")
            if isinstance(kind, str) and kind in media:
                self._take(kind, item, depth)
            if depth < MAX_DEPTH:
                for name in _INNER_PARTS:
                    if isinstance(inner := item.get(name), _CONTAINERS):
                        self._read(inner, depth + 1)

    def _take(self, kind: str, item: dict[str, Any], depth: int) -> None:
        pictures = 0
        for name in self._media[kind]:
            if name not in item:
                continue
            match item[name]:
                case None:
                    continue
                case {"type": "text"} if name == "source":  # a document that is written as text
                    continue
                case {"type": "content", "content": inner} if (
                    name == "source" and depth < MAX_DEPTH
                ):
                    self._read(inner, depth + 1)
                    continue
                case value if kind in _PICTURE_PARTS and _is_picture(name, value):
                    pictures = 1
                case _:
                    self._content.unbounded = True
            del item[name]
            self._found = True
        self._content.pictures += pictures


def _is_picture(name: str, value: Any) -> bool:
    """Return whether `value`, the field `name` of a part that can be a picture, surely is one."""
    match value:
        case _ if name in _ALWAYS_PICTURES:
            return True
        case {"url": str(url)} | str(url):
            return media_type(url).startswith(_PICTURES)
        case {"type": "file"}:
            return name == "source"
        case {"media_type": str(kind)} | {"mimeType": str(kind)} | {"mime_type": str(kind)}:
            return kind.startswith(_PICTURES)
    return False


def _has_provider_tools(data: memoryview, api_format: Spoken) -> bool:
    """Return whether one of the `tools` of a request is run by the provider, or may be."""
    tools = read_json(data, _decode_tools)
    return tools is None or not all(
        tool.type.startswith(_CLIENT_TOOLS)
        if tool.type
        else tool.name and api_format == "anthropic"
        for tool in tools
    )


def _has_cached_content(data: memoryview) -> bool:
    """Return whether ``extra_body`` refers to cached content (Google), or cannot be read."""
    body: Any = read_json(data)
    match body:
        case None:
            return True
        case {"google": {"cached_content": str(name)}}:
            return bool(name)
    return False
