"""Sessions: requests that build on each other, and where the time of a session goes.

A session's time runs from when its first measured turn was due until its last answer was complete. It splits along the
critical path, the chain of requests without which the session would have ended sooner: walked back from the answer that
ended last, each turn follows the answer before it in its branch, if the planned tool time explains when it was due, and
otherwise the answer of another branch (a sub-agent, or who started it) that ended last before it. So sub-agents that
work at the same time count once.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from splitsecond.benchmark.statistics.steady import done_ns, due_ns
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import Observation
from splitsecond.log.statistics.summary import MIN_ROUNDS, RoundNumbers, groupings

SLACK_NS = 50 * NS_PER_MS
"""A turn that is due this much later than its tool time explains waited for another branch."""


class Session(Struct, frozen=True):
    """One session of a row. `turns`: its measured turns that ended, by when they were due; at least one.

    `priming`: requests that filled the prompt cache before them.
    """

    name: str
    turns: Sequence[Observation]
    priming: Sequence[Observation] = ()

    @property
    def round(self) -> int:
        return self.turns[0].round

    @property
    def broken(self) -> bool:
        return not all(o.ok for o in self.turns)

    @property
    def cut_off(self) -> bool:
        """Whether it was stopped before its end, which is neither a success nor an error."""
        return not self.broken and any(o.turn and o.turn.turns > len(self.turns) for o in self.turns)

    @property
    def begin_ns(self) -> int:
        return due_ns(self.turns[0])

    @property
    def end_ns(self) -> int:
        return max(map(done_ns, self.turns))

    @property
    def first(self) -> Observation:
        """The first measured turn."""
        return self.turns[0]


class SessionSplit(Struct, frozen=True):
    """Seconds of a session's critical path: until first tokens, from there to the ends of answers, and in tools."""

    waiting_s: float
    generating_s: float
    tools_s: float


def sessions_of(observations: Iterable[Observation]) -> list[Session]:
    """Return the sessions that have a measured turn that ended, by their begin."""
    found = []
    for name, own in grouped((o for o in observations if o.turn), _session).items():
        turns = sorted((o for o in own if o.role == "measured" and o.outcome != "cancelled"), key=due_ns)
        if turns:
            found.append(Session(name, turns, [o for o in own if o.turn and o.turn.primes]))
    return sorted(found, key=lambda session: session.begin_ns)


def _session(o: Observation) -> str:
    return o.turn.session if o.turn else ""


def session_numbers(observations: Sequence[Observation]) -> RoundNumbers | None:
    """Return a number for the session of each request; None for requests outside sessions."""
    if not any(o.turn for o in observations):
        return None
    return np.unique([_session(o) for o in observations], return_inverse=True)[1].astype(np.int64)


def session_groupings(observations: Sequence[Observation]) -> list[RoundNumbers]:
    """Return the rounds and the sessions of turns, where there are enough to show how much they scatter."""
    rounds = np.array([o.round for o in observations], dtype=np.int64)
    spread = len(np.unique(rounds[rounds > 0])) >= MIN_ROUNDS
    return groupings(rounds if spread else None, session_numbers(observations))


def critical_path(turns: Sequence[Observation]) -> list[Observation]:
    """Return the turns of the critical path, in order. `turns` are those of one session, all of them complete."""
    path = [max(turns, key=done_ns)]
    while before := [o for o in turns if done_ns(o) <= due_ns(path[-1])]:
        path.append(_cause(path[-1], before))
    return path[::-1]


def _cause(of: Observation, before: Sequence[Observation]) -> Observation:
    assert of.turn is not None
    own = [o for o in before if o.turn and o.turn.branch == of.turn.branch]
    if own:
        last = max(own, key=done_ns)
        if due_ns(of) - done_ns(last) <= of.turn.wait_ns + SLACK_NS:
            return last
    return max(before, key=done_ns)


def split(session: Session) -> SessionSplit:
    """Return where the time of a session without an error goes."""
    path = critical_path(session.turns)
    waiting = sum((o.first_token_ns or done_ns(o)) - due_ns(o) for o in path)
    generating = sum(done_ns(o) - (o.first_token_ns or done_ns(o)) for o in path)
    tools = sum(due_ns(after) - done_ns(o) for o, after in pairwise(path))
    return SessionSplit(waiting / NS_PER_S, generating / NS_PER_S, tools / NS_PER_S)


def as_requests(sent: Sequence[Observation]) -> list[Observation]:
    """Return one request for each session, from its first call to its last end, so that load is that of sessions.

    A session is measured if one of its turns is; otherwise it kept the load up.
    """
    made = []
    for name, own in grouped((o for o in sent if o.turn), _session).items():
        measured = [o for o in own if o.role == "measured"]
        first = min(measured or own, key=due_ns)
        last = max(measured or own, key=done_ns)
        made.append(
            Observation(
                id=name,
                call=name,
                target=first.target,
                condition=first.condition,
                round=first.round,
                role=first.role,
                outcome=last.outcome,
                due_ns=first.due_ns,
                start_ns=min(o.start_ns for o in own),
                sent_ns=first.sent_ns,
                last_token_ns=last.last_token_ns,
                end_ns=max(o.end_ns for o in own),
            )
        )
    return made
