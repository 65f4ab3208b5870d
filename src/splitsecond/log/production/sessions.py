"""What a client waited for in its sessions, and what they cost: the calls of a session as a
waterfall.

Each moment of a session, from the arrival of its first call to the end of its last answer, has one
cause. Of calls that overlap, as those of several agents do, a moment belongs to the one that came
in first; `overlap_s` is what the others took meanwhile. So the causes add up to the session's time.

A cache miss is the time to read tokens again that a prompt cache without limits would have held. It
follows from the target's own usual times (`TargetTimes`), and is at most what the call waited for
its first token.

The module loads no numpy, so that the gateway can use it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct, structs

from splitsecond.core.catalog.price import MILLION, Price
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.money.cost import usd
from splitsecond.core.observation import Observation
from splitsecond.core.session import CallSession
from splitsecond.log.production.token_cost import spent_usd
from splitsecond.log.store.call_record import OWN_TARGET, CallRecord
from splitsecond.log.store.log import LoggedSession, SpentTokens
from splitsecond.log.store.rows import QUEUE_TIME

SCHEMA = "splitsecond.sessions/1"
MIN_MISSED_TOKENS = 256
"""Fewer tokens that were read again are no cache miss: providers cache in blocks."""
Z = 1.96

CAUSES: Mapping[str, str] = {
    "network_s": "the network and connections",
    "queue_s": "queues and limits",
    "retries_s": "retries and fallbacks",
    "cache_miss_s": "cache misses",
    "prefill_s": "reading new tokens",
    "generation_s": "generation",
    "tool_s": "tools and pauses between turns",
}
"""The causes in words, in the order in which they follow each other in a call."""
Pricing = Callable[[str], Price | None]
NO_SESSION = CallSession(id="", source="")
"""The session of a call that has none."""


class Causes(Struct, kw_only=True):
    """Seconds by cause. `queue_s`: limits of the gateway, and the server's queue where it reports
    one. `retries_s`: attempts that failed or lost before the one that answered. `generation_s`:
    from the first token to the end of the answer. `tool_s`: between an answer and the next call, in
    which the client or its user works."""

    network_s: float = 0.0
    queue_s: float = 0.0
    retries_s: float = 0.0
    cache_miss_s: float = 0.0
    prefill_s: float = 0.0
    generation_s: float = 0.0
    tool_s: float = 0.0

    @property
    def total_s(self) -> float:
        return float(sum(structs.astuple(self)))

    @property
    def waited_s(self) -> float:
        """Seconds that the client waited for answers."""
        return self.total_s - self.tool_s

    def add(self, other: "Causes") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TargetTimes(Struct, frozen=True, kw_only=True):
    """The usual times of a target by its `turns` in the log: a first token takes `fixed_s`, `new_s`
    for each new input token and `reused_s` for each from its prompt cache, with a relative scatter
    of `scale`; each further output token takes `token_s`, with a relative scatter of `token_scale`
    between answers."""

    turns: int
    fixed_s: float
    new_s: float
    reused_s: float
    scale: float
    token_s: float
    token_scale: float

    def ttft_s(self, new: float, reused: float) -> float:
        return max(self.fixed_s + self.new_s * new + self.reused_s * reused, 0.0)


class ReportedTurn(Struct, kw_only=True):
    """One call of a session. `at_s`: from the beginning of the session to its arrival. `took_s`: to
    the end of its answer. `overlap_s`: the part of it in which an earlier call was in flight.

    `missed_tokens`: tokens that were read again although an earlier call had sent them. `left`: the
    target that answered the agent before, if it is another one; `left_after`: the fault that made
    it move, "" for a choice of the policy. `missed_usd`: what the missed tokens cost more than from
    the cache; None: no price. `repeated`: how often in a row the model had called the same tool
    with the same arguments; 0: less than a loop.
    """

    call: str
    agent: str
    turn: int
    at_s: float
    took_s: float
    overlap_s: float = 0.0
    idle_s: float | None = None
    target: str
    outcome: str
    fault: str
    input_tokens: int | None = None
    cached_tokens: int = 0
    output_tokens: int | None = None
    missed_tokens: int = 0
    missed_usd: float | None = None
    left: str = ""
    left_after: str = ""
    repeated: int = 0
    usd: float | None = None
    causes: Causes


class OtherTarget(Struct, frozen=True):
    """How long the client would have waited at another target: an interval of 95%, in seconds."""

    target: str
    low_s: float
    high_s: float


class ReportedSession(Struct, kw_only=True):
    """`limited`: calls that the gateway answered itself, because a limit was reached: no turns.
    `usd`: what its calls cost; `unpriced`: attempts whose target has no known price, which are in
    no sum."""

    id: str
    client: str
    began: datetime
    wall_s: float
    turns: list[ReportedTurn]
    agents: int
    errors: int
    usd: float
    unpriced: int
    cached_share: float | None
    causes: Causes
    others: list[OtherTarget]
    limited: int = 0

    @property
    def slowest(self) -> ReportedTurn:
        return max(self.turns, key=lambda turn: turn.took_s)


def summarised(session: LoggedSession, price: Pricing) -> dict[str, object]:
    """Return the figures of a session for lists and JSON. `unpriced`: attempts whose target has no
    known price."""
    return {
        "id": session.id,
        "client": session.client,
        "route": session.route,
        "began": datetime.fromtimestamp(session.began_us / 1e6, UTC),
        "wall_s": (session.ended_us - session.began_us) / 1e6,
        "turns": session.calls,
        "agents": session.agents,
        "errors": session.errors,
        "slowest_s": session.slowest_ns / NS_PER_S,
        "repeated": session.repeated,
        "input_tokens": session.input_tokens,
        "cached_share": session.cached_tokens / session.input_tokens
        if session.input_tokens
        else None,
        "usd": spent_usd(session.spent, price),
        "unpriced": sum(
            tokens.attempts for tokens in session.spent if price(tokens.target) is None
        ),
    }


def reported(
    calls: Sequence[tuple[datetime, CallRecord]],
    price: Pricing = lambda target: None,
    times: Mapping[str, TargetTimes] | None = None,
) -> ReportedSession:
    """Return the report of the calls of one session, or of several together, in the order of their
    arrival; there is at least one.

    `times`: the usual times of targets; without those of its target a turn has no cache miss.
    """
    times = times or {}
    sent_on = [each for each in calls if each[1].target != OWN_TARGET] or calls
    began, first = sent_on[0]
    turns: list[ReportedTurn] = []
    total = Causes()
    covered_s = 0.0
    before: dict[str, str] = {}
    for came, call in sent_on:
        turn = _turn(call, (came - began).total_seconds(), price, times)
        _clip(turn, covered_s)
        _note_move(turn, call, before)
        covered_s = max(covered_s, turn.at_s + turn.took_s)
        total.add(turn.causes)
        turns.append(turn)
    return ReportedSession(
        id=(first.session or NO_SESSION).id,
        client=first.client,
        began=began,
        wall_s=covered_s,
        turns=turns,
        agents=len({turn.agent for turn in turns}),
        errors=sum(turn.outcome == "failed" for turn in turns),
        usd=sum(turn.usd or 0.0 for turn in turns),
        unpriced=sum(turn.usd is None for turn in turns),
        cached_share=_cached_share(turns),
        causes=total,
        others=_elsewhere(turns, times),
        limited=len(calls) - len(sent_on),
    )


def _note_move(turn: ReportedTurn, call: CallRecord, targets: dict[str, str]) -> None:
    """Note whether another target answered the agent before. `targets`: the latest of each
    agent."""
    if not call.target:
        return
    left = targets.get(turn.agent, "")
    targets[turn.agent] = call.target
    if left and left != call.target:
        turn.left, turn.left_after = left, _fault_before(call, left)


def _cached_share(turns: Sequence[ReportedTurn]) -> float | None:
    sent = [(turn.input_tokens, turn.cached_tokens) for turn in turns if turn.input_tokens]
    return sum(cached for _, cached in sent) / sum(tokens for tokens, _ in sent) if sent else None


def _turn(
    call: CallRecord, at_s: float, price: Pricing, times: Mapping[str, TargetTimes]
) -> ReportedTurn:
    session = call.session or NO_SESSION
    winner = next((each for each in reversed(call.attempts) if each.role == "winner"), None)
    turn = ReportedTurn(
        call=call.call,
        agent=session.agent,
        turn=session.turn,
        at_s=at_s,
        took_s=call.end_ns / NS_PER_S,
        idle_s=None if session.idle_ns is None else session.idle_ns / NS_PER_S,
        target=call.target,
        outcome=call.outcome,
        fault=call.fault,
        repeated=session.repeated,
        usd=_call_usd(call, price),
        causes=Causes(),
    )
    if winner is not None:
        turn.input_tokens, turn.output_tokens = winner.input_tokens, winner.output_tokens
        turn.cached_tokens = winner.cached_tokens or 0
        turn.missed_tokens = _missed_tokens(session, winner)
    if turn.missed_tokens and call.target:
        turn.missed_usd = _missed_usd(turn.missed_tokens, price(call.target))
    turn.causes = _causes(call, winner, turn, times.get(call.target))
    return turn


def _missed_tokens(session: CallSession, winner: Observation) -> int:
    """Return how many input tokens were read again; 0 if they are too few for a cache miss."""
    prompt_tokens = session.new_tokens + session.reusable_tokens
    if not winner.input_tokens or not prompt_tokens:
        return 0
    reusable = round(winner.input_tokens * session.reusable_tokens / prompt_tokens)
    missed = reusable - (winner.cached_tokens or 0)
    return missed if missed >= MIN_MISSED_TOKENS else 0


def _missed_usd(tokens: int, price: Price | None) -> float | None:
    if price is None or price.cached_usd is None:
        return None
    return tokens * (price.input_usd - price.cached_usd) / MILLION


def _call_usd(call: CallRecord, price: Pricing) -> float | None:
    """Return what the attempts with token counts cost; None if one of them has no price."""
    costs = [_cost_usd(each, price) for each in call.attempts if each.input_tokens is not None]
    return None if None in costs else sum(each or 0.0 for each in costs)


def _causes(
    call: CallRecord, winner: Observation | None, turn: ReportedTurn, times: TargetTimes | None
) -> Causes:
    """Return the causes of a call's time, whose sum is that time."""
    causes, end_s = Causes(), call.end_ns / NS_PER_S
    others = [each for each in call.attempts if each is not winner]
    if winner is None or winner.sent_ns is None:
        causes.retries_s, causes.queue_s = (end_s, 0.0) if others else (0.0, end_s)
        return causes
    sent_s = min(winner.sent_ns / NS_PER_S, end_s)
    connect_s = min((winner.dns_ns + winner.tcp_ns + winner.tls_ns) / NS_PER_S, sent_s)
    waited_s = sent_s - connect_s
    causes.network_s = connect_s
    if others:
        causes.retries_s = waited_s
    else:
        causes.queue_s = waited_s
    first_ns = winner.first_token_ns if winner.first_token_ns is not None else call.first_token_ns
    first_s = end_s if first_ns is None else min(max(first_ns / NS_PER_S, sent_s), end_s)
    left_s = first_s - sent_s
    network_s = min((winner.rtt_ns or 0) / NS_PER_S, left_s)
    queue_s = min(winner.server_timings.get(QUEUE_TIME, 0.0), left_s - network_s)
    left_s -= network_s + queue_s
    causes.network_s += network_s
    causes.queue_s += queue_s
    generation_s = end_s - first_s
    # the whole answer arrives at once: only its beginning is prefill
    if times is not None and not winner.streamed:
        new = (turn.input_tokens or 0) - turn.cached_tokens
        prefill_s = min(times.ttft_s(new, turn.cached_tokens), left_s)
        generation_s, left_s = generation_s + left_s - prefill_s, prefill_s
    if times is not None and turn.missed_tokens:
        causes.cache_miss_s = min(
            max((times.new_s - times.reused_s) * turn.missed_tokens, 0.0), left_s
        )
    causes.prefill_s = left_s - causes.cache_miss_s
    causes.generation_s = generation_s
    return causes


