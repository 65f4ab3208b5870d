"""How far a model is to think before it answers: one form between the words that dialects and providers have for it.

Some say an effort (OpenAI's ``reasoning_effort``, the level of Gemini 3), some a budget in tokens (Anthropic up to
Claude 4.5, Gemini 2.5, Cohere, Qwen), some only whether at all (DeepSeek, Ollama). What a client says in one of these
ways is a `Thinking`, and a target is told it in its own way: exactly where both have the same, else by one table.

    effort   none  minimal  low   medium  high   xhigh  max
    tokens   0     1024     1024  8192    24576  32768  32768

Up to "high" that is the table of Google's own compatibility endpoint. The other way a budget of no token is "none", one
of up to 2048 "low", of up to 16384 "medium", and any above that "high": the efforts beyond are known to few models.
Whoever wants thoughts and says no amount gets "medium" where an amount must be said. Where a model has not the effort
that is asked for it is told the nearest that it has.

Which models of a provider can be told, and how, is data: `Quirks.thinking`. To the others nothing is said, and the wish
is named among what was left out: it is a matter of degree.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeGuard

from msgspec import Struct, structs

from splitsecond.service import Call
from splitsecond.wire.translation import left_out, not_translatable, short

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_ORDER = EFFORTS.index
USUAL_EFFORTS = ("none", "low", "medium", "high")
"""Those that most servers know which know any."""
BUDGETS: Mapping[str, int] = dict(zip(EFFORTS, (0, 1024, 1024, 8192, 24576, 32768, 32768), strict=True))
LEAST_BUDGET = 1024
"""Tokens. Anthropic takes no smaller budget."""
FIELD = "reasoning"
"""Where a chat that was brought over has its `Thinking`. OpenRouter's clients have an object of their own there."""
_OBJECT = frozenset({"max_tokens", "enabled", "exclude"})
"""OpenRouter's words in it, which the Responses API has not."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Way = Literal["reasoning_effort", "reasoning", "thinking", "enable_thinking"]


class Told(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How some models of a provider are told how far to think. `models`: patterns of their names, with ``*`` and ``?``.

    `efforts`: those that they know, from the least; empty: the usual ones. `field`: where a chat of OpenAI's dialect
    says it. "reasoning_effort": as OpenAI; "reasoning": an object, as OpenRouter; "thinking": whether at all, as
    DeepSeek; "enable_thinking": with "thinking_budget", as Qwen.
    """

    models: tuple[str, ...] = ("*",)
    field: Way = "reasoning_effort"
    efforts: tuple[Effort, ...] = ()

    def __post_init__(self) -> None:
        if self.efforts and (set(self.efforts) == {"none"} or list(self.efforts) != sorted(self.efforts, key=_ORDER)):
            raise ValueError("efforts go from the least to the most, and one of them is not none")


def told(ways: Sequence[Told], model: str) -> Told | None:
    """The first of `ways` that is for `model`; None: it cannot be told."""
    return next((way for way in ways if any(fnmatchcase(model, pattern) for pattern in way.models)), None)


class Thinking(Struct, frozen=True, kw_only=True):
    """What a client wishes. `name`: the field that says it.

    `effort`: one of `EFFORTS`, or "" for none said; `budget` in tokens; `on`: whether at all. All three may be unsaid,
    or said together. `shown`: whether the thoughts are to be part of the answer; None: as the target finds right.
    `known`: the efforts that the target has, from the least; empty: nothing is known of it.
    """

    name: str
    effort: str = ""
    budget: int | None = None
    on: bool | None = None
    shown: bool | None = None
    known: tuple[str, ...] = ()

    @property
    def said(self) -> bool:
        """Whether more is said than what is to be shown."""
        return self.off or self.on is True or bool(self.effort) or self.budget is not None

    @property
    def off(self) -> bool:
        """Whether the model is not to think."""
        return self.on is False or self.effort == "none" or self.budget == 0

    @property
    def tokens(self) -> int | None:
        """The budget, by the table where an effort is said; None: no amount is said. Of one that is `off`: 0."""
        if self.off:
            return 0
        return self.budget if self.budget is not None or not self.effort else BUDGETS[self.effort]

    def level(self, call: Call, efforts: Sequence[str] = USUAL_EFFORTS) -> str:
        """The effort of those that the target has which is nearest; `efforts`: where nothing is known of it.

        One that cannot but think is told the least, and the client that its wish was left out.
        """
        known = self.known or efforts
        if self.off and "none" in known:
            return "none"
        if self.off:
            left_out(call, self.name)
            return known[0]
        place = _ORDER(self.effort or _effort(self.budget))
        return min((word for word in known if word != "none"), key=lambda word: abs(_ORDER(word) - place))


