"""`near(a, b, ..., region="eu")`: only targets in the region, and of those the one that is nearest by its speed.

What it does. A branch is in the region if all of its targets are: "eu" is also "eu-west", not "europe", and a target
whose region is not known is in none. The others are never asked, whatever happens: this is for data that must not
leave. Among those in the region the one with the shortest time to first token is asked, as `fastest` does it, since
what counts is the way from here and not the map.

A client may narrow the region by the hint `region` ("eu-west"), never widen it: where no branch is in both, the call is
refused.

What it costs. The speed of all targets elsewhere.

When it helps. With rules on where data may be, and with one model in several regions.

When it hurts. When the region is down, all is: name two providers in it.

Where it stands. Inside `fallback` and `deadline`; a target elsewhere in a `fallback` around it takes the promise back.
Regions are those of the catalogue and the configuration; where none is known the policy cannot be made.
"""

from collections.abc import Iterable, Sequence

from splitsecond.errors import CallerFault
from splitsecond.policy.choosing.branch import Branch, ask_in_turn, branches
from splitsecond.policy.fastest import Fastest
from splitsecond.policy.settings import region as checked
from splitsecond.policy.settings import setting_text_of, written
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service


def near(
    *services: Service,
    region: str,
    standing: Standing | None = None,
    names: Sequence[Sequence[str]] = (),
) -> Service:
    """The service that asks those of `services` in `region`. Raises `CallerFault` where there is none."""
    return Near(branches(services, names), checked("region", region), standing or Standing())


class Near:
    """See `near`."""

    def __init__(self, among: Sequence[Branch], region: str, standing: Standing) -> None:
        self._branches = among
        self._region = region
        self._standing = standing
        self._inside = self._within(among, region)
        if not self._inside:
            raise _nowhere(region, among, standing, "bad_policy")
        self._fastest = Fastest(self._inside, standing, "ttft", 0.5)

    def __repr__(self) -> str:
        return written("near", [branch.service for branch in self._branches], region=self._region)

    async def __call__(self, call: Call) -> Reply:
        narrower = call.hints.get("region")
        inside = self._inside if not narrower else self._within(self._inside, narrower)
        if not inside:
            raise _nowhere(narrower or self._region, self._inside, self._standing, "no_such_region")
        return await ask_in_turn(call, self._fastest.choices(call, inside, "near"))

    def _within(self, among: Iterable[Branch], region: str) -> list[Branch]:
        return [branch for branch in among if is_in(region, branch.names, self._standing)]


def is_in(region: str, names: Iterable[str], standing: Standing) -> bool:
    """Whether all targets with these `names` are in `region`, by what is known of them."""
    regions = (standing.facts(name).region for name in names)
    return all(where == region or where.startswith(f"{region}-") for where in regions)


def inside(names: Iterable[Sequence[str]], standing: Standing, *, region: str) -> list[str]:
    """The targets that the policy may ask, of branches with these `names` of targets."""
    return [name for branch in names if is_in(region, branch, standing) for name in branch]


def _nowhere(region: str, among: Sequence[Branch], standing: Standing, kind: str) -> CallerFault:
    regions = {standing.facts(name).region for branch in among for name in branch.names}
    known = ", ".join(sorted(regions - {""}))
    return CallerFault(
        f"no branch is in the region {setting_text_of(region)}",
        kind=kind,
        hint=f"There are: {known}." if known else "No region is known of any of its targets.",
    )
