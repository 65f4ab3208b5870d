"""Requested reasoning of a model: one form between those of API formats and providers.

Reasoning is requested as an effort (OpenAI's ``reasoning_effort``, the level of Gemini 3), as a
budget in tokens (Anthropic up to Claude 4.5, Gemini 2.5, Cohere, Qwen), or as on or off (DeepSeek,
Ollama). Any of these becomes a `ReasoningRequest`, which is written in the target's way: exactly if
both are the same, otherwise by one table.

    effort   none  minimal  low   medium  high   xhigh  max
    tokens   0     1024     1024  8192    24576  32768  32768

Up to "high" that is the table of Google's own compatibility endpoint. In the other direction a
budget of 0 tokens is "none", up to 2,048 "low", up to 16,384 "medium", and more "high", because few
models know the higher efforts. A request without an amount gets "medium" where one is required, and
a missing effort becomes the nearest that the model has.

The models of a provider whose reasoning can be set, and how, are data: `Quirks.thinking`. For
others the request is left out and reported: it changes the answer only by degree.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeGuard

from msgspec import Struct, structs

from splitsecond.core.service import Call
from splitsecond.core.wire.translation import Fields, left_out, not_translatable, short

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_ORDER = EFFORTS.index
USUAL_EFFORTS = ("none", "low", "medium", "high")
BUDGETS: Mapping[str, int] = dict(
    zip(EFFORTS, (0, 1024, 1024, 8192, 24576, 32768, 32768), strict=True)
)
MIN_BUDGET = 1024
"""Tokens. Anthropic rejects smaller budgets."""
FIELD = "reasoning"
"""The field of a translated chat with its `ReasoningRequest`; an object of OpenRouter's clients."""
_OBJECT = frozenset({"max_tokens", "enabled", "exclude"})
"""OpenRouter's keys in it that Responses does not have."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ReasoningField = Literal["reasoning_effort", "reasoning", "thinking", "enable_thinking"]


class ReasoningStyle(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to set the reasoning of a provider's models. `models`: patterns of their names, with
    ``*`` and ``?``.

    `efforts`: those that they know, from the least; empty: the usual ones. `field`: the field of a
    chat in OpenAI's format. "reasoning_effort": as OpenAI; "reasoning": an object, as OpenRouter;
    "thinking": on or off, as DeepSeek; "enable_thinking": with "thinking_budget", as Qwen.
    """

    models: tuple[str, ...] = ("*",)
    field: ReasoningField = "reasoning_effort"
    efforts: tuple[Effort, ...] = ()

    def __post_init__(self) -> None:
        if self.efforts and (
            set(self.efforts) == {"none"} or list(self.efforts) != sorted(self.efforts, key=_ORDER)
        ):
            raise ValueError("efforts must be in ascending order, and not only none")


def style_for(styles: Sequence[ReasoningStyle], model: str) -> ReasoningStyle | None:
    """Return the first of `styles` that matches `model`; None if its reasoning cannot be set."""
    return next(
        (style for style in styles if any(fnmatchcase(model, pattern) for pattern in style.models)),
        None,
    )


class ReasoningRequest(Struct, frozen=True, kw_only=True):
    """Requested reasoning. `name`: the client's field.

    `effort`: one of `EFFORTS`, or "" if unset; `budget` in tokens; `on`: on or off. `shown`: the
    answer shall include the reasoning; None: the target decides. `known`: the efforts that the
    target has, from the least; empty: unknown.
    """

    name: str
    effort: str = ""
    budget: int | None = None
    on: bool | None = None
    shown: bool | None = None
    known: tuple[str, ...] = ()

    @property
    def is_set(self) -> bool:
        return self.off or self.on is True or bool(self.effort) or self.budget is not None

    @property
    def off(self) -> bool:
        return self.on is False or self.effort == "none" or self.budget == 0

    @property
    def tokens(self) -> int | None:
        """The budget in tokens, by the table if an effort is set; 0 if `off`; None without an
        amount."""
        if self.off:
            return 0
        return self.budget if self.budget is not None or not self.effort else BUDGETS[self.effort]

    def level(self, call: Call, efforts: Sequence[str] = USUAL_EFFORTS) -> str:
        """Return the nearest effort that the target has; `efforts`: if its own are unknown.

        A model that always reasons gets the least, and the request to switch reasoning off is
        reported as left out.
        """
        levels = self.known or efforts
        if self.off and "none" in levels:
            return "none"
        if self.off:
            left_out(call, self.name)
            return levels[0]
        place = _ORDER(self.effort or _effort(self.budget))
        return min(
            (word for word in levels if word != "none"), key=lambda word: abs(_ORDER(word) - place)
        )


def from_budget(name: str, budget: int, visible: bool | None = None) -> ReasoningRequest:
    """Return the request for a budget in tokens; a negative one lets the model decide."""
    on, tokens = (True, None) if budget < 0 else (None, budget)
    return ReasoningRequest(name=name, on=on, budget=tokens, shown=visible)


