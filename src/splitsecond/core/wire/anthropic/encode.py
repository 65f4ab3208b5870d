"""Client role: a call in the common chat form as a request for ``/messages``.

Anthropic requires a limit on output tokens: a call without one gets the maximum of the model
(`default_max_tokens` of the quirks), or `DEFAULT_MAX_TOKENS` where that is not known, and the
call's notes say so. Fields and tools of Anthropic's own pass unchanged and win over a field of
OpenAI's with the same meaning. The version of the format is in a header, the client's own or the
usual one; on Vertex it is in the body, and the model is in the path.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.wire import chat_form
from splitsecond.core.wire.anthropic import messages
from splitsecond.core.wire.anthropic.to_chat import NO_THREAD, no_threads
from splitsecond.core.wire.api_format import STREAM_HEADERS, WHOLE_HEADERS, Encoded, Quirks
from splitsecond.core.wire.reasoning import BUDGETS, MIN_BUDGET, ReasoningRequest, requested
from splitsecond.core.wire.translation import (
    Fields,
    leave_out,
    left_out,
    not_translatable,
    object_field,
    refuse,
    short,
    take_tools,
)

DEFAULT_MAX_TOKENS = 8192
"""Enough for a long answer, and accepted by every model that is still served."""

_JSON_ONLY = "Respond with one JSON object and nothing else: no other text, no code fence."
"""The instruction in the place of the format "json_object"."""

_STOP_HINT = "A stop sequence must have more than whitespace there."

_VERTEX_VERSION = "vertex-2023-10-16"
"""The same format as in `_VERSION_HEADER`."""
_VERSION_HEADER = ("anthropic-version", "2023-06-01")
Headers = tuple[tuple[str, str], ...]
NO_HINTS: Mapping[str, str] = {}
_KNOWN = ("parallel_tool_calls", "service_tier", "user", "safety_identifier", "cache_control")
_SERVICE_TIERS = {
    "auto": "auto",
    "priority": "auto",
    "default": "standard_only",
    "flex": "standard_only",
    "standard_only": "standard_only",
}
_OWN = (
    "temperature", "top_p", "top_k", "system", "thinking", "metadata", "stop_sequences",
    "cache_control", "container",
    "context_management", "inference_geo", "mcp_servers", "speed", "output_format",
    "anthropic_beta",
)  # fmt: skip
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}

_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?!\d))?")
_MIN_TOP_P = 0.95
_FIRST_THINKING = (3, 7)
_FIRST_ADAPTIVE = (4, 6)
_NEWEST = (99, 0)
"""The version of a Claude whose name has no version ("claude-opus-latest")."""


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    fields = chat_form.chat_fields(call, "Anthropic", known=_KNOWN)
    streamed = quirks.streamed(call)
    body: Fields = {"model": model, "stream": streamed}
    turns = chat_form.chat_messages(
        call,
        fields.pop("messages", []),
        "Anthropic",
        own=("cache_control",),
        pictures=True,
        failures=True,
        system_apart=True,
    )
    chat_form.leave_reasoning(call, turns)
    system, body["messages"] = messages.translate(turns)
    if system:
        body["system"] = system
    if mark := call.hints.get("prompt_cache"):
        messages.mark_end([] if mark == "end" else system, body["messages"])
    leave_out(call, fields, "seed")
    _refuse_sampling(fields)
    body |= _stop(fields)
    if (
        tier := chat_form.mapped_field(fields, "service_tier", _SERVICE_TIERS, "Anthropic")
    ) is not None:
        body["service_tier"] = tier
    body |= _metadata(fields) | _tools(fields)
    limit = chat_form.take_output_limit(fields)
    kind, schema = chat_form.output_format(fields, "Anthropic")
    if kind == "json_object":
        left_out(call, "response_format")
        body["system"] = [*system, {"type": "text", "text": _JSON_ONLY}]
    config: Fields = {"format": {"type": kind, "schema": schema}} if kind == "json_schema" else {}
    reasoning = requested(call, fields, model, quirks.thinking, own="thinking")
    if reasoning is not None and reasoning.is_set:
        thinking, chosen = _thinking(call, reasoning, model, limit, body)
        if thinking and not reasoning.off:
            _leave_sampling(call, fields)
        body |= thinking
        config |= chosen
    config |= object_field("output_config", fields.pop("output_config", {}))
    if config:
        body["output_config"] = config
    body |= quirks.native(call, fields, _OWN)
    if limit is None:
        limit = _default_limit(body.get("thinking"), quirks)
        call.notes.added[""] = f"max_tokens={limit}"
    body["max_tokens"] = limit
    return _request(body, model, quirks, streamed)


def _stop(fields: Fields) -> Fields:
    stop = chat_form.stop_list(fields)
    for text in stop if isinstance(stop, list) else ():
        if isinstance(text, str) and not text.strip():
            raise not_translatable(f"stop {short(text)}", "Anthropic", _STOP_HINT)
    return {} if stop is None else {"stop_sequences": stop}


def _metadata(fields: Fields) -> Fields:
    older, newer = fields.pop("user", None), fields.pop("safety_identifier", None)
    user = older if newer is None else newer
    return {"metadata": {"user_id": user}} if isinstance(user, str) else {}


def _default_limit(thinking: Any, quirks: Quirks) -> int:
    limit = quirks.default_max_tokens
    match thinking:
        case {"budget_tokens": int(budget)}:  # the limit must exceed it
            return limit if limit and limit > budget else budget + DEFAULT_MAX_TOKENS
    return limit or DEFAULT_MAX_TOKENS


def pass_on(call: Call, model: str, quirks: Quirks) -> Encoded:
    """Encode `call`, whose body is in Anthropic's form, for `model`: only unsigned reasoning is
    removed (`messages`).

    The version of the format and the names of beta features are the client's, if the call's hints
    hold them. Raises `CallerFault` for a ``thread``, unless the provider keeps them.
    """
    if call.body.get("thread") not in NO_THREAD and not quirks.threads:
        raise no_threads()
    streamed = quirks.streamed(call)
    body = {**messages.own_body(call), "model": model, "stream": streamed}
    return _request(body, model, quirks, streamed, call.hints)


def count(call: Call, model: str) -> Encoded:
    body = msgspec.json.encode({**messages.own_body(call), "model": model})
    version, fresh = _client_headers(call.hints)
    return Encoded(
        "/messages/count_tokens", (*WHOLE_HEADERS, *version), body, streamed=False, fresh=fresh
    )


def _client_headers(hints: Mapping[str, str]) -> tuple[Headers, Headers]:
    """Return the header of the version if it is the usual one, and the client's own headers."""
    own = {"anthropic-version": hints.get("version", ""), "anthropic-beta": hints.get("betas", "")}
    headers = tuple((name, value) for name, value in own.items() if value)
    return () if own["anthropic-version"] else (_VERSION_HEADER,), headers