def of_budget(name: str, budget: int, shown: bool | None = None) -> Thinking:
    """The wish for so many tokens; fewer than none: as many as the model finds right."""
    return Thinking(name=name, on=True, shown=shown) if budget < 0 else Thinking(name=name, budget=budget, shown=shown)


def wished(call: Call, fields: dict[str, Any], model: str, ways: Sequence[Told], *, own: str = "") -> Thinking | None:
    """What the `fields` of a chat say of thinking, in any of the known words, for `model`; they are taken out of it.

    `own`: the word among them that the target's dialect has itself; in its form it stays. None: nothing is said, or the
    model cannot be told. Raises `CallerFault` for an effort that nobody knows.
    """
    found = fields.pop(FIELD) if isinstance(fields.get(FIELD), Thinking) else _in_words(fields, own)
    if found is None:
        return None
    way = told(ways, model)
    if way is None:
        if found.said and not found.off:
            left_out(call, found.name)
        return None
    wish: Thinking = structs.replace(found, known=way.efforts)
    return wish


def _in_words(fields: dict[str, Any], own: str) -> Thinking | None:
    """The words that clients of OpenAI's dialect have for it, OpenAI's own first."""
    said = [each for each in (_effort_said(fields), *(_WORDS[name](fields, own) for name in _WORDS)) if each]
    if not said:
        return None
    first = said[0]
    for other in said[1:]:
        unsaid = [name for name in _SAID if getattr(first, name) in (None, "")]
        given = {name: getattr(other, name) for name in unsaid}
        first = structs.replace(first, **given)
    return first


_SAID = ("effort", "budget", "on", "shown")


def _effort_said(fields: dict[str, Any]) -> Thinking | None:
    effort = fields.pop("reasoning_effort", None)
    return None if effort in (None, "default") else Thinking(name="reasoning_effort", effort=_known(effort))


def _known(effort: Any, name: str = "reasoning_effort") -> str:
    if not isinstance(effort, str) or effort not in EFFORTS:
        raise not_translatable(f"{name} {short(effort)}", "another dialect", f"Possible: {', '.join(EFFORTS)}.")
    return effort


def _reasoning(fields: dict[str, Any], own: str) -> Thinking | None:
    given = fields.get(FIELD)
    if not isinstance(given, dict) or (own == FIELD and _OBJECT.isdisjoint(given)):
        return None
    del fields[FIELD]
    effort, budget, excluded = given.get("effort"), given.get("max_tokens"), given.get("exclude")
    return Thinking(
        name=FIELD,
        effort="" if effort is None else _known(effort, "reasoning.effort"),
        budget=budget if _is_count(budget) and budget >= 0 else None,
        on=given["enabled"] if isinstance(given.get("enabled"), bool) else None,
        shown=not excluded if isinstance(excluded, bool) else None,
    )


def _thinking(fields: dict[str, Any], own: str) -> Thinking | None:
    given = fields.get("thinking")
    if not isinstance(given, dict) or own == "thinking":
        return None
    found = of_messages(given)
    if found is not None:
        del fields["thinking"]
    return found


def of_messages(given: Any) -> Thinking | None:
    """What ``thinking`` says in Anthropic's form, or in those that others have made of it; None: it is in none."""
    shown: bool | None = None
    match given:
        case {"display": "summarized" | "omitted" as display}:
            shown = display == "summarized"
    match given:
        case {"type": "disabled"}:
            return Thinking(name="thinking", on=False, shown=shown)
        case {"type": "enabled", "budget_tokens": budget} | {"type": "enabled", "token_budget": budget}:
            return of_budget("thinking", budget, shown) if _is_count(budget) else None
        case {"type": "enabled" | "adaptive" | "auto"}:
            return Thinking(name="thinking", on=True, shown=shown)
    return None


def _think(fields: dict[str, Any], own: str) -> Thinking | None:
    given = fields.get("think")
    if own == "think" or not (isinstance(given, bool) or given in EFFORTS):
        return None
    del fields["think"]
    return Thinking(name="think", on=given) if isinstance(given, bool) else Thinking(name="think", effort=given)


def _enable_thinking(fields: dict[str, Any], own: str) -> Thinking | None:
    on = fields.pop("enable_thinking") if isinstance(fields.get("enable_thinking"), bool) else None
    budget = fields.pop("thinking_budget") if _is_count(fields.get("thinking_budget")) else None
    if on is None and budget is None:
        return None
    return Thinking(name="enable_thinking", on=on, budget=budget if budget is None or budget >= 0 else None)


_WORDS = {"reasoning": _reasoning, "thinking": _thinking, "think": _think, "enable_thinking": _enable_thinking}


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _effort(budget: int | None) -> str:
    if budget is None:
        return "medium"
    return "low" if budget <= 2048 else "medium" if budget <= 16384 else "high"
