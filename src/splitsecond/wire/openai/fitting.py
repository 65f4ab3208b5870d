"""A chat that was brought over from another dialect, made to fit a provider of this one.

Providers of OpenAI's dialect differ in what they take beside OpenAI's oldest fields, and some refuse a request for a
field that they do not know. What a client of this dialect sends is its own affair and goes through; what another
dialect's request was made into must not hold what its client has never said in these words. So of the fields that few
take only those stay which the provider's quirks name, thoughts go back to those who want them, and how far to think is
said in the provider's own way. What is left out is named: it changes nothing in the answer, or is a matter of degree.
"""

from collections.abc import Mapping
from typing import Any, get_args

from msgspec import structs

from splitsecond.service import Call
from splitsecond.wire import tool_results
from splitsecond.wire.chat_form import THOUGHTS
from splitsecond.wire.dialect import FewTake, Quirks
from splitsecond.wire.thinking import Thinking, Told, told, wished
from splitsecond.wire.translation import leave_out, left_out

_USUAL: Mapping[str, Any] = {"service_tier": "auto", "verbosity": "medium"}
"""Values that ask for what happens anyway, of which nothing need be said."""


def fitted(chat: Call, model: str, quirks: Quirks) -> Call:
    """`chat`, in the form in which another dialect's reader made it, for `model` at a provider with these `quirks`."""
    body = dict(chat.body)
    for name in get_args(FewTake):
        if name in body and name not in quirks.takes:
            if body[name] == _USUAL.get(name):
                del body[name]
            leave_out(chat, body, name)
    wish = wished(chat, body, model, quirks.thinking)
    if wish is not None:
        body |= _said(chat, wish, told(quirks.thinking, model) or Told())
    body["messages"] = _messages(chat, tool_results.as_text(body["messages"]), quirks)
    return structs.replace(chat, body=body)


def _said(chat: Call, wish: Thinking, way: Told) -> dict[str, Any]:
    """How far to think, in the words of the provider."""
    match way.field:
        case "reasoning":
            return _object(wish)
        case _ if not wish.said:
            return {}
        case "thinking":
            return {"thinking": {"type": "disabled" if wish.off else "enabled"}}
        case "enable_thinking":
            budget = {"thinking_budget": wish.tokens} if wish.tokens else {}
            return {"enable_thinking": not wish.off, **budget}
        case _:
            return {"reasoning_effort": wish.level(chat)}


def _object(wish: Thinking) -> dict[str, Any]:
    """OpenRouter's object. An effort and a budget exclude each other there."""
    made: dict[str, Any] = {} if wish.shown is None else {"exclude": not wish.shown}
    if wish.off:
        made["enabled"] = False
    elif wish.budget is not None:
        made["max_tokens"] = wish.budget
    elif wish.effort:
        made["effort"] = wish.effort
    elif wish.on:
        made["enabled"] = True
    return {"reasoning": made} if made else {}


def _messages(chat: Call, messages: list[dict[str, Any]], quirks: Quirks) -> list[dict[str, Any]]:
    """The messages with thoughts for who takes them. Who does wants them with every call of a tool, even if there were
    none, and refuses the conversation else."""
    if quirks.takes_thoughts:
        return [{THOUGHTS: "", **each} if each.get("tool_calls") else each for each in messages]
    if not any(THOUGHTS in message for message in messages):
        return messages
    left_out(chat, THOUGHTS)
    return [{name: each[name] for name in each if name != THOUGHTS} for each in messages]