def _clip(turn: ReportedTurn, covered_s: float) -> None:
    """Remove from a turn's causes the beginning in which an earlier call was in flight; add the
    time before it."""
    turn.overlap_s = min(max(covered_s - turn.at_s, 0.0), turn.took_s)
    left_s = turn.overlap_s
    for name in CAUSES:
        part_s = min(getattr(turn.causes, name), left_s)
        setattr(turn.causes, name, getattr(turn.causes, name) - part_s)
        left_s -= part_s
    turn.causes.tool_s = max(turn.at_s - covered_s, 0.0)


def _fault_before(call: CallRecord, left: str) -> str:
    """Return why a call was not answered by the target `left`; "" if it was not sent to it."""
    faults = [
        each.fault for each in call.attempts if each.target == left and each.fault is not None
    ]
    return faults[-1].kind if faults else ""


def _cost_usd(attempt: Observation, price: Pricing) -> float | None:
    if price(attempt.target) is None:
        return None
    tokens = SpentTokens(
        target=attempt.target,
        tier=attempt.tier,
        longest_prompt=attempt.input_tokens or 0,
        input_tokens=attempt.input_tokens or 0,
        cached_tokens=attempt.cached_tokens or 0,
        cache_write_tokens=attempt.cache_write_tokens or 0,
        cache_write_1h_tokens=attempt.cache_write_1h_tokens or 0,
        output_tokens=attempt.output_tokens or 0,
    )
    return spent_usd([tokens], price)


