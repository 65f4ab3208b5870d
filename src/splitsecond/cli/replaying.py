"""Replays of the log from the command line: which route, which policy it had, and the progress."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress

from splitsecond.cli.log_source import LoggedTraffic
from splitsecond.core.errors import CallerFault
from splitsecond.core.validation import nearest
from splitsecond.log.store.request_columns import RequestColumns
from splitsecond.replay.answer import REPLAYS, WhatIf, replays_of_each
from splitsecond.replay.answer import what_if as answered
from splitsecond.routing.construction.expression import Expression, parse


class LoggedRoute:
    """The calls to a route of a log, at most `calls`, and the policy `now` that it had.

    `route`: "" for the one with most calls. `today`: "" for the policy of the configuration;
    `option`: its name on the command line. Raises `CallerFault` if one of them is not known.
    """

    def __init__(
        self,
        logged: LoggedTraffic,
        route: str,
        today: str,
        calls: int,
        *,
        option: str = "--today",
    ) -> None:
        self._logged = logged
        self.policies = logged.policies()
        self.name = _route(logged, route)
        now = parse(today, self.policies) if today else logged.policy(self.name)
        if now is None:
            raise CallerFault(
                f"the policy of the route {self.name!r} in the log is not known",
                kind="no_policy",
                hint=f"Name it with {option}, or the gateway's configuration with --config.",
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
    known = dict(logged.routes())
    if not known:
        raise logged.nothing()
    if route and route not in known:
        hint = f"{nearest(route, known)} There are: {', '.join(known)}.".lstrip()
        raise CallerFault(
            f"the log has no calls to a route {route!r}", kind="unknown_route", hint=hint
        )
    return route or next(iter(known))
