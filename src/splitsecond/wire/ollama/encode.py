"""The client role, writing: a call in OpenAI's form to a request for ``/api/chat``.

What OpenAI has as fields of their own stands in ``options`` here, some under another name. Tools are the same in both.
A tool choice has no word: "none" leaves the tools out, "auto" is what happens anyway, the rest is refused. Every field
that is not OpenAI's goes through (``options``, ``think``, ``keep_alive``, ``format``), and wins over what was made of
OpenAI's.
"""

from typing import Any

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.service import Call
from splitsecond.wire.chat_form import chat_fields, chat_messages, output_limit
from splitsecond.wire.dialect import WHOLE_HEADERS, Encoded, Quirks
from splitsecond.wire.ollama import messages
from splitsecond.wire.thinking import Thinking, wished
from splitsecond.wire.translation import not_translatable, short

_HEADERS = (("content-type", "application/json"), ("accept", "application/x-ndjson"))

_OPTIONS = ("temperature", "top_p", "seed", "frequency_penalty", "presence_penalty", "top_k", "min_p")
"""What ``options`` calls by the name that OpenAI has for it, or everyone else."""

_EFFORTS = ("none", "low", "medium", "high")


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    """`call` as a request to what the server calls `model`. Of `quirks`, `stream_whole` and `thinking` matter.

    Raises `CallerFault`: "not_translatable" names the field that Ollama has not.
    """
    fields = chat_fields(call, "Ollama")
    streamed = quirks.streamed(call)
    body: dict[str, Any] = {"model": model, "stream": streamed}
    body["messages"] = messages.translate(chat_messages(fields.pop("messages", []), "Ollama"))
    choice, tools = fields.pop("tool_choice", "auto"), fields.pop("tools", None)
    if choice not in ("auto", "none"):
        raise not_translatable(f"tool_choice {short(choice)}", "Ollama", "Possible here: auto, none.")
    if tools and choice == "auto":
        body["tools"] = tools
    if (format_ := _format(fields.pop("response_format", None))) is not None:
        body["format"] = format_
    wish = wished(call, fields, model, quirks.thinking, own="think")
    if wish is not None and wish.said:
        body["think"] = _think(call, wish)
    if options := _options(fields):
        body["options"] = options
    headers = _HEADERS if streamed else WHOLE_HEADERS
    return Encoded("/api/chat", headers, msgspec.json.encode(body | fields), streamed)


def _think(call: Call, wish: Thinking) -> bool | str:
    """``think``: whether, or how far, which few models know. The others think, or do not: any word turns it on."""
    if wish.off:
        return False
    return True if wish.tokens is None else wish.level(call, _EFFORTS)


def _options(fields: dict[str, Any]) -> dict[str, Any]:
    """``options``, out of the fields that go into it; they are taken out of `fields`."""
    options = {name: fields.pop(name) for name in _OPTIONS if name in fields}
    if (limit := output_limit(fields)) is not None:
        options["num_predict"] = limit
    if (stop := fields.pop("stop", None)) is not None:
        options["stop"] = [stop] if isinstance(stop, str) else stop
    given = fields.pop("options", {})
    if not isinstance(given, dict):
        raise CallerFault(f"options must be an object, got {short(given)}")
    return options | given


def _format(wanted: Any) -> Any:
    match wanted:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return "json"
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
    raise not_translatable(f"response_format {short(wanted)}", "Ollama")
