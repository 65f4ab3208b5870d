"""The targets that a policy would ask now, found by running it over probes that never answer.

The policy itself decides, by the present states of the targets, so the preview cannot differ from
it.
"""

import asyncio
import math
from collections import Counter

import msgspec
from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import Fault, Overloaded
from splitsecond.core.service import Call, Notes, Reply, RoutingChoice, Service
from splitsecond.core.session import CallSession
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import Expression, targets
from splitsecond.routing.targets.target_states import TargetStates

TURNS = 64
"""Turns of the event loop after which a policy that does not wait has asked all its targets."""


class PreviewedChoice(Struct, frozen=True, kw_only=True):
    """One result of a preview: `calls` calls ask `targets` at once, for the reason `why`.

    `odds`: its probability, by the policy; None: the policy does not know it, so `calls` is a
    sample. `refused`: why no target is asked; "" if one is.
    """

    calls: int
    targets: tuple[str, ...] = ()
    why: str = ""
    refused: str = ""
    odds: float | None = None


async def preview_sessions(
    expression: Expression,
    states: TargetStates,
    call: Call,
    *,
    route: str = "",
) -> list[PreviewedChoice]:
    """Return where the next turn of each of the latest three sessions would go."""
    choices = []
    for session in states.conversations.latest(3, targets(expression)):
        choices += await preview(expression, states, call, route=route, calls=1, session=session)
    return choices


async def preview(
    expression: Expression,
    states: TargetStates,
    call: Call,
    *,
    route: str = "",
    calls: int = 100,
    session: CallSession | None = None,
) -> list[PreviewedChoice]:
    tried_targets: list[str] = []
    names = targets(expression)

    def probe(name: str) -> Service:
        return _Probe(name, states, names, tried_targets)

    service = build(expression, probe, states, guarded=False, route=route)
    counts: Counter[tuple[tuple[str, ...], str]] = Counter()
    reasons: dict[tuple[str, ...], str] = {}
    chosen: dict[tuple[tuple[str, ...], str], set[RoutingChoice | None]] = {}
    for number in range(calls):
        tried_targets.clear()
        notes = Notes(session=session)
        one = msgspec.structs.replace(call, id=f"{call.id} {number}", notes=notes)
        refused = await _try(service, one, tried_targets)
        counts[tuple(tried_targets), refused] += 1
        chosen.setdefault((tuple(tried_targets), refused), set()).add(notes.choice)
        reasons.setdefault(tuple(tried_targets), notes.chosen)
    odds = {each: _odds(choices) for each, choices in chosen.items()}
    # choices whose probability changes from call to call have none
    has_odds = math.isclose(sum(odds.values()), 1)
    return [
        PreviewedChoice(
            calls=count,
            targets=each[0],
            why=reasons[each[0]],
            refused=each[1],
            odds=odds[each] if has_odds else None,
        )
        for each, count in counts.most_common()
    ]


def _odds(choices: set[RoutingChoice | None]) -> float:
    """Return the probability of one of `choices`; not a number if one of them has none."""
    return sum(math.nan if each is None or not each.odds else each.odds for each in choices)


async def _try(service: Service, call: Call, tried_targets: list[str]) -> str:
    trying = asyncio.ensure_future(service(call))
    for _ in range(TURNS):
        await asyncio.sleep(0)
        if trying.done():
            break
    trying.cancel()
    try:
        await trying
    except asyncio.CancelledError:
        return ""
    except Fault as fault:
        return "" if tried_targets else str(fault)
    return ""


class _Probe:
    def __init__(
        self, name: str, states: TargetStates, names: list[str], tried_targets: list[str]
    ) -> None:
        self._name = name
        self._states = states
        self._names = names
        self._asked = tried_targets

    def __repr__(self) -> str:
        return f'"{self._name}"'

    async def __call__(self, call: Call) -> Reply:
        states = self._states
        if not states.available(self._name) and any(map(states.available, self._names)):
            raise Overloaded(
                states.unavailable_reason(self._name), kind="ejected", target=self._name
            )
        self._asked.append(self._name)
        await asyncio.get_running_loop().create_future()
        raise TimeoutError("a probe never answers")


def sample(prompt: str) -> Call:
    body = {"messages": [{"role": "user", "content": prompt}], "stream": True}
    return Call(id="preview", body=body, start_ns=clock.now_ns())
