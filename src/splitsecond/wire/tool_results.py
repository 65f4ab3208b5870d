"""Results of tools, in the messages of a chat, for dialects whose results are less than Anthropic's.

There a result may hold pictures, and may say that it is a failure. Where pictures have no place they go into the user's
message that follows the results, with a word on whose they are; where a failure has no word the text begins with one.
"""

from typing import Any

FAILED = "is_error"
"""What a message with a tool's result says, as true, of one that is a failure. OpenAI's messages have no such field."""
_MEDIA = ("image_url", "file", "input_audio")
"""OpenAI's parts that are no text. Those of other types are the target's own, and its to take."""
_BESIDE = "See the next message."
"""In the place of a result that has only pictures."""
_WORD = "Error: "

Fields = dict[str, Any]


def as_text(messages: Any, *, failures: bool = False) -> Any:
    """`messages` of a chat with results that are text alone. `failures`: the dialect has a word for one.

    What is no list of messages comes back as it is: to say so is for whoever reads them.
    """
    if not isinstance(messages, list) or not any(_is_result(message) for message in messages):
        return messages
    made: list[Any] = []
    pictures: list[Fields] = []
    for message in messages:
        if _is_result(message):
            result, beside = _apart(message)
            made.append(result if failures else _marked(result))
            pictures += beside
            continue
        if pictures:
            message = _after(pictures, message, made)
            pictures = []
        made.append(message)
    return [*made, {"role": "user", "content": pictures}] if pictures else made


def marked(messages: Any) -> Any:
    """`messages`, for who has no word for a failure, but a place for pictures."""
    if not isinstance(messages, list):
        return messages
    return [_marked(message) if _is_result(message) else message for message in messages]


def _marked(message: Fields) -> Fields:
    """A message with a tool's result, for who has no word for a failure: its text says it."""
    if FAILED not in message:
        return message
    rest = {name: value for name, value in message.items() if name != FAILED}
    content = message.get("content") or ""
    if message[FAILED] is not True or not isinstance(content, str | list):
        return rest
    if _text(content).lower().startswith(_WORD.strip().lower()):
        return rest
    if isinstance(content, str):
        return {**rest, "content": _WORD + content}
    return {**rest, "content": [{"type": "text", "text": _WORD.strip()}, *content]}


def _is_result(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "tool"


def _apart(message: Fields) -> tuple[Fields, list[Fields]]:
    """The message with its texts alone, and what stands beside it."""
    content = message.get("content")
    if not isinstance(content, list) or not any(_is_of(part, *_MEDIA) for part in content):
        return message, []
    texts = [part for part in content if not _is_of(part, *_MEDIA)]
    whose = {"type": "text", "text": f"Of the result of {message.get('tool_call_id')}:"}
    beside = [whose, *(part for part in content if _is_of(part, *_MEDIA))]
    return {**message, "content": texts or _BESIDE}, beside


def _after(pictures: list[Fields], message: Any, made: list[Any]) -> Any:
    """The message that follows the results, with the pictures in it if it is a user's; else they get their own."""
    match message:
        case {"role": "user", "content": str(text)}:
            return {**message, "content": [*pictures, {"type": "text", "text": text}]}
        case {"role": "user", "content": list(parts)}:
            return {**message, "content": [*pictures, *parts]}
    made.append({"role": "user", "content": pictures})
    return message


def _is_of(part: Any, *kinds: str) -> bool:
    return isinstance(part, dict) and part.get("type") in kinds


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text")) for part in content if _is_of(part, "text"))
