"""Sessions: requests that build on each other, and where their time goes.

A round begins in the middle of sessions and ends in the middle of others, so few of its sessions
are whole, and those are the short ones. Session time is therefore the time of all sessions in the
round ÷ the sessions that were finished in it: the mean in a steady state, whatever the lengths of
sessions are (Little's law). A round ends with an answer, so one end of a session is in it by
choice, not by chance: a session that ends a round does not count as finished there.

The time of a session is spent along its critical path, the chain of requests without which it would
have gone on sooner: walked back from the answer that ended last, each turn follows the answer
before it in its branch, if the planned tool time explains when it was due, and otherwise the answer
of another branch (a sub-agent, or who started it) that ended last before it. So sub-agents that
work at the same time count once.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from splitsecond.benchmark.statistics.steady import (
    MeasuredLoad,
    done_ns,
    due_ns,
    in_flight,
    measured_load,
    reaching,
    round_starts,
)
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.log.statistics.summary import MIN_ROUNDS, RoundNumbers, groupings

SLACK_NS = 50 * NS_PER_MS
"""A turn that is due this much later than its tool time explains waited for another branch."""
Span = tuple[int, int]


class Session(Struct, frozen=True):
    """One session of a row. `requests`: all that were sent, by when they were due, without those
    that only filled the prompt cache, `priming`."""

    name: str
    requests: Sequence[Observation]
    priming: Sequence[Observation] = ()

    @property
    def turns(self) -> list[Observation]:
        """The measured requests that ended."""
        return [o for o in self.requests if o.role == "measured" and o.outcome != "cancelled"]

    @property
    def round(self) -> int:
        return self.any_request.round

    @property
    def any_request(self) -> Observation:
        return (*self.requests, *self.priming)[0]

    @property
    def broken(self) -> bool:
        return any(o.outcome == "failed" for o in self.requests)

    @property
    def finished(self) -> bool:
        return any(o.ok and o.turn and o.turn.last for o in self.requests)

    @property
    def begin_ns(self) -> int:
        """When it began, or was joined: then with the end of the request that filled the cache."""
        return max((o.end_ns for o in self.priming), default=0) or due_ns(self.requests[0])

    @property
    def last_ns(self) -> int:
        """When its last answer was complete."""
        return max(map(done_ns, self.requests), default=self.begin_ns)


class SessionTime(Struct, frozen=True):
    """Seconds of one session within its round: until first tokens, from there to the ends of
    answers, and in tools.

    `finished`: whether it was finished in the round without an error; `broken`: a request of it
    failed. `ends_round`: the round ended with its last answer.
    """

    session: Session
    waiting_s: float
    generating_s: float
    tools_s: float
    finished: bool
    broken: bool
    ends_round: bool


def sessions_of(observations: Iterable[Observation]) -> list[Session]:
    """Return the sessions that have a measured turn that ended, by their begin."""
    return [session for session in all_sessions_of(observations) if session.turns]


def all_sessions_of(observations: Iterable[Observation]) -> list[Session]:
    """Return all sessions by their begin, also those that were only in flight while others were
    measured."""
    sessions = []
    for name, own in grouped((o for o in observations if o.turn), _session).items():
        requests = sorted((o for o in own if o.turn and not o.turn.primes), key=due_ns)
        priming = [o for o in own if o.turn and o.turn.primes]
        if requests or any(o.ok for o in priming):
            sessions.append(Session(name, requests, priming))
    return sorted(sessions, key=lambda session: session.begin_ns)


def _session(o: Observation) -> str:
    return o.turn.session if o.turn else ""


def session_numbers(observations: Sequence[Observation]) -> RoundNumbers | None:
    """Return a number for the session of each request; None for requests outside sessions."""
    if not any(o.turn for o in observations):
        return None
    return np.unique([_session(o) for o in observations], return_inverse=True)[1].astype(np.int64)


def session_groupings(observations: Sequence[Observation]) -> list[RoundNumbers]:
    """Return the rounds and the sessions of turns, where there are enough to show how much they
    scatter."""
    rounds = np.array([o.round for o in observations], dtype=np.int64)
    spread = len(np.unique(rounds[rounds > 0])) >= MIN_ROUNDS
    return groupings(rounds if spread else None, session_numbers(observations))


def critical_path(requests: Sequence[Observation]) -> list[Observation]:
    """Return the requests of the critical path of a session, in order."""
    if not requests:
        return []
    path = [max(requests, key=done_ns)]
    while before := [o for o in requests if done_ns(o) <= due_ns(path[-1]) > due_ns(o)]:
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


def round_spans(sessions: Sequence[Session]) -> dict[int, Span]:
    """Return for each round when its first measured turn was due and when the last one had
    ended."""
    by_round = grouped((o for session in sessions for o in session.turns), lambda o: o.round)
    return {
        number: (min(map(due_ns, own)), max(map(done_ns, own))) for number, own in by_round.items()
    }


def session_times(observations: Iterable[Observation]) -> list[SessionTime]:
    """Return the times of all sessions that were in flight in a round, also of those without a
    measured turn."""
    sessions = all_sessions_of(observations)
    spans = round_spans(sessions)
    return [_time(session, spans[session.round]) for session in sessions if session.round in spans]


def _time(session: Session, span: Span) -> SessionTime:
    over = session.finished or session.broken
    begin, end = _clipped(session.begin_ns, session.last_ns if over else span[1], span)
    waiting = generating = 0
    for o in critical_path(session.requests):
        first = done_ns(o) if o.first_token_ns is None else o.first_token_ns
        waiting += _length(_clipped(due_ns(o), first, span))
        generating += _length(_clipped(first, done_ns(o), span))
    inside = session.last_ns <= span[1]
    return SessionTime(
        session,
        waiting / NS_PER_S,
        generating / NS_PER_S,
        max(end - begin - waiting - generating, 0) / NS_PER_S,
        session.finished and not session.broken and inside,
        session.broken and inside,
        session.last_ns == span[1],
    )


def _clipped(begin: int, end: int, span: Span) -> Span:
    return max(begin, span[0]), min(end, span[1])


def _length(span: Span) -> int:
    return max(span[1] - span[0], 0)


def as_requests(sent: Sequence[Observation]) -> list[Observation]:
    """Return one request for each session, as long as it was in flight in its round, so that load
    is that of sessions.

    One that was cut off was in flight until the end of its round.
    """
    sessions = all_sessions_of(sent)
    spans = round_spans(sessions)
    requests = []
    for session in sessions:
        if session.round not in spans:
            continue
        over = session.finished or session.broken
        begin = max(session.begin_ns, spans[session.round][0])
        end = session.last_ns if over else max(spans[session.round][1], session.last_ns)
        requests.append(
            Observation(
                id=session.name,
                call=session.name,
                target=session.any_request.target,
                round=session.round,
                start_ns=begin,
                sent_ns=begin,
                last_token_ns=end,
                end_ns=end,
            )
        )
    return requests


def session_load(
    sent: Sequence[Observation], concurrency: int, readings: Sequence[InstrumentReading] = ()
) -> MeasuredLoad:
    """Return the load that sessions made: it is steady while so many of them were in flight, with
    or without a request.

    Otherwise as `measured_load`.
    """
    load = measured_load(sent, concurrency, readings)
    curve = in_flight(as_requests(sent), open_loop=False)
    starts = round_starts(sent, open_loop=False)
    steady = reaching(curve, concurrency, starts if len(starts) else load.whole.begin, load.whole)
    return replace(load, curve=curve, steady=steady)