def _elsewhere(
    turns: Sequence[ReportedTurn], times: Mapping[str, TargetTimes]
) -> list[OtherTarget]:
    """Return how long the calls that were answered would have taken at each other target that
    served the log.

    All of them there, so that its cache would have held what the session had sent before.
    """
    used = {turn.target for turn in turns}
    others = []
    for name, each in times.items():
        total_s = variance = 0.0
        for turn in turns:
            if turn.input_tokens is None or turn.overlap_s >= turn.took_s:
                continue
            reused = turn.cached_tokens + turn.missed_tokens
            prefill_s = each.ttft_s(turn.input_tokens - reused, reused)
            decode_s = max((turn.output_tokens or 1) - 1, 0) * each.token_s
            total_s += prefill_s + decode_s
            variance += (prefill_s * each.scale) ** 2 + (decode_s * each.token_scale) ** 2
        variance += total_s**2 * max(each.scale, each.token_scale) ** 2 / each.turns
        if name not in used and total_s:
            error_s = Z * variance**0.5
            others.append(OtherTarget(name, max(total_s - error_s, 0.0), total_s + error_s))
    return sorted(others, key=lambda other: other.high_s)


def sentence(session: ReportedSession) -> str:
    """Return what the client waited for most, and where it would have waited less."""
    causes = session.causes
    words = f"You waited {span(causes.waited_s)} of {span(session.wall_s)}"
    if causes.waited_s:
        name = max(
            (each for each in CAUSES if each != "tool_s"), key=lambda each: getattr(causes, each)
        )
        share = getattr(causes, name) / causes.waited_s
        words += (
            f"; {share:.0%} was "
            f"{CAUSES[name]}{_pauses(session.turns) if name == 'cache_miss_s' else ''}"
        )
    best = next((each for each in session.others if each.high_s < causes.waited_s), None)
    if best is not None:
        words += f"; at {best.target} it would have been {span(best.low_s)} to {span(best.high_s)}"
    return f"{words}."


