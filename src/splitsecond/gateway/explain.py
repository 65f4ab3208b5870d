"""A route explained: where its calls would go now, why, and how each of its targets stands.

A gateway that runs explains by what it has seen. Without one there is `by_history`: what a gateway that starts now
would know, from its log and from runs of the bench.
"""

from collections.abc import Callable

from msgspec import Struct

from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration.mistakes import meant
from splitsecond.gateway.configuration.settings import Settings
from splitsecond.gateway.facts import TargetFacts
from splitsecond.gateway.records.history import history, opened
from splitsecond.policy.expression import Expression, TargetName, targets
from splitsecond.policy.preview import Choice, preview, sample
from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.stand import Described
from splitsecond.policy.targets.standing import Standing

PROMPT = "Which is faster, light or sound? Answer in one sentence."
CALLS = 100


class TargetExplained(Struct, frozen=True):
    """One target: how it stands, and what is known of it besides."""

    stands: Described
    facts: Facts


class Explained(Struct, frozen=True, kw_only=True):
    """One route. `choices`: what would become of `calls` calls. `source`: whose knowledge this is."""

    route: str
    policy: str
    calls: int
    choices: list[Choice]
    targets: list[TargetExplained]
    source: str = ""


async def explained(
    route: str, expression: Expression, standing: Standing, *, prompt: str = PROMPT, source: str = ""
) -> Explained:
    """Explains `route`, whose policy is `expression`, for a chat that asks `prompt`."""
    return Explained(
        route=route,
        policy=repr(expression),
        calls=CALLS,
        choices=await preview(expression, standing, sample(prompt), calls=CALLS),
        targets=[TargetExplained(standing.describe(name), standing.facts(name)) for name in targets(expression)],
        source=source,
    )


async def by_history(settings: Settings, route: str, prompt: str, say: Callable[[str], None]) -> Explained:
    """Explains `route` by what is written down. Reads for a second or two.

    Raises `CallerFault` where `settings` have neither a route nor a target of that name, or a log that cannot be read.
    """
    expression = settings.routes.get(route)
    if expression is None:
        if "/" not in route:
            words = f"there is no route {route!r} in {settings.source or 'a gateway without a configuration'}"
            known = f"Routes: {', '.join(settings.routes)}." if settings.routes else "There are none."
            raise CallerFault(words, kind="unknown_route", hint=f"{meant(route, settings.routes)} {known}".lstrip())
        settings.spec(route)
        expression = TargetName(route)
    facts = TargetFacts(settings)
    facts.learn(facts.look_up(targets(expression)))
    standing = Standing(facts.facts)
    log = opened(settings.log, say)
    try:
        found = history(log, settings.seeds, say)
    finally:
        if log is not None:
            log.close()
    ages_ns = {id(attempt): age_ns for attempt, age_ns in found}
    standing.seed([attempt for attempt, _ in found], lambda attempt: ages_ns[id(attempt)])
    source = f"a gateway that starts now: none runs; {len(found)} attempts are in its log and seeds"
    return await explained(route, expression, standing, prompt=prompt, source=source)
