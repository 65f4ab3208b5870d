"""Tool results in chat messages, for formats whose results hold no images or no failure flag, as
Anthropic's do.

Images move into the following user message, with a note on the result that they belong to; in the
place of the flag, the text starts with a word.
"""

from typing import Any

FAILED = "is_error"
"""The field that marks a tool's result as a failure, which OpenAI's messages lack."""
_MEDIA = ("image_url", "file", "input_audio")
"""OpenAI's content parts other than text. Other types are the target's own, and pass unchanged."""
_SEE_NEXT = "See the next message."
"""Replaces a result that has only images."""
_PREFIX = "Error: "

Fields = dict[str, Any]


def text_results(messages: Any, *, failures: bool = False) -> Any:
    """Return `messages` with text-only results; a value that is no list is returned unchanged.
    `failures`: the format has a failure flag."""
    if not isinstance(messages, list) or not any(_is_result(message) for message in messages):
        return messages
    plain_messages: list[Any] = []
    pictures: list[Fields] = []
    for message in messages:
        if _is_result(message):
            result, media = _split_media(message)
            plain_messages.append(result if failures else _mark_failure(result))
            pictures += media
            continue
        if pictures:
            message = _with_media(pictures, message, plain_messages)
            pictures = []
        plain_messages.append(message)
    return [*plain_messages, {"role": "user", "content": pictures}] if pictures else plain_messages


def mark_failures(messages: Any) -> Any:
    """Return `messages` for a format without a failure flag, but with images in results."""
    if not isinstance(messages, list):
        return messages
    return [_mark_failure(message) if _is_result(message) else message for message in messages]


def _mark_failure(message: Fields) -> Fields:
    if FAILED not in message:
        return message
    rest = {name: value for name, value in message.items() if name != FAILED}
    content = message.get("content") or ""
    if message[FAILED] is not True or not isinstance(content, str | list):
        return rest
    if _text(content).lower().startswith(_PREFIX.strip().lower()):
        return rest
    if isinstance(content, str):
        return {**rest, "content": _PREFIX + content}
    return {**rest, "content": [{"type": "text", "text": _PREFIX.strip()}, *content]}


def _is_result(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "tool"


def _split_media(message: Fields) -> tuple[Fields, list[Fields]]:
    content = message.get("content")
    if not isinstance(content, list) or not any(_is_of(part, *_MEDIA) for part in content):
        return message, []
    texts = [part for part in content if not _is_of(part, *_MEDIA)]
    whose = {"type": "text", "text": f"Part of the result of {message.get('tool_call_id')}:"}
    media = [whose, *(part for part in content if _is_of(part, *_MEDIA))]
    return {**message, "content": texts or _SEE_NEXT}, media


def _with_media(pictures: list[Fields], message: Any, earlier: list[Any]) -> Any:
    """Return the message after the results with the images in it, if it is a user's; else these get
    their own."""
    match message:
        case {"role": "user", "content": str(text)}:
            return {**message, "content": [*pictures, {"type": "text", "text": text}]}
        case {"role": "user", "content": list(parts)}:
            return {**message, "content": [*pictures, *parts]}
    earlier.append({"role": "user", "content": pictures})
    return message


def _is_of(part: Any, *kinds: str) -> bool:
    return isinstance(part, dict) and part.get("type") in kinds


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text")) for part in content if _is_of(part, "text"))
