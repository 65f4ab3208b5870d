"""A policy over targets whose behaviour changes with the time."""

import asyncio
from collections.abc import Callable
from random import Random

from tests.policies.branches import Seen, a_call, ask, fails, refused

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.service import Call
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse, targets
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script

GOOD = Script(ttft=0.2, tokens=3)
DOWN = fails(refused(), 0.01)
ScriptAt = Callable[[float], Script]


def priced(input_usd: float, output_usd: float) -> TargetInfo:
    return TargetInfo(price=Price(input_usd=input_usd, output_usd=output_usd))


class World:
    """A policy over fake targets, whose scripts depend on the seconds since the start."""

    def __init__(
        self,
        policy: str,
        *,
        facts: dict[str, TargetInfo] | None = None,
        **scripts: Script | ScriptAt,
    ) -> None:
        self.states = TargetStates(facts, chance=Random(5))
        self.began_ns = clock.now_ns()
        self.fakes = {
            name: FakeService(
                script=self._script(scripts[name[0]]), target=name, observer=self.states.observe
            )
            for name in targets(parse(policy))
        }
        self.service = build(parse(policy), self.fakes.__getitem__, self.states)
        self.number = 0

    def _script(self, said: Script | ScriptAt) -> Callable[[Call], Script]:
        return lambda call: said if isinstance(said, Script) else said(self.now_s)

    @property
    def now_s(self) -> float:
        return (clock.now_ns() - self.began_ns) / NS_PER_S

    def asked(self, name: str) -> int:
        """Return how many requests the target got."""
        return len(self.fakes[name].calls)

    async def ask(self, times: int = 1, *, every_s: float = 0.0) -> Seen:
        """Send `times` calls; return the result of the last."""
        seen = Seen()
        for _ in range(times):
            self.number += 1
            seen = await ask(self.service, a_call(self.number))
            await asyncio.sleep(every_s)
        return seen


def until(moment_s: float, before: Script, after: Script = GOOD) -> ScriptAt:
    """Return `before` until that second, then `after`."""
    return lambda now_s: before if now_s < moment_s else after