def _request(
    body: Fields,
    model: str,
    quirks: Quirks,
    streamed: bool,
    hints: Mapping[str, str] = NO_HINTS,
) -> Encoded:
    headers = STREAM_HEADERS if streamed else WHOLE_HEADERS
    body |= quirks.extra_fields
    if quirks.betas:
        client_betas = [beta.strip() for beta in hints.get("betas", "").split(",")]
        hints = {
            **hints,
            "betas": ",".join(dict.fromkeys([*filter(None, client_betas), quirks.betas])),
        }
    if quirks.on_vertex:
        betas = hints.get("betas", "")
        beta_field = (
            {"anthropic_beta": [beta.strip() for beta in betas.split(",")]} if betas else {}
        )
        body = {"anthropic_version": _VERTEX_VERSION, **beta_field} | {
            name: body[name] for name in body if name != "model"
        }
        path = (
            f"/models/{quote(model, safe='@')}:{'streamRawPredict' if streamed else 'rawPredict'}"
        )
        return Encoded(path, headers, msgspec.json.encode(body), streamed)
    version, fresh = _client_headers(hints)
    return Encoded(
        "/messages", (*headers, *version), msgspec.json.encode(body), streamed, fresh=fresh
    )


def _refuse_sampling(fields: Fields) -> None:
    """Remove sampling fields that Anthropic lacks; refuse values that would change the answer."""
    refuse(fields, {"presence_penalty": (0,), "frequency_penalty": (0,)}, "Anthropic")
    temperature = fields.get("temperature")
    if isinstance(temperature, int | float) and temperature > 1:
        raise not_translatable(
            f"temperature {short(temperature)}", "Anthropic", "Possible here: 0 to 1."
        )


