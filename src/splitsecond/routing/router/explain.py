"""Explanation of a route: where its calls would go now, why, and the state of each of its
targets."""

from msgspec import Struct

from splitsecond.routing.construction.expression import Expression, targets
from splitsecond.routing.construction.preview import (
    PreviewedChoice,
    preview,
    preview_sessions,
    sample,
)
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_state import TargetStatus
from splitsecond.routing.targets.target_states import TargetStates

PROMPT = "Which is faster, light or sound? Answer in one sentence."
CALLS = 100


class TargetExplained(Struct, frozen=True):
    status: TargetStatus
    facts: TargetInfo


class Explained(Struct, frozen=True, kw_only=True):
    """One route. `choices`: where `calls` calls without a session would go. `sessions`: where the
    next turns of the latest sessions would go. `source`: the process or the log that this is based
    on."""

    route: str
    policy: str
    calls: int
    choices: list[PreviewedChoice]
    targets: list[TargetExplained]
    source: str = ""
    sessions: list[PreviewedChoice] = []


async def explained(
    route: str,
    expression: Expression,
    states: TargetStates,
    *,
    prompt: str = PROMPT,
    source: str = "",
) -> Explained:
    return Explained(
        route=route,
        policy=repr(expression),
        calls=CALLS,
        choices=await preview(expression, states, sample(prompt), route=route, calls=CALLS),
        sessions=await preview_sessions(expression, states, sample(prompt), route=route),
        targets=[
            TargetExplained(states.status(name), states.info(name)) for name in targets(expression)
        ],
        source=source,
    )
