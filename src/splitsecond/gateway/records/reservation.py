"""The tokens that a call may use at each target, for reserving money before anything is sent.

A reservation must not be smaller than the bill, whatever the client writes. So it takes the largest of all output
limits that are named, in the words of every API format, since fields pass through to targets that may read any of them.
It multiplies that by the number of answers (`n`, `best_of`) and of prompts. `prompt_size` estimates the prompt.

Where no limit is named, an answer is as long as the model's maximum output if that is known, else
`USUAL_OUTPUT_TOKENS`. A limit that is zero or negative means "no limit" to some servers, and is read as none. A number
beyond `MAX_TOKENS`, of any length, is read as `MAX_TOKENS`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.service import WHOLE_OPERATIONS, Call
from splitsecond.core.validation import has_too_many_values, read_json
from splitsecond.routing.construction.expression import Expression, TargetName
from splitsecond.routing.router.prompt_tokens import PromptSize, prompt_size
from splitsecond.routing.targets.prompt_size import MAX_TOKENS, PASSED_LIMITS, USUAL_OUTPUT_TOKENS, raw_bytes

_LIMITS = (("max_tokens",), ("max_completion_tokens",), ("max_output_tokens",))
_REASONING = (("reasoning", "max_tokens"), ("thinking", "budget_tokens"))
_ANSWERS = (
    ("n",),
    ("best_of",),
    ("candidateCount",),
    ("generationConfig", "candidateCount"),
    ("generation_config", "candidate_count"),
)
_CHOOSE_ONE = frozenset({"fastest", "cheapest", "weighted", "sticky", "near", "by_complexity", "by_task"})
"""Policies that send a call to one of their branches."""
_items = msgspec.json.Decoder(list[Raw]).decode


class ReservedTokens(Struct, frozen=True):
    """The tokens of one attempt."""

    target: str
    input_tokens: int
    output_tokens: int


Cost = Callable[[ReservedTokens], float]
"""Returns what these tokens cost, in US dollars; 0 if that is not known."""


_ONE_HOUR = b'"1h"'
"""The ``ttl`` of Anthropic's ``cache_control``."""


class CallEstimate(Struct, frozen=True):
    """What a call may use at any target: the size of its prompt, the number of answers, and the largest output limit of
    one, None without a limit. `for_an_hour`: it may write its prompt to the provider's cache for an hour."""

    prompt: PromptSize
    answers: int
    output_limit: int | None
    for_an_hour: bool = False


def estimated(call: Call) -> CallEstimate:
    """Return the estimate of `call`. Takes up to a second for a body of 30 MB."""
    answers = 0 if call.operation in WHOLE_OPERATIONS else answer_count(call)
    return CallEstimate(prompt_size(call), answers, output_limit(call), _ONE_HOUR in msgspec.json.encode(call.body))


def reserved(
    call: Call,
    expression: Expression,
    cost: Cost,
    most_output: Callable[[str], int | None],
    context: Callable[[str], int | None] = lambda target: None,
) -> tuple[ReservedTokens, ...]:
    """Return the tokens to reserve for `call`, served by the policy `expression`.

    A policy that asks several targets at once, or one after another, reserves the most expensive answer and the prompts
    of the others. One that may need two whole answers (`cascade`, `pipeline`) reserves both. `most_output` gives the
    maximum output of a target's model, `context` its context length; None where they are not known.
    """
    estimate = call.notes.estimate or estimated(call)
    prompt, answers, limit = estimate.prompt, estimate.answers, estimate.output_limit

    def usage(target: str, capped: int) -> ReservedTokens:
        longest = (most_output(target) or USUAL_OUTPUT_TOKENS) if limit is None else limit
        output = min(min(longest, capped) * answers, MAX_TOKENS)
        return ReservedTokens(target, prompt.within(context(target) if prompt.unbounded else None), output)

    def of(part: Expression, capped: int) -> tuple[ReservedTokens, ...]:
        if isinstance(part, TargetName):
            return (usage(part.name, capped),)
        if part.policy == "cap":
            capped = min(capped, int(dict(part.settings)["max_tokens"]))
        branches = sorted((of(each, capped) for each in part.parts), key=lambda each: sum(map(cost, each)))
        dearest, others = branches[-1], [each for branch in branches[:-1] for each in branch]
        if part.policy in _CHOOSE_ONE:
            return dearest
        if part.definition.backed:
            return (*dearest, *others)
        return (*dearest, *(msgspec.structs.replace(each, output_tokens=0) for each in others))

    return of(expression, MAX_TOKENS)


def output_limit(call: Call) -> int | None:
    """Return the largest output limit of one answer in the request.

    None: the request has no limit, or one of its limits is zero or negative, which means "unlimited".
    """
    limits = _numbers(call, _LIMITS + PASSED_LIMITS)
    if not limits or min(limits) <= 0:
        return None
    return max(limits + _numbers(call, _REASONING))


def answer_count(call: Call) -> int:
    """Return how many answers the request asks for: per prompt, times the number of prompts."""
    each = max([1, *_numbers(call, _ANSWERS)])
    return min(each * _prompt_count(call), MAX_TOKENS)


def _prompt_count(call: Call) -> int:
    """Return how many prompts a request for completions holds; 1 for anything else."""
    prompt = call.body.get("prompt")
    if call.operation != "completions" or prompt is None:
        return 1
    data = raw_bytes(prompt)
    if has_too_many_values(data):
        return bytes(data).count(b",") + 1  # or fewer; decoding them would take much memory
    items = read_json(data, _items)
    if not items or not bytes(items[0]).startswith((b'"', b"[")):
        return 1  # a text, or the ids of its tokens
    return len(items)


def _numbers(call: Call, paths: Sequence[tuple[str, ...]]) -> list[int]:
    body = call.body
    found = (_number(body, path) for path in paths if path[0] in body)
    return [number for number in found if number is not None]


def _number(body: Mapping[str, Any], path: tuple[str, ...]) -> int | None:
    """Return the number at `path`, rounded up; a text that is a number counts. None: no number is there."""
    value = body[path[0]]
    if isinstance(value, Raw):
        try:
            value = msgspec.json.decode(value)
        except (ValueError, RecursionError):  # a number beyond all bounds, or nesting without end
            return -1 if bytes(value).startswith(b"-") else MAX_TOKENS
    for name in path[1:]:
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return math.ceil(min(max(value, -1), MAX_TOKENS))
