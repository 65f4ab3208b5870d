"""The client role, writing: a call in OpenAI's form to a request for ``/messages``.

Anthropic demands a limit on output tokens: a call without one gets `DEFAULT_MAX_TOKENS`. Every field that is not
OpenAI's is Anthropic's own and goes through as it is (``thinking``, ``top_k``, ``system``, ``output_config``, …); where
it says the same as a field of OpenAI's, it wins. Tools that are not OpenAI's functions are Anthropic's own too.

The version of the format is ours to say, so its header is set here. On Vertex the body says it, and the path the model.
"""

import re
from typing import Any
from urllib.parse import quote

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.service import Call
from splitsecond.wire.anthropic import foreign, messages
from splitsecond.wire.chat_form import chat_fields, chat_messages, leave_thoughts, looked_up, output_limit
from splitsecond.wire.dialect import STREAM_HEADERS, WHOLE_HEADERS, Encoded, Quirks
from splitsecond.wire.thinking import BUDGETS, LEAST_BUDGET, Thinking, wished
from splitsecond.wire.translation import leave_out, left_out, not_translatable, short

DEFAULT_MAX_TOKENS = 8192
"""Enough for a long answer, and no more than any model takes that is still served."""

_VERTEX_VERSION = "vertex-2023-10-16"
"""The same format as `_VERSION_HEADER` names."""
_VERSION_HEADER = ("anthropic-version", "2023-06-01")
_KNOWN = ("parallel_tool_calls", "service_tier", "user", "safety_identifier")
_PENALTIES = ("presence_penalty", "frequency_penalty")
_SERVICE_TIERS = {
    "auto": "auto",
    "priority": "auto",
    "default": "standard_only",
    "flex": "standard_only",
    "standard_only": "standard_only",
}
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}

_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?!\d))?")
_LEAST_TOP_P = 0.95
_FIRST_THINKING = (3, 7)
_FIRST_ADAPTIVE = (4, 6)
_NEWEST = (99, 0)
"""The version of a Claude whose name has none ("claude-opus-latest")."""


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    """`call` as a request to the model that Anthropic calls `model`.

    Raises `CallerFault`: "not_translatable" names the field that Anthropic has not.
    """
    fields = chat_fields(call, "Anthropic", known=_KNOWN)
    streamed = quirks.streamed(call)
    body: dict[str, Any] = {"model": model, "stream": streamed}
    turns = chat_messages(fields.pop("messages", []), "Anthropic", pictures=True, failures=True)
    leave_thoughts(call, turns)
    system, body["messages"] = messages.translate(turns)
    if system:
        body["system"] = system
    if call.hints.get("prompt_cache") == "mark":
        messages.mark_end(system, body["messages"])
    leave_out(call, fields, "seed")
    _refuse_sampling(fields)
    if (stop := fields.pop("stop", None)) is not None:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if (tier := looked_up(fields, "service_tier", _SERVICE_TIERS, "Anthropic")) is not None:
        body["service_tier"] = tier
    body |= _whom(fields)
    body |= _tools(fields)
    limit = output_limit(fields)
    config = _format(fields.pop("response_format", None))
    wish = wished(call, fields, model, quirks.thinking, own="thinking")
    if wish is not None and wish.said:
        thinking, chosen = _thinking(call, wish, model, limit, body)
        if thinking and not wish.off:
            _leave_sampling(call, fields)
        body |= thinking
        config |= chosen
    config |= _object("output_config", fields.pop("output_config", {}))
    if config:
        body["output_config"] = config
    body |= fields
    body["max_tokens"] = _default_limit(body.get("thinking")) if limit is None else limit
    return _request(body, model, quirks, streamed)


def pass_on(call: Call, model: str, quirks: Quirks) -> Encoded:
    """`call`, whose body is Anthropic's already, as a request to `model`: its fields go through as they came.

    Only thoughts of other makers' models are taken out of the conversation (`foreign`). The names of features that are
    not settled yet (``anthropic-beta``) go along, if its hints hold some.
    """
    streamed = quirks.streamed(call)
    body = {**foreign.own(call), "model": model, "stream": streamed}
    return _request(body, model, quirks, streamed, call.hints.get("betas", ""))


def count(call: Call, model: str) -> Encoded:
    """`call`, whose body is Anthropic's, as the question how many tokens of `model` it has."""
    betas = call.hints.get("betas", "")
    fresh = (("anthropic-beta", betas),) if betas else ()
    body = msgspec.json.encode({**foreign.own(call), "model": model})
    return Encoded("/messages/count_tokens", (*WHOLE_HEADERS, _VERSION_HEADER), body, streamed=False, fresh=fresh)


def _request(body: dict[str, Any], model: str, quirks: Quirks, streamed: bool, betas: str = "") -> Encoded:
    headers = STREAM_HEADERS if streamed else WHOLE_HEADERS
    if quirks.on_vertex:
        named = {"anthropic_beta": [beta.strip() for beta in betas.split(",")]} if betas else {}
        body = {"anthropic_version": _VERTEX_VERSION, **named} | {name: body[name] for name in body if name != "model"}
        path = f"/models/{quote(model, safe='@')}:{'streamRawPredict' if streamed else 'rawPredict'}"
        return Encoded(path, headers, msgspec.json.encode(body), streamed)
    fresh = (("anthropic-beta", betas),) if betas else ()
    return Encoded("/messages", (*headers, _VERSION_HEADER), msgspec.json.encode(body), streamed, fresh=fresh)