def _leave_sampling(call: Call, fields: Fields) -> None:
    """Leave out what Anthropic rejects with thinking: a temperature other than 1, top_k, a low
    top_p."""
    temperature, top_p = fields.get("temperature"), fields.get("top_p")
    if temperature != 1:
        leave_out(call, fields, "temperature")
    if isinstance(top_p, int | float) and top_p < _MIN_TOP_P:
        leave_out(call, fields, "top_p")
    leave_out(call, fields, "top_k")


def _tools(fields: Fields) -> Fields:
    tools, choice = take_tools(fields), fields.pop("tool_choice", None)
    parallel = fields.pop("parallel_tool_calls", True)
    if not tools:
        return {}
    translated: Fields = {"tools": [_tool(tool) for tool in tools]}
    chosen = {"type": "auto"} if choice is None else _tool_choice(choice)
    if not parallel and chosen["type"] != "none":
        translated["tool_choice"] = {**chosen, "disable_parallel_tool_use": True}
    elif choice is not None:
        translated["tool_choice"] = chosen
    return translated


def _tool(tool: Any) -> Fields:
    match tool:
        case {"type": "function", "function": {"name": str()}}:
            function = {key: value for key, value in tool["function"].items() if value is not None}
            schema = function.pop("parameters", None) or {"properties": {}}
            own = {key: value for key, value in tool.items() if key not in ("type", "function")}
            if isinstance(schema, dict):
                schema = {"type": "object", **schema}
            return {**function, "input_schema": schema, **own}
        case {"type": "function"} | {"type": "custom", "custom": _}:
            raise not_translatable(f"the tool {short(tool)}", "Anthropic")
        case dict():
            return tool
    raise CallerFault(f"a tool must be an object, got {short(tool)}")


def _tool_choice(choice: Any) -> Fields:
    match choice:
        case str() if choice in _CHOICES:
            return {"type": _CHOICES[choice]}
        case {"type": "function", "function": {"name": str(name)}}:
            return {"type": "tool", "name": name}
        case {"type": "auto" | "any" | "tool" | "none", **_rest}:
            return dict(choice)
    raise not_translatable(f"tool_choice {short(choice)}", "Anthropic")


def _thinking(
    call: Call, reasoning: ReasoningRequest, model: str, limit: Any, body: Fields
) -> tuple[Fields, Fields]:
    """Return ``thinking``, and the additions to ``output_config``, for a request that is `body` so
    far.

    Claude chooses the amount of thinking itself since 4.6, and has a budget before that, which is
    part of the limit on output tokens; before 3.7 it does not think. Other providers' models with
    this API format have the budget. A model that thinks cannot be forced to call a tool, and with a
    budget it needs the thinking before the tool calls that are being answered; then thinking stays
    off.
    """
    if reasoning.off:
        return {"thinking": {"type": "disabled"}}, {}
    version = _version(model)
    adaptive = version is not None and version >= _FIRST_ADAPTIVE
    config = (
        {"effort": reasoning.level(call, _EFFORTS)}
        if adaptive and reasoning.tokens is not None
        else {}
    )
    budget = _budget(reasoning, limit)
    forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    unable = version is not None and version < _FIRST_THINKING
    if (
        forced
        or unable
        or (not adaptive and (budget < MIN_BUDGET or messages.lacks_reasoning(body["messages"])))
    ):
        left_out(call, reasoning.name)
        return {}, config
    display = (
        {}
        if reasoning.shown is None
        else {"display": "summarized" if reasoning.shown else "omitted"}
    )
    how = {"type": "adaptive"} if adaptive else {"type": "enabled", "budget_tokens": budget}
    return {"thinking": {**how, **display}}, config


def _budget(reasoning: ReasoningRequest, limit: Any) -> int:
    budget = reasoning.tokens or BUDGETS["medium"]
    return min(budget, limit - 1) if isinstance(limit, int) else budget


def _version(model: str) -> tuple[int, int] | None:
    match = _VERSION.search(model)
    if match is None:
        return _NEWEST if "claude" in model else None
    return int(match[1]), int(match[2] or 0)
