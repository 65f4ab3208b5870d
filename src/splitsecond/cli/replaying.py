"""Replays of the log from the command line: which route, which policy it had, and the progress."""

from collections.abc import Sequence
from functools import partial

from msgspec import to_builtins
from rich.progress import Progress

from splitsecond.cli.console import Console
from splitsecond.cli.log_source import LoggedTraffic
from splitsecond.cli.results import Output
from splitsecond.cli.what_if_screen import print_proposal
from splitsecond.core.errors import CallerFault
from splitsecond.core.validation import nearest, one_of
from splitsecond.log.store.request_columns import RequestColumns
from splitsecond.replay.answer import REPLAYS, WhatIf, replays_of_each
from splitsecond.replay.answer import what_if as answered
from splitsecond.replay.family import family, propose
from splitsecond.routing.construction.expression import Expression, parse


class LoggedRoute:
    """The calls to a route of a log, at most `calls`, and the policy `now` that it had.

    `route`: "" for the one with most calls. `today`: "" for the policy of the configuration.
    Raises `CallerFault` if one of them is not known.
    """

    def __init__(
        self,
        logged: LoggedTraffic,
        route: str,
        today: str,
        calls: int,
    ) -> None:
        self._logged = logged
        self.policies = logged.policies()
        self.name = _route(logged, route)
        now = parse(today, self.policies) if today else logged.policy(self.name)
        if now is None:
            raise CallerFault(
                f"the policy of the route {self.name!r} in the log is not known",
                kind="no_policy",
                hint="Name it with --today, or the gateway's configuration with --config.",
            )
        self.now: Expression = now
        self.requests: RequestColumns
        self.requests, self.count = logged.requests(self.name, calls)

    def what_if(self, others: Sequence[Expression], *, any_load: bool) -> WhatIf:
        """Replay the calls through `others`. A terminal shows the progress."""
        facts = self._logged.facts(self.requests.targets)
        screen = Console(stderr=True)
        with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
            replays = REPLAYS + replays_of_each(self.requests) * len(others)
            total = replays * len(self.requests.calls.came_us)
            task = progress.add_task("replaying the log", total=total)
            return answered(
                self.requests, self.now, others, facts, route=self.name, logged_calls=self.count,
                any_load=any_load, sent=lambda more: progress.advance(task, more),
            )  # fmt: skip


def _route(logged: LoggedTraffic, route: str) -> str:
    calls_by_route = dict(logged.routes())
    if not calls_by_route:
        raise logged.nothing()
    if route and route not in calls_by_route:
        hint = f"{nearest(route, calls_by_route)} There are: {', '.join(calls_by_route)}.".lstrip()
        raise CallerFault(
            f"the log has no calls to a route {route!r}", kind="unknown_route", hint=hint
        )
    return route or next(iter(calls_by_route))


GOALS = {
    "ttft-p50": "ttft_p50_ms",
    "ttft-p95": "ttft_p95_ms",
    "total-p50": "total_p50_ms",
    "total-p95": "total_p95_ms",
    "cost": "usd_per_1000",
    "failures": "failed",
}
"""The figures that a policy can be proposed for, and their names in an answer."""
MAX_CALLS = 10_000
"""Calls that are replayed: about 4 s for each policy of the family."""


def goal_of(text: str) -> str:
    """Return the name of a figure of `GOALS`. Raises `CallerFault` for another one."""
    one_of("policy", text, tuple(GOALS))
    return GOALS[text]


def propose_policy(
    logged: LoggedTraffic,
    by: str,
    names: Sequence[str],
    route_and_policy: tuple[str, str],
    output: Output,
    *,
    any_load: bool,
) -> None:
    """Print the policy that improves the figure `by` most, with its evidence.

    `names`: runs and uses, which belong to other recommendations. Raises `CallerFault` for these,
    for fewer than two targets, and as `what-if` does.
    """
    if names:
        raise CallerFault(
            f"got {names[0]!r} with --policy, which recommends no targets", kind="bad_option"
        )
    output.check()
    replayed = LoggedRoute(logged, *route_and_policy, MAX_CALLS)
    policies = family(replayed.requests, replayed.now)
    if not policies:
        raise CallerFault(
            f"the log has fewer than two targets that answered often enough on {replayed.name!r}",
            kind="nothing_logged",
            hint="Send another target a share of the calls for a week: what-if --explore 1%.",
        )
    proposal = propose(replayed.what_if(policies, any_load=any_load), by)

    output.show(proposal, partial(figure_rows, proposal.answer), partial(print_proposal, proposal))


def figure_rows(replay: WhatIf) -> list[dict[str, object]]:
    """Return the figures of all policies, for CSV."""
    return [
        {"policy": each.policy, **to_builtins(figure)}
        for each in replay.answers
        for figure in each.figures
    ]
