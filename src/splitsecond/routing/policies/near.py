"""`near(a, b, ..., region="eu")`: only targets in the region, and of those the one that is nearest
by its speed."""

from collections.abc import Iterable, Sequence

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.choosing.branch import Branch, ask_in_turn
from splitsecond.routing.machinery.choosing.session_choice import CacheUse
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.settings import RegionName, short_text
from splitsecond.routing.policies.fastest import MEAN, SpeedChoice
from splitsecond.routing.targets.target_states import TargetStates


class Near(PolicyService):
    """Asks the branches in `region`. Raises `CallerFault` if no branch is in it."""

    def __init__(
        self,
        context: PolicyContext,
        first: Service,
        /,
        *others: Service,
        region: RegionName,
        cache: CacheUse | None = None,
    ) -> None:
        super().__init__(context)
        self._region = region.name
        branches = context.branches((first, *others))
        self._inside = self._within(branches, region.name)
        if not self._inside:
            raise _no_branch(region.name, branches, context.states, "bad_policy")
        self._choice = SpeedChoice("near", context.states, "ttft", MEAN, cache)

    async def __call__(self, call: Call) -> Reply:
        narrower = call.hints.get("region")
        inside = self._inside if not narrower else self._within(self._inside, narrower)
        if not inside:
            raise _no_branch(narrower or self._region, self._inside, self._states, "no_such_region")
        return await ask_in_turn(call, self._choice.choices(call, inside))

    def _within(self, among: Iterable[Branch], region: str) -> list[Branch]:
        return [branch for branch in among if _is_in(region, branch.names, self._states)]


def _reachable(
    names: Iterable[Sequence[str]], states: TargetStates, *, region: str, cache: str = ""
) -> list[str]:
    return [name for branch in names if _is_in(region, branch, states) for name in branch]


def _is_in(region: str, names: Iterable[str], states: TargetStates) -> bool:
    regions = (states.info(name).region for name in names)
    return all(where == region or where.startswith(f"{region}-") for where in regions)


def _no_branch(
    region: str, among: Sequence[Branch], states: TargetStates, kind: str
) -> CallerFault:
    regions = {states.info(name).region for branch in among for name in branch.names}
    names = ", ".join(sorted(regions - {""}))
    return CallerFault(
        f"no branch is in the region {short_text(region)}",
        kind=kind,
        hint=f"There are: {names}." if names else "No region is known of any of its targets.",
    )


near = Policy(
    Near,
    example='near("a/x", "b/x", region="eu")',
    branches="alternatives",
    reachable=_reachable,
    needs_stream=(),
)
