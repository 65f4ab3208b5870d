"""Where the next turn of a session goes: it stays with its prompt cache unless moving gains more than that is worth.

For each branch there are two amounts, in ns or in dollars: `now`, of this turn by the tokens that its cache probably
has, and `turn`, of each later one, whose prompt is cached there by then. A session stays unless another branch is
better over this turn and the next `HORIZON` by more than the uncertainty of the difference. A session of which no
branch has anything is free: the best branch is drawn by the same amounts and their uncertainty (Thompson sampling), so
that branches without recent calls are tried again with the turns that cost the least.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf, sqrt
from statistics import NormalDist
from typing import Literal

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.service import Call
from splitsecond.core.session import CallSession
from splitsecond.routing.machinery.choosing.branch import Branch, Choice, usual_output_tokens
from splitsecond.routing.targets.prompt_cache import MIN_CACHED, START_NS
from splitsecond.routing.targets.prompt_size import output_tokens
from splitsecond.routing.targets.target_state import TargetState
from splitsecond.routing.targets.target_states import TargetStates

CacheUse = Literal["aware", "off"]
HORIZON = 14
"""Later turns that a better branch is better for: of 710 recorded sessions, one turn in 14 follows a wait of more than
five minutes, after which the cache is gone at many targets and the session is free anyway."""
NEXT_NEW = 700
"""Assumed new tokens of a later turn: the median of those sessions, with the answer before."""
USUAL_WAIT_NS = 10 * NS_PER_S
"""Assumed wait before a later turn: the median of those sessions."""
FAILURE_COST = 5
"""The cost of a failure, in answers; see `choosing.speed`."""
MAX_CROWDING = 2.0
_REFRESH_NS = NS_PER_S
_NO_TOKENS_OUT: list[float] = []


class Option:
    """A branch for one turn. `cached`: tokens that it probably has; `at_stake`: that it had; `prefill_ns`: what a new
    token costs more than a cached one."""

    __slots__ = ("at_stake", "branch", "cached", "now", "prefill_ns", "total", "variance")

    def __init__(
        self, branch: Branch, now: float, turn: float, variance: float, cached: float, at_stake: int, prefill_ns: float
    ) -> None:
        self.branch = branch
        self.now = now
        self.total = now + HORIZON * turn
        self.variance = variance
        self.cached = cached
        self.at_stake = at_stake
        self.prefill_ns = prefill_ns


Amounts = Callable[[TargetState, CallSession, int, int, bool], tuple[float, float, float, float, int]]


class SessionChoice:
    """Chooses by time. `by` "ttft": that of the first token; "total": of the whole answer. `at`: its quantile."""

    def __init__(self, states: TargetStates, policy: str, *, by: Literal["total", "ttft"] = "total", at: float = 0.5):
        self._states = states
        self._policy = policy
        self._answers = by == "total"
        self._at = at
        self._deviations = NormalDist().inv_cdf(at)
        self._random = states.chance
        self._tokens_out = _NO_TOKENS_OUT
        self._refreshed_ns = -_REFRESH_NS

    def choices(self, call: Call, session: CallSession, among: Sequence[Branch]) -> Iterator[Choice]:
        """Yield the branches of `among`, which are available, the best first, each with the reason."""
        options = self.options(call, session, among)
        home = home_of(options)
        if home is None:
            first, why = self._drawn(options), f"{self._policy}: {{}}, free to choose"
        else:
            first, why = decided(home, options, "ns")
        yield first.branch, why.replace("{}", first.branch.label)
        for each in sorted(options, key=_total):
            if each is not first:
                yield each.branch, f"{self._policy}: {each.branch.label}"

    def options(self, call: Call, session: CallSession, among: Sequence[Branch]) -> list[Option]:
        now_ns = clock.now_ns()
        tokens = self._expected_output(call, among, now_ns) if self._answers else 0
        return [self._option(branch, call, session, tokens, now_ns) for branch in among]

    def _expected_output(self, call: Call, among: Sequence[Branch], now_ns: int) -> int:
        if now_ns - self._refreshed_ns >= _REFRESH_NS:
            self._tokens_out = usual_output_tokens(call, among, self._states)
            self._refreshed_ns = now_ns
        return output_tokens(call, self._tokens_out)

    def _option(self, branch: Branch, call: Call, session: CallSession, tokens: int, now_ns: int) -> Option:
        states = self._states
        best: Option | None = None
        for name in branch.representatives(states):
            found = self._of_target(branch, states.state(name), call, session, tokens, now_ns)
            if best is None or found.total < best.total:
                best = found
        assert best is not None  # a branch has at least one target
        return best

    def _of_target(
        self, branch: Branch, state: TargetState, call: Call, session: CallSession, tokens: int, now_ns: int
    ) -> Option:
        known, fit = state.prompt_cache, state.prompt_cache.fit
        prompt = session.new_tokens + session.reusable_tokens
        at_stake, age_ns = state.conversations.cached(session, state.name, now_ns)
        cached = known.lifetime.share(age_ns) * at_stake if at_stake else 0.0
        later = known.lifetime.share(USUAL_WAIT_NS) * prompt
        now = fit.ttft_ns(prompt - cached, cached)
        turn = fit.ttft_ns(prompt + NEXT_NEW - later, later)
        all_new = prompt - cached + HORIZON * (prompt + NEXT_NEW - later)
        variance = fit.variance(1 + HORIZON, all_new, cached + HORIZON * later, now_ns)
        prefill_ns = fit.b - fit.c
        if at_stake:
            variance += known.lifetime.variance(age_ns) * (prefill_ns * at_stake) ** 2
        if self._deviations:
            factor = 2.718281828 ** (self._deviations * fit.noise)
            now, turn = now * factor, turn * factor
        if tokens:
            estimate = self._states.estimate(state.name, stream=call.stream)
            tpot_ns = None if estimate is None else estimate.tpot_ns(self._at)
            if tpot_ns is not None:
                now += tokens * tpot_ns
                turn += tokens * tpot_ns
        crowding = min(branch.crowding(self._states, now_ns), MAX_CROWDING)
        now *= crowding * (1 + FAILURE_COST * branch.failure_share(now_ns)) * state.lateness(now_ns)
        return Option(branch, now, turn, variance, cached, at_stake, prefill_ns)

    def _drawn(self, options: Sequence[Option]) -> Option:
        gauss = self._random.gauss
        return min(options, key=lambda each: max(each.total + gauss() * sqrt(each.variance), each.total / 8))


def home_of(options: Sequence[Option]) -> Option | None:
    """Return the branch that has most of the session in its cache; None: none has enough to stay for it."""
    home, most = None, float(MIN_CACHED)
    for each in options:
        if each.cached >= most:
            home, most = each, each.cached
    return home


def decided(home: Option, options: Sequence[Option], unit: Literal["ns", "usd"]) -> tuple[Option, str]:
    """Return where the session goes, and why, with "{}" for the branch."""
    best = min(options, key=_total)
    gain = home.total - best.total
    if best is home or gain <= sqrt(home.variance + best.variance):
        others = [each for each in options if each is not home]
        return home, stays(home, min(others, key=_total, default=None), unit)
    return best, (
        f"moves to {{}} from {home.branch.label}: {amount(gain, unit)} less over {HORIZON} turns, "
        f"{amount(max(best.now - home.now, 0.0), unit)} more for this one"
    )


def stays(home: Option, other: Option | None, unit: Literal["ns", "usd"]) -> str:
    words = f"stays at {{}}: {round(home.cached, -3 if home.cached >= 10_000 else -2):,.0f} tokens cached there"
    if other is None:
        return words
    lost = other.prefill_ns * max(home.cached - other.cached, 0.0) if unit == "ns" else max(other.now - home.now, 0.0)
    return f"{words}, moving would cost {amount(lost, unit)}"


def amount(value: float, unit: Literal["ns", "usd"]) -> str:
    return f"${value:.2g}" if unit == "usd" else f"{value / NS_PER_S:,.1f} s"


def _total(option: Option) -> float:
    return option.total
