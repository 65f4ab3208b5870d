"""Sessions as somebody would route them who knows the providers: the limit that no policy can
exceed."""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.session_providers import (
    Caches,
    Chance,
    Outcome,
    Replica,
    Scenario,
    TruePrefix,
    Turnaround,
    in_cache,
    shortened,
    wait_s,
)
from splitsecond.benchmark.workload.sessions import Session

BEAM = 48


class _Plan(NamedTuple):
    cost: float
    at_s: float
    caches: Caches
    went: tuple[int, ...]
    turns: tuple[Turnaround, ...]


def oracle(
    scenario: Scenario,
    sessions: Sequence[Session],
    starts_s: Sequence[float],
    seed: int,
    *,
    by: str,
) -> Outcome:
    """Return the sessions as somebody would route them who knows everything beforehand."""
    chance = Chance(seed)
    return Outcome(
        [_planned(scenario, chance, n, each, starts_s[n], by=by) for n, each in enumerate(sessions)]
    )


def _planned(
    scenario: Scenario, chance: Chance, number: int, session: Session, start_s: float, *, by: str
) -> list[Turnaround]:
    plans = [_Plan(0.0, start_s, {}, (), ())]
    for place, turn in enumerate(session.turns, 1):
        found: dict[tuple[object, ...], _Plan] = {}
        noise = chance.factor(number, place)
        for plan in plans:
            at_s = plan.at_s + wait_s(turn)
            caches = shortened(plan.caches, turn.shared_tokens)
            for name, provider in scenario.providers.items():
                if provider.is_down(at_s):
                    continue
                replica = Replica(name, chance.replica(number, place, name, provider.replicas))
                cached = in_cache(provider, caches.get(replica), at_s)
                new = turn.input_tokens - cached
                seconds = noise * provider.ttft_s(at_s, new, cached) + provider.answer_s(
                    at_s, turn.output_tokens
                )
                usd = provider.usd(new, cached, turn.output_tokens)
                after = {**caches, replica: TruePrefix(turn.input_tokens, at_s)}
                went = Turnaround(seconds, usd, cached, turn.input_tokens, name)
                cost = plan.cost + (usd if by == "usd" else seconds)
                key = tuple((each, prefix.tokens) for each, prefix in sorted(after.items()))
                if key not in found or cost < found[key].cost:
                    found[key] = _Plan(cost, at_s + seconds, after, (), (*plan.turns, went))
        plans = sorted(found.values(), key=lambda plan: plan.cost)[:BEAM]
    return list(plans[0].turns)
