"""The client role, writing: a call in OpenAI's chat form to a request for ``/responses``.

Many fields are the same in both. Two differ in what they are when nobody says it: an answer is stored, and the
schemas of tools are strict; both are said, as in a chat they are not. What chat has and Responses has not is dropped or
refused by the tables of `chat_form`, and by one here. Every field that is not chat's goes through (``instructions``,
``include``, ``previous_response_id``, ``reasoning``, ``text``), and wins over what was made of chat's; so do tools that
are no functions.
"""

from typing import Any

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.service import Call
from splitsecond.wire.chat_form import chat_fields, chat_messages, leave_thoughts, output_limit
from splitsecond.wire.dialect import STREAM_HEADERS, WHOLE_HEADERS, Encoded, Quirks
from splitsecond.wire.responses import items
from splitsecond.wire.responses.foreign import without_foreign_items
from splitsecond.wire.thinking import EFFORTS, Thinking, wished
from splitsecond.wire.translation import leave_out, not_translatable, short

_KNOWN = (
    "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
    "service_tier", "store", "user", "verbosity",
)  # fmt: skip
"""Fields of chat that other dialects have not, and this one has."""
_REFUSED: dict[str, tuple[Any, ...]] = {
    "stop": ([],),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
"""What would change the answer, and the values that would not."""


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    """`call` as a request to the model that OpenAI calls `model`. Of `quirks`, `stream_whole` and `thinking` matter.

    Raises `CallerFault`: "not_translatable" names the field that the Responses API has not.
    """
    fields = chat_fields(call, "Responses", known=_KNOWN)
    leave_out(call, fields, "seed")
    for name, harmless in _REFUSED.items():
        if name in fields and (value := fields.pop(name)) not in harmless:
            raise not_translatable(f"{name} {short(value)}", "Responses")
    streamed = quirks.streamed(call)
    body: dict[str, Any] = {"model": model, "stream": streamed, "store": False}
    if "messages" in fields or "input" not in fields:
        said = chat_messages(fields.pop("messages", []), "Responses", pictures=True)
        leave_thoughts(call, said)
        body["input"] = items.translate(said)
    if (limit := output_limit(fields)) is not None:
        body["max_output_tokens"] = limit
    if tools := fields.pop("tools", None):
        body["tools"] = [_tool(tool) for tool in tools] if isinstance(tools, list) else tools
    if (choice := fields.pop("tool_choice", None)) is not None:
        body["tool_choice"] = _tool_choice(choice)
    text = {"verbosity": fields.pop("verbosity")} if "verbosity" in fields else {}
    if (wanted := fields.pop("response_format", None)) is not None:
        text["format"] = _format(wanted)
    if text := text | _object("text", fields.pop("text", {})):
        body["text"] = text
    wish = wished(call, fields, model, quirks.thinking, own="reasoning")
    if reasoning := (_reasoning(call, wish) if wish else {}) | _object("reasoning", fields.pop("reasoning", {})):
        body["reasoning"] = reasoning
    headers = STREAM_HEADERS if streamed else WHOLE_HEADERS
    return Encoded("/responses", headers, msgspec.json.encode(body | fields), streamed)


def pass_on(call: Call, model: str, quirks: Quirks) -> Encoded:
    """`call`, whose body is the API's already, as a request to `model`: its fields go through as they came.

    Only what other makers' models left in the conversation is taken out (`foreign`).
    """
    streamed = quirks.streamed(call)
    headers = STREAM_HEADERS if streamed else WHOLE_HEADERS
    body = {**call.body, "model": model, "stream": streamed}
    if "input" in body:
        body["input"] = without_foreign_items(call)
    if not streamed:
        body.pop("stream_options", None)  # refused where there is no stream
    return Encoded("/responses", headers, msgspec.json.encode(body), streamed)


def _reasoning(call: Call, wish: Thinking) -> dict[str, Any]:
    """``reasoning``. Thoughts are told as a summary, and only to who asks for it."""
    made = {"effort": wish.level(call, EFFORTS)} if wish.said else {}
    return {**made, "summary": "auto"} if wish.shown else made


def _tool(tool: Any) -> dict[str, Any]:
    match tool:
        case {"type": "function", "function": {"name": str()} as function}:
            said = {name: value for name, value in function.items() if value is not None}
            return {"type": "function", "parameters": None, "strict": False, **said}
        case {"type": "custom", "custom": {"name": str()} as custom}:
            return {"type": "custom", **custom}
        case {"type": str(), **_rest}:
            return dict(tool)
    raise CallerFault(f"a tool must be an object with a type, got {short(tool)}")


def _tool_choice(choice: Any) -> Any:
    match choice:
        case "auto" | "none" | "required":
            return choice
        case {"type": "function", "function": {"name": str(name)}}:
            return {"type": "function", "name": name}
        case {"type": "custom", "custom": {"name": str(name)}}:
            return {"type": "custom", "name": name}
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*tools]}}:
            return {"type": "allowed_tools", "mode": mode, "tools": [_tool_choice(tool) for tool in tools]}
        case {"type": str()}:
            return choice
    raise not_translatable(f"tool_choice {short(choice)}", "Responses")


def _format(wanted: Any) -> dict[str, Any]:
    match wanted:
        case {"type": "text" | "json_object"}:
            return dict(wanted)
        case {"type": "json_schema", "json_schema": {"schema": dict()} as named}:
            return {"type": "json_schema", "name": "answer", **named}
    raise not_translatable(f"response_format {short(wanted)}", "Responses")


def _object(field: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CallerFault(f"{field} must be an object, got {short(value)}")
    return value
