"""A chat in OpenAI's form, read for dialects whose own form is close to it: what they have not, and the messages.

Two tables say what becomes of fields that such a dialect has no word for: those that change nothing in the answer are
dropped, and named in the call's notes; those that would are refused by name, unless their value asks for what would
happen anyway. What is not OpenAI's is the dialect's own, in the request and in each message: it goes through as it is.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from splitsecond.errors import CallerFault
from splitsecond.service import Call
from splitsecond.wire import tool_results
from splitsecond.wire.translation import leave_out, left_out, not_translatable, plain_fields, short

_OURS = ("model", "stream", "stream_options")
"""Fields that are ours to say to a provider."""
_DROPPED: Mapping[str, tuple[Any, ...]] = {
    "user": (),
    "metadata": (),
    "store": (False,),
    "safety_identifier": (),
    "prompt_cache_key": (),
    "prompt_cache_retention": (),
    "prediction": (),
    "service_tier": ("auto",),
    "verbosity": ("medium",),
    "parallel_tool_calls": (True,),
}
"""What changes nothing in the answer, or only its manner, and the values that need not be spoken of. Agents send the
last two with every request: who asks for one tool call at a time may be given several, and is told that the wish was
left out."""

_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "audio": (),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "web_search_options": (),
}
"""What would change the answer, and the values that would not."""


class Function(Struct):
    """What a tool call calls; `arguments` is JSON."""

    name: str
    arguments: str = ""


class ToolCall(Struct):
    """A call that the assistant made."""

    id: str = ""
    type: str = "function"
    function: Function | None = None


class Message(Struct):
    """One message. `role` is "developer" no more, but "system"; `native` holds the fields that OpenAI's form has not.

    `refusal` is an assistant's; `tool_call_id`, `name` and `is_error` are a tool's.
    """

    role: str
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Any = None
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool | None = None
    audio: Any = None
    native: dict[str, Any] = {}

    @property
    def thought(self) -> str:
        """What the assistant thought before it spoke, under either of its names."""
        return self.reasoning_content or self.reasoning or ""


THOUGHTS = "reasoning_content"
"""The field of a message with what its assistant thought."""
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_OPENAI_FIELDS = frozenset(Message.__struct_fields__) - {"native"} | {"annotations"}


def chat_fields(call: Call, dialect: str, *, known: Collection[str] = ()) -> dict[str, Any]:
    """The fields of `call` that mean something to `dialect`, as plain values.

    `known` names those that it has a word for, though most such dialects have none. Raises `CallerFault` where the call
    is no chat, or asks for what such a dialect has not.
    """
    if call.operation != "chat":
        raise not_translatable(f"a call of {call.operation}", dialect, "Ask for a chat.")
    fields = plain_fields(call)
    for name in _OURS:
        fields.pop(name, None)
    for name, usual in _DROPPED.items():
        if name not in known:
            if fields.get(name) in usual:
                del fields[name]
            leave_out(call, fields, name)
    for name, harmless in _REFUSED.items():
        if name in fields and name not in known and (value := fields.pop(name)) not in harmless:
            raise not_translatable(f"{name} {short(value)}", dialect)
    return fields


def chat_messages(value: Any, dialect: str, *, pictures: bool = False, failures: bool = False) -> list[Message]:
    """The messages of a chat. `pictures`: the results of tools may hold some; `failures`: they may say that they are
    one; else these are told in text (`tool_results`).

    Raises `CallerFault` for messages that are wrong, or of a form that OpenAI gave up.
    """
    if not pictures:
        value = tool_results.as_text(value, failures=failures)
    elif not failures:
        value = tool_results.marked(value)
    try:
        messages = msgspec.convert(value, list[Message])
    except msgspec.ValidationError as error:
        raise CallerFault(f"messages: {error}") from None
    if not messages:
        raise CallerFault("the request has no messages")
    for number, (message, fields) in enumerate(zip(messages, value, strict=True)):
        where = f"messages[{number}]"
        if message.role == "function" or message.function_call is not None:
            raise not_translatable(f"{where}, which is of the time before tools,", dialect, "Use tools and tool_calls.")
        if message.audio is not None:
            raise not_translatable(f"{where}.audio", dialect)
        if message.role not in _ROLES:
            raise CallerFault(f"{where}.role is {message.role!r}: expected one of {', '.join(_ROLES)}")
        message.role = _ROLES[message.role]
        message.native = {name: own for name, own in fields.items() if name not in _OPENAI_FIELDS}
    return messages


def leave_thoughts(call: Call, messages: Sequence[Message]) -> None:
    """Tells the client, if its `messages` hold what an assistant thought, that this goes to no target but its own."""
    if any(message.thought for message in messages):
        left_out(call, THOUGHTS)


def begun(chat: Call, prefill: str | bool | None) -> Call:
    """`chat`, whose last message may be the beginning of its answer, for a target that goes on from there: `prefill`
    is how it is told of that, as the catalogue has it.

    Raises `CallerFault` where the target does not go on, or where that is not known: it would answer anew.
    """
    messages: Any = chat.body["messages"]
    last = messages[-1]
    if last["role"] != "assistant" or last.get("tool_calls"):
        return chat
    if not prefill:
        words = f"messages[{len(messages) - 1}], the beginning of the answer,"
        hint = "End the conversation with a user's message. Of a target that goes on from there: prefill: true."
        raise not_translatable(words, "a target that is not known to go on from there", hint)
    if prefill is True or prefill == "plain":
        return chat
    return structs.replace(chat, body={**chat.body, "messages": [*messages[:-1], {**last, prefill: True}]})


def output_limit(fields: dict[str, Any]) -> Any:
    """The limit on output tokens, under either of OpenAI's names, taken out of `fields`; None: there is none."""
    older, newer = fields.pop("max_tokens", None), fields.pop("max_completion_tokens", None)
    return older if newer is None else newer


def looked_up(fields: dict[str, Any], name: str, table: Mapping[str, Any], dialect: str, hint: str = "") -> Any:
    """What `table` makes of the field `name`, which is taken out of `fields`; None: it is not there."""
    value = fields.pop(name, None)
    if value is None:
        return None
    if not isinstance(value, str) or value not in table:
        raise not_translatable(f"{name} {short(value)}", dialect, hint or f"Possible here: {', '.join(table)}.")
    return table[value]