def moved(turn: ReportedTurn) -> str:
    """Return what a change of target cost, in words; "" if there was none."""
    if not turn.left:
        return ""
    words = f"moved from {turn.left}{f' after {turn.left_after}' if turn.left_after else ''}"
    if not turn.missed_tokens:
        return words
    costs = [f"{turn.causes.cache_miss_s:.1f} s"] if turn.causes.cache_miss_s else []
    costs += [usd(turn.missed_usd)] if turn.missed_usd else []
    return (
        f"{words}: {turn.missed_tokens:,} tokens prefilled "
        f"again{', ' if costs else ''}{' and '.join(costs)}"
    )


def looped(turn: ReportedTurn) -> str:
    """Return which loop of the agent a turn continues, in words; "" if none."""
    return f"the same tool call {turn.repeated:,} times in a row" if turn.repeated else ""


def _pauses(turns: Sequence[ReportedTurn]) -> str:
    """Return after which pauses most of the cache misses came, if they came after pauses."""
    missed = [
        turn
        for turn in turns
        if turn.causes.cache_miss_s and not turn.left and turn.idle_s is not None
    ]
    idle_s = sorted(turn.idle_s or 0.0 for turn in missed)
    least_s = idle_s[len(idle_s) // 10] if idle_s else 0.0
    return f" after pauses of more than {span(least_s)}" if least_s >= 1 else ""


def span(seconds: float) -> str:
    """Return a time in words: "5.3 ms", "3.2 s", "71 s", "41 min", "2 h 10"."""
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.{0 if seconds >= 0.01 else 1}f} ms"
    if seconds < 120:
        return f"{seconds:.{0 if seconds >= 10 else 1}f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02}"
