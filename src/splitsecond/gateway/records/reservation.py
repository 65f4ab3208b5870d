"""The tokens that a call may use at each target, for reserving money before anything is sent.

A reservation must not be smaller than the bill, whatever the client writes. So it takes the largest
output limit and multiplies it by the number of answers (`core/wire/output_limit`). `prompt_size`
estimates the prompt.

Where no limit is named, an answer is as long as the model's maximum output if that is known, else
`USUAL_OUTPUT_TOKENS`.
"""

import re
from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.service import WHOLE_OPERATIONS, Call
from splitsecond.core.upstream.prompt_size import USUAL_OUTPUT_TOKENS
from splitsecond.core.wire.output_limit import MAX_TOKENS, answer_count, output_limit
from splitsecond.routing.construction.expression import Expression, TargetName
from splitsecond.routing.router.prompt_tokens import PromptSize, prompt_size

_CHOOSE_ONE = frozenset(
    {"fastest", "cheapest", "weighted", "split", "sticky", "near", "by_complexity", "by_task"}
)
"""Policies that send a call to one of their branches."""


class ReservedTokens(Struct, frozen=True):
    target: str
    input_tokens: int
    output_tokens: int


Cost = Callable[[ReservedTokens], float]
"""Returns what these tokens cost, in US dollars; 0 if that is not known."""


_ONE_HOUR = re.compile(rb'"1h"')
"""The ``ttl`` of Anthropic's ``cache_control``."""


class CallEstimate(Struct, frozen=True):
    """What a call may use at any target: the size of its prompt, the number of answers, and the
    largest output limit of one, None without a limit. `for_an_hour`: it may write its prompt to the
    provider's cache for an hour."""

    prompt: PromptSize
    answers: int
    output_limit: int | None
    for_an_hour: bool = False


def estimated(call: Call) -> CallEstimate:
    """Return the estimate of `call`. Takes up to a second for a body of 30 MB."""
    answers = 0 if call.operation in WHOLE_OPERATIONS else answer_count(call)
    fields = (
        each if isinstance(each, Raw) else msgspec.json.encode(each) for each in call.body.values()
    )
    hour = any(_ONE_HOUR.search(each) for each in fields)
    return CallEstimate(prompt_size(call), answers, output_limit(call.body), hour)


def reserved(
    call: Call,
    expression: Expression,
    cost: Cost,
    most_output: Callable[[str], int | None],
    context: Callable[[str], int | None] = lambda target: None,
) -> tuple[ReservedTokens, ...]:
    """Return the tokens to reserve for `call`, served by the policy `expression`.

    A policy that asks several targets at once, or one after another, reserves the most expensive
    answer and the prompts of the others. One that may need two whole answers (`cascade`,
    `pipeline`) reserves both. `most_output` gives the maximum output of a target's model, `context`
    its context length; None where they are not known.
    """
    estimate = call.notes.estimate or estimated(call)
    prompt, answers, limit = estimate.prompt, estimate.answers, estimate.output_limit

    def usage(target: str, capped: int) -> ReservedTokens:
        longest = (most_output(target) or USUAL_OUTPUT_TOKENS) if limit is None else limit
        output = min(min(longest, capped) * answers, MAX_TOKENS)
        return ReservedTokens(
            target, prompt.within(context(target) if prompt.unbounded else None), output
        )

    def of(part: Expression, capped: int) -> tuple[ReservedTokens, ...]:
        if isinstance(part, TargetName):
            return (usage(part.name, capped),)
        if part.policy == "cap":
            capped = min(capped, int(dict(part.settings)["max_tokens"]))
        branches = sorted(
            (of(each, capped) for each in part.parts), key=lambda each: sum(map(cost, each))
        )
        dearest, others = branches[-1], [each for branch in branches[:-1] for each in branch]
        if part.policy in _CHOOSE_ONE:
            return dearest
        if part.definition.backed:
            return (*dearest, *others)
        return (*dearest, *(msgspec.structs.replace(each, output_tokens=0) for each in others))

    return of(expression, MAX_TOKENS)