def _refuse_sampling(fields: dict[str, Any]) -> None:
    """Refuses what Anthropic has not for sampling, where it would make a difference; takes it out of `fields`."""
    for name in _PENALTIES:
        if (value := fields.pop(name, 0)) != 0:
            raise not_translatable(f"{name} {short(value)}", "Anthropic")
    temperature = fields.get("temperature")
    if isinstance(temperature, int | float) and temperature > 1:
        raise not_translatable(f"temperature {short(temperature)}", "Anthropic", "Possible here: 0 to 1.")


def _leave_sampling(call: Call, fields: dict[str, Any]) -> None:
    """Takes out of `fields` what Anthropic refuses of who thinks: a temperature but 1, a top_k, a top_p below 0.95."""
    temperature, top_p = fields.get("temperature"), fields.get("top_p")
    if temperature != 1:
        leave_out(call, fields, "temperature")
    if isinstance(top_p, int | float) and top_p < _LEAST_TOP_P:
        leave_out(call, fields, "top_p")
    leave_out(call, fields, "top_k")


def _tools(fields: dict[str, Any]) -> dict[str, Any]:
    """``tools`` and ``tool_choice``, out of the fields that go into them; they are taken out of `fields`."""
    tools, choice = fields.pop("tools", None), fields.pop("tool_choice", None)
    parallel = fields.pop("parallel_tool_calls", True)
    if not tools:
        return {}
    if not isinstance(tools, list):
        raise CallerFault(f"tools must be a list, got {short(tools)}")
    translated: dict[str, Any] = {"tools": [_tool(tool) for tool in tools]}
    chosen = {"type": "auto"} if choice is None else _tool_choice(choice)
    if not parallel and chosen["type"] != "none":
        translated["tool_choice"] = {**chosen, "disable_parallel_tool_use": True}
    elif choice is not None:
        translated["tool_choice"] = chosen
    return translated


def _tool(tool: Any) -> dict[str, Any]:
    match tool:
        case {"type": "function", "function": {"name": str()}}:
            function = {key: value for key, value in tool["function"].items() if value is not None}
            schema = function.pop("parameters", None) or {"type": "object", "properties": {}}
            own = {key: value for key, value in tool.items() if key not in ("type", "function")}
            return {**function, "input_schema": schema, **own}
        case {"type": "function"} | {"type": "custom", "custom": _}:
            raise not_translatable(f"the tool {short(tool)}", "Anthropic")
        case dict():
            return tool
    raise CallerFault(f"a tool must be an object, got {short(tool)}")


def _tool_choice(choice: Any) -> dict[str, Any]:
    match choice:
        case str() if choice in _CHOICES:
            return {"type": _CHOICES[choice]}
        case {"type": "function", "function": {"name": str(name)}}:
            return {"type": "tool", "name": name}
        case {"type": "auto" | "any" | "tool" | "none", **_rest}:
            return dict(choice)
    raise not_translatable(f"tool_choice {short(choice)}", "Anthropic")


def _format(wanted: Any) -> dict[str, Any]:
    """What ``output_config`` says of the format."""
    match wanted:
        case None | {"type": "text"}:
            return {}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return {"format": {"type": "json_schema", "schema": schema}}
    raise not_translatable(f"response_format {short(wanted)}", "Anthropic", "Possible here: text, json_schema.")


def _thinking(
    call: Call, wish: Thinking, model: str, limit: Any, body: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``thinking``, and what the wish adds to ``output_config``, for a request that is `body` so far.

    Claude thinks as far as it finds right since 4.6, and up to a budget before that, which is part of the limit on
    output tokens; before 3.7 it does not think. Other makers' models with this dialect know the budget. Who thinks
    cannot be made to call a tool, and who thinks by a budget must have the thoughts behind the calls that are being
    answered: then it does not think.
    """
    if wish.off:
        return {"thinking": {"type": "disabled"}}, {}
    version = _version(model)
    adaptive = version is not None and version >= _FIRST_ADAPTIVE
    config = {"effort": wish.level(call, _EFFORTS)} if adaptive and wish.tokens is not None else {}
    budget = wish.tokens or BUDGETS["medium"]
    if isinstance(limit, int):
        budget = min(budget, limit - 1)
    forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    unable = version is not None and version < _FIRST_THINKING
    if forced or unable or (not adaptive and (budget < LEAST_BUDGET or foreign.lacks_thoughts(body["messages"]))):
        left_out(call, wish.name)
        return {}, config
    shown = {} if wish.shown is None else {"display": "summarized" if wish.shown else "omitted"}
    how = {"type": "adaptive"} if adaptive else {"type": "enabled", "budget_tokens": budget}
    return {"thinking": {**how, **shown}}, config


def _version(model: str) -> tuple[int, int] | None:
    """Which Claude it is; None: it is none."""
    found = _VERSION.search(model)
    if found is None:
        return _NEWEST if "claude" in model else None
    return int(found[1]), int(found[2] or 0)


def _whom(fields: dict[str, Any]) -> dict[str, Any]:
    """``metadata``, which says for whom the request is, as OpenAI's newer and older field do."""
    older, newer = fields.pop("user", None), fields.pop("safety_identifier", None)
    said = older if newer is None else newer
    return {"metadata": {"user_id": said}} if isinstance(said, str) else {}


def _default_limit(thinking: Any) -> int:
    match thinking:
        case {"budget_tokens": int(budget)}:  # which the limit has to exceed
            return budget + DEFAULT_MAX_TOKENS
    return DEFAULT_MAX_TOKENS


def _object(field: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CallerFault(f"{field} must be an object, got {short(value)}")
    return value
