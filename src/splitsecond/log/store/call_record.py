"""Record of one finished call of the gateway, as it is written to the log: frozen, without prompts,
answers or keys.

It contains no price either: the cost of a call is computed from its tokens and the prices of a
date. An imported call also has the cost that the other program's log states.
"""

from msgspec import Struct

from splitsecond.core.observation import Observation, Outcome
from splitsecond.core.service import RoutingChoice
from splitsecond.core.session import CallSession

DIRECT = "direct"
"""The label of calls whose client named a target in place of a route."""
WORKER_DIED = "worker_died"
OWN_TARGET = "splitsecond"
"""The target of calls that the gateway answers itself: a limit was reached, and the key or route
wants an answer instead of an error (`at_limit: ask`)."""


class CallAccounting(Struct, frozen=True, kw_only=True):
    """To whom a call belongs: the team of its key, or what an imported log says. `stated_usd`: what
    that log states that it cost, in US dollars; None: it does not. `tags` are sorted and joined by
    a comma and a space."""

    team: str = ""
    tags: str = ""
    stated_usd: float | None = None


class CallRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a client, and the attempts that were made for it.

    Times are monotonic nanoseconds. `wall_us`: the difference of wall-clock and monotonic
    microseconds when the call ended, which dates them. `start_ns`: the call came in.
    `first_token_ns`: the first token was there to pass on; None without one. `end_ns`: the last
    byte of the answer was passed on, or the call was refused or abandoned.

    `call`: its id. `route`: what the client named in `model`. `client`: the name of its key.
    `stream`: it asked for a stream. `status`: the HTTP status that it received; 499 if it left
    before. `cache`: "", "hit", "miss" or "shared". `target`: the one that answered, "" for none.
    `fault`: the `kind` of the fault that the client received, or "".

    `output_limit`: the client's limit on output tokens, if there are several attempts; the log does
    not keep it. `traceparent`: the client's header of that name, "" without; the log does not keep
    it either.

    `session`: where in a session of the client the call is; None without one. `accounting`: None
    for a call without a team, tags and stated cost. `choice`: of a policy among its branches; None
    without one.

    `attempts`, in the order in which they ended, have the role "winner" or "loser". The tokens of
    the call are those of its last winner.
    """

    call: str
    start_ns: int
    end_ns: int
    first_token_ns: int | None = None
    route: str
    client: str = ""
    operation: str = "chat"
    stream: bool = False
    status: int
    cache: str = ""
    target: str = ""
    outcome: Outcome = "ok"
    fault: str = ""
    output_limit: int | None = None
    traceparent: str = ""
    wall_us: int = 0
    session: CallSession | None = None
    accounting: CallAccounting | None = None
    choice: RoutingChoice | None = None
    attempts: tuple[Observation, ...] = ()

    @property
    def came_us(self) -> int:
        """When the call came in: microseconds since 1970."""
        return self.start_ns // 1000 + self.wall_us

    @property
    def route_label(self) -> str:
        """The route in metrics and traces: `DIRECT` for every named target, so that clients cannot
        add label values."""
        return DIRECT if "/" in self.route else self.route
