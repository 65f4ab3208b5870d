"""Messages in OpenAI's form to Gemini's: `contents` of turns by "user" and "model", the system's words beside them.

Turns of one role that follow each other become one, because Gemini wants the results of parallel calls together. A
result says whose it is by the function's name, so the call that it answers must be among the messages.

Models from Gemini 3 on refuse a function call in the history that lacks the signature of the thought behind it. It
comes back in the form of Google's own compatibility endpoint (``extra_content.google.thought_signature``). A history
without it, from another provider or a client that does not know of it, gets the word that Google documents for that.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.errors import CallerFault
from splitsecond.wire.translation import not_translatable

_NO_SIGNATURE = "skip_thought_signature_validator"
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[^,]*)?;base64,", re.ASCII)
_MEDIA_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "pdf": "application/pdf",
}

Parts = list[dict[str, Any]]


def _media(url: str, place: str) -> dict[str, Any]:
    """Data that stands in the URL itself, or a link that Google fetches."""
    if not url.startswith("data:"):
        ending = url.partition("?")[0].rpartition(".")[2].lower()
        media_type = {"mimeType": _MEDIA_TYPES[ending]} if ending in _MEDIA_TYPES else {}
        return {"fileData": {"fileUri": url, **media_type}}
    found = _DATA_URL.match(url)
    if found is None:
        raise CallerFault(f"{place} is no data URL in base64", hint="Expected data:image/png;base64,...")
    return {"inlineData": {"mimeType": found[1], "data": url[found.end() :]}}


class _Text(Struct):
    text: str

    def translated(self, place: str) -> dict[str, Any]:
        return {"text": self.text}


class _Refusal(Struct):
    refusal: str

    def translated(self, place: str) -> dict[str, Any]:
        return {"text": self.refusal}


class _Link(Struct):
    url: str


class _Image(Struct):
    image_url: str | _Link

    def translated(self, place: str) -> dict[str, Any]:
        return _media(self.image_url if isinstance(self.image_url, str) else self.image_url.url, f"{place}.image_url")


class _Sound(Struct):
    data: str
    format: str


class _Audio(Struct):
    input_audio: _Sound

    def translated(self, place: str) -> dict[str, Any]:
        return {"inlineData": {"mimeType": f"audio/{self.input_audio.format}", "data": self.input_audio.data}}


class _Attached(Struct):
    file_data: str | None = None


class _File(Struct):
    file: _Attached

    def translated(self, place: str) -> dict[str, Any]:
        if self.file.file_data is None:
            raise not_translatable(f"{place}.file without file_data", "Gemini", "Send the file's data as a data URL.")
        return _media(self.file.file_data, f"{place}.file.file_data")


_PARTS: Mapping[str, type[_Text | _Refusal | _Image | _Audio | _File]] = {
    "text": _Text,
    "refusal": _Refusal,
    "image_url": _Image,
    "input_audio": _Audio,
    "file": _File,
}


class _Function(Struct):
    name: str
    arguments: str = ""


class _Call(Struct):
    id: str = ""
    type: str = "function"
    function: _Function | None = None
    extra_content: dict[str, Any] | None = None


class _Message(Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: Any = None
    tool_call_id: str | None = None
    is_error: bool | None = None


def translate(messages: Any, *, signed: bool) -> tuple[list[dict[str, Any]], Parts]:
    """``contents``, and the parts of ``systemInstruction``. `signed`: the model wants signatures of thoughts.

    Raises `CallerFault` for messages that are wrong, or hold what Gemini does not take.
    """
    try:
        typed = msgspec.convert(messages, list[_Message])
    except msgspec.ValidationError as error:
        raise CallerFault(f"messages: {error}") from None
    system: Parts = []
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for number, message in enumerate(typed):
        where = f"messages[{number}]"
        match message.role:
            case "system" | "developer":
                system += _parts(message, where)
                continue
            case "user":
                role, parts = "user", _parts(message, where)
            case "assistant":
                calls = message.tool_calls or []
                names |= {call.id: call.function.name for call in calls if call.function is not None}
                role, parts = "model", _parts(message, where) + _calls(message, where, signed=signed)
            case "tool":
                role, parts = "user", [_result(message, where, names)]
            case "function":
                raise not_translatable(f'{where}.role "function"', "Gemini", "Use tools in the place of functions.")
            case other:
                raise CallerFault(f"{where}.role is {other!r}: expected system, developer, user, assistant or tool")
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"role": role, "parts": parts})
    return contents, system


def _parts(message: _Message, where: str) -> Parts:
    content = message.content
    if isinstance(content, str) or content is None:
        return [{"text": text} for text in (content, message.refusal) if text]
    parts: Parts = []
    for number, part in enumerate(content):
        place = f"{where}.content[{number}]"
        kind = part.get("type")
        if kind is None:  # Gemini's own
            parts.append(part)
            continue
        if not isinstance(kind, str) or kind not in _PARTS:
            raise not_translatable(f"{place}.type {kind!r}", "Gemini")
        try:
            translated = msgspec.convert(part, _PARTS[kind]).translated(place)
        except msgspec.ValidationError as error:
            raise CallerFault(f"{place}: {error}") from None
        if translated != {"text": ""}:
            parts.append(translated)
    return parts


def _calls(message: _Message, where: str, *, signed: bool) -> Parts:
    if message.function_call is not None:
        raise not_translatable(f"{where}.function_call", "Gemini", "Use tool_calls.")
    parts: Parts = []
    for number, call in enumerate(message.tool_calls or ()):
        place = f"{where}.tool_calls[{number}]"
        if call.function is None:
            raise not_translatable(f"{place}.type {call.type!r}", "Gemini")
        args = _object(call.function.arguments or "{}")
        if args is None:
            raise CallerFault(f"{place}.function.arguments is not the JSON of an object")
        identity = {"id": call.id} if call.id else {}
        part: dict[str, Any] = {"functionCall": {**identity, "name": call.function.name, "args": args}}
        match call.extra_content:
            case {"google": {"thought_signature": str(signature)}}:
                part["thoughtSignature"] = signature
            case _ if signed and number == 0:  # of parallel calls only the first is signed
                part["thoughtSignature"] = _NO_SIGNATURE
        parts.append(part)
    return parts


def _result(message: _Message, where: str, names: Mapping[str, str]) -> dict[str, Any]:
    identity = message.tool_call_id or ""
    if identity not in names:
        raise CallerFault(
            f"{where}.tool_call_id is {message.tool_call_id!r}, which no earlier tool call has",
            hint="Gemini needs the function's name, which only the call holds.",
        )
    parts = _parts(message, where)
    if any(part.keys() != {"text"} for part in parts):
        raise not_translatable(f"{where}.content with anything but text", "Gemini")
    text = "".join(part["text"] for part in parts)
    said = _object(text)
    response = {"error": text} if message.is_error else {"output": text} if said is None else said
    return {"functionResponse": {"id": identity, "name": names[identity], "response": response}}


def _object(text: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError):
        return None