def requested(
    call: Call,
    fields: Fields,
    model: str,
    styles: Sequence[ReasoningStyle],
    *,
    own: str = "",
) -> ReasoningRequest | None:
    """Return the reasoning that the `fields` of a chat request for `model`, and remove those
    fields. None: none is requested, or it cannot be set.

    `own`: the name that the target's API format has itself, which stays if it has that format's
    form. Raises `CallerFault` for an unknown effort.
    """
    client_request = (
        fields.pop(FIELD)
        if isinstance(fields.get(FIELD), ReasoningRequest)
        else _from_fields(fields, own)
    )
    if client_request is None:
        return None
    style = style_for(styles, model)
    if style is None:
        if client_request.is_set and not client_request.off:
            left_out(call, client_request.name)
        return None
    request: ReasoningRequest = structs.replace(client_request, known=style.efforts)
    return request


def _from_fields(fields: Fields, own: str) -> ReasoningRequest | None:
    """Return the reasoning requested in any field that clients of OpenAI's format send, OpenAI's
    own first."""
    requests = [
        each
        for each in (_reasoning_effort(fields), *(read(fields, own) for read in _READERS))
        if each
    ]
    if not requests:
        return None
    first = requests[0]
    for other in requests[1:]:
        unset = {
            name: getattr(other, name) for name in _SETTINGS if getattr(first, name) in (None, "")
        }
        first = structs.replace(first, **unset)
    return first


_SETTINGS = ("effort", "budget", "on", "shown")


def _reasoning_effort(fields: Fields) -> ReasoningRequest | None:
    effort = fields.pop("reasoning_effort", None)
    return (
        None
        if effort in (None, "default")
        else ReasoningRequest(name="reasoning_effort", effort=_known(effort))
    )


def _known(effort: Any, name: str = "reasoning_effort") -> str:
    if not isinstance(effort, str) or effort not in EFFORTS:
        raise not_translatable(f"{name} {short(effort)}", hint=f"Possible: {', '.join(EFFORTS)}.")
    return effort


def _reasoning(fields: Fields, own: str) -> ReasoningRequest | None:
    settings = fields.get(FIELD)
    if not isinstance(settings, dict) or (own == FIELD and _OBJECT.isdisjoint(settings)):
        return None
    del fields[FIELD]
    effort, budget, excluded = (
        settings.get("effort"),
        settings.get("max_tokens"),
        settings.get("exclude"),
    )
    return ReasoningRequest(
        name=FIELD,
        effort="" if effort is None else _known(effort, "reasoning.effort"),
        budget=budget if _is_count(budget) and budget >= 0 else None,
        on=settings["enabled"] if isinstance(settings.get("enabled"), bool) else None,
        shown=not excluded if isinstance(excluded, bool) else None,
    )


def _thinking(fields: Fields, own: str) -> ReasoningRequest | None:
    thinking = fields.get("thinking")
    if not isinstance(thinking, dict) or own == "thinking":
        return None
    request = from_messages(thinking)
    if request is not None:
        del fields["thinking"]
    return request


def from_messages(thinking: Any) -> ReasoningRequest | None:
    """Return the reasoning requested by ``thinking`` in Anthropic's form or one derived from it;
    None: another form."""
    visible: bool | None = None
    match thinking:
        case {"display": "summarized" | "omitted" as display}:
            visible = display == "summarized"
    match thinking:
        case {"type": "disabled"}:
            return ReasoningRequest(name="thinking", on=False, shown=visible)
        case {"type": "enabled", "budget_tokens": budget} | {
            "type": "enabled",
            "token_budget": budget,
        }:
            return from_budget("thinking", budget, visible) if _is_count(budget) else None
        case {"type": "enabled" | "adaptive" | "auto"}:
            return ReasoningRequest(name="thinking", on=True, shown=visible)
    return None


def _think(fields: Fields, own: str) -> ReasoningRequest | None:
    think = fields.get("think")
    if own == "think" or not (isinstance(think, bool) or think in EFFORTS):
        return None
    del fields["think"]
    on, effort = (think, "") if isinstance(think, bool) else (None, think)
    return ReasoningRequest(name="think", on=on, effort=effort)


def _enable_thinking(fields: Fields, own: str) -> ReasoningRequest | None:
    on = fields.pop("enable_thinking") if isinstance(fields.get("enable_thinking"), bool) else None
    budget = fields.pop("thinking_budget") if _is_count(fields.get("thinking_budget")) else None
    if on is None and budget is None:
        return None
    return ReasoningRequest(
        name="enable_thinking", on=on, budget=budget if budget is None or budget >= 0 else None
    )


_READERS = (_reasoning, _thinking, _think, _enable_thinking)


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _effort(budget: int | None) -> str:
    if budget is None:
        return "medium"
    return "low" if budget <= 2048 else "medium" if budget <= 16384 else "high"
