from collections.abc import Sequence

from msgspec import to_builtins
from rich.console import Console

from splitsecond.cli.log_source import LoggedTraffic
from splitsecond.cli.replaying import LoggedRoute
from splitsecond.cli.results import Output
from splitsecond.cli.what_if_screen import print_proposal
from splitsecond.core.errors import CallerFault
from splitsecond.core.validation import one_of
from splitsecond.replay.family import family, propose

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
    found = propose(replayed.what_if(policies, any_load=any_load), by)

    def show(console: Console) -> None:
        print_proposal(found, console)

    rows = [
        {"policy": each.policy, **to_builtins(figure)}
        for each in found.answer.answers
        for figure in each.figures
    ]
    output.write(found, lambda: rows, show)
    show(output.screen())
