"""Where the next turn of a session goes: it stays with its prompt cache unless moving gains more
than that is worth.

For each branch there are two amounts, in ns or in US dollars: `now`, of this turn by the tokens
that its cache probably has, and one of each later turn, which finds its prompt there. A session
stays unless another branch is better over this turn and the next `HORIZON` by more than the
uncertainty of the difference, or by more than the way there costs: a mistake costs no more, because
the session can return to its prompt. A session of which no branch has anything is free: its branch
is drawn by the same amounts and their uncertainty (Thompson sampling), so that branches without
recent turns are tried again by the turns that lose the least.
"""

from collections.abc import Iterator, Sequence
from math import exp, inf, sqrt
from statistics import NormalDist
from typing import Literal

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.service import Call
from splitsecond.core.session import CallSession
from splitsecond.core.upstream.prompt_size import output_tokens
from splitsecond.routing.machinery.choosing.branch import (
    UNKNOWN_ODDS,
    Branch,
    Choice,
    usual_output_tokens,
)
from splitsecond.routing.machinery.choosing.speed import (
    FAILURE_COST,
    MAX_CROWDING,
    OUTPUT_REFRESH_NS,
)
from splitsecond.routing.targets.prompt_cache import MIN_CACHED, PromptCacheModel
from splitsecond.routing.targets.target_states import TargetStates

CacheUse = Literal["aware", "off"]
By = Literal["total", "ttft", "usd"]
HORIZON = 30
"""Later turns that a better branch is better for. A recorded session of an agent has 67 more at the
mean, at any of its turns; but speeds drift meanwhile."""
NEXT_NEW = 700
"""Assumed new tokens of a later turn: the median of those sessions, with the answer before."""
_UNKNOWN = PromptCacheModel()


class Option:
    """A branch for one turn.

    `cached`: tokens of the prompt that its cache probably has. `total` is the amount of this turn,
    `now`, and of the later ones, and `variance` its uncertainty. `per_token`: what a new token
    costs more than a cached one. `turns`: how many its speed is known from.
    """

    __slots__ = ("branch", "cached", "now", "per_token", "total", "turns", "variance")

    def __init__(self, branch: Branch, cached: float, turns: int) -> None:
        self.branch = branch
        self.cached = cached
        self.turns = turns
        self.now = self.total = inf
        self.variance = self.per_token = 0.0


class SessionChoice:
    """`by`: the time of the whole answer ("total") or of its first token ("ttft"), at the quantile
    `at`, or "usd"."""

    def __init__(
        self, states: TargetStates, policy: str, *, by: By = "total", at: float | None = None
    ) -> None:
        self._states = states
        self._targets = states.known()
        self._policy = policy
        self._by = by
        self._deviations = 0.0 if at is None or at == 0.5 else NormalDist().inv_cdf(at)
        self._output_tokens: list[float] = []
        self._output_refreshed_ns = -OUTPUT_REFRESH_NS
        self._tpot_ns = 0.0  # of another branch, for one whose time per token is not known

    def choices(
        self, call: Call, session: CallSession, among: Sequence[Branch]
    ) -> Iterator[Choice] | None:
        """Return the branches of `among`, all available, the best first, each with the reason.

        None: the session is free, and nothing is known of the speed of any branch at the turns of
        sessions.
        """
        options = self._options(call, session, among)
        home = _home(options)
        if home is None and self._by != "usd" and not any(each.turns for each in options):
            return None
        first, why = self._drawn(options) if home is None else self._decided(home, options)
        others = sorted((each for each in options if each is not first), key=_total)
        return iter(
            [
                (first.branch, why, UNKNOWN_ODDS if home is None else 1.0, among),
                *(
                    (each.branch, f"{self._policy}: {each.branch.label}", 1.0, ())
                    for each in others
                ),
            ]
        )

    def kept(self, session: CallSession, among: Sequence[Branch]) -> Choice | None:
        """Return the branch that probably has most of a session in its cache, and why; None: none
        has enough of it."""
        if session.reusable_tokens < MIN_CACHED:
            return None
        now_ns = clock.now_ns()
        home, most = None, float(MIN_CACHED)
        for sent, at_ns, name in self._states.conversations.by_tokens(session):
            if sent < most:  # as the others
                break
            cached = sent * self._known(name).lifetime.kept_share(now_ns - at_ns)
            if cached < most:
                continue
            for branch in among:
                if name in branch.names:
                    home, most = branch, cached
                    break
        return None if home is None else (home, _stays(home, most), 1.0, among)

    def instead(
        self, call: Call, session: CallSession, among: Sequence[Branch], preferred: Branch
    ) -> Choice | None:
        """Return where a session goes that another branch than `preferred` has more of in its
        cache, and why."""
        home = self.kept(session, among)
        if home is None or home[0] is preferred:
            return None
        options = self._options(call, session, (home[0], preferred))
        if options[0].cached - options[1].cached < MIN_CACHED:
            return None
        first, why = self._decided(options[0], options, surely=True)
        return first.branch, why, 1.0, among

    def _known(self, name: str) -> PromptCacheModel:
        state = self._targets.get(name)
        return _UNKNOWN if state is None else state.prompt_cache

    def _options(self, call: Call, session: CallSession, among: Sequence[Branch]) -> list[Option]:
        now_ns = clock.now_ns()
        tokens = 0
        if self._by != "ttft":
            if now_ns - self._output_refreshed_ns >= OUTPUT_REFRESH_NS:
                self._output_tokens = usual_output_tokens(call, among, self._states)
                self._output_refreshed_ns = now_ns
            tokens = output_tokens(call, self._output_tokens)
        return [self._option(branch, session, tokens, now_ns) for branch in among]

    def _option(self, branch: Branch, session: CallSession, tokens: int, now_ns: int) -> Option:
        names = branch.representatives(self._states)
        if len(branch.names) > 1:  # a policy inside may also keep the session elsewhere
            conversations = self._states.conversations
            kept = (name for name in branch.names if conversations.cached(session, name, now_ns)[0])
            names = list(dict.fromkeys([*names, *filter(self._states.available, kept)]))
        if len(names) == 1:
            return self._at_target(branch, names[0], session, tokens, now_ns)
        return min(
            (self._at_target(branch, name, session, tokens, now_ns) for name in names), key=_total
        )

    def _at_target(
        self, branch: Branch, name: str, session: CallSession, tokens: int, now_ns: int
    ) -> Option:
        states = self._states
        state = states.known().get(name)
        known = _UNKNOWN if state is None else state.prompt_cache
        lifetime = known.lifetime
        prompt = session.new_tokens + session.reusable_tokens
        sent, age_ns = states.conversations.cached(session, name, now_ns)
        cached = lifetime.share(age_ns) * sent if sent else 0.0
        option = Option(branch, cached, known.fit.turns)
        later = lifetime.later * prompt
        if self._by == "usd":
            self._price(option, name, known, prompt, later, tokens)
        else:
            self._time(option, known, prompt, later, tokens, now_ns)
            if state is not None:
                load = known.load.factor(len(state.in_flight) + 1)
                option.total = load * option.total + option.now * (state.lateness(now_ns) - 1)
        if sent:
            option.variance += lifetime.variance(age_ns) * (option.per_token * sent) ** 2
        return option

    def _time(
        self,
        option: Option,
        known: PromptCacheModel,
        prompt: int,
        later: float,
        tokens: int,
        now_ns: int,
    ) -> None:
        fit, pace, cached = known.fit, known.pace, option.cached
        now = fit.expected_ns(prompt - cached, cached, now_ns)
        turn = fit.expected_ns(prompt + NEXT_NEW - later, later, now_ns)
        new = prompt - cached + HORIZON * (prompt + NEXT_NEW - later)
        option.variance = fit.variance(1 + HORIZON, new, cached + HORIZON * later, now_ns)
        option.per_token = fit.b - fit.c
        if self._deviations:
            factor = exp(self._deviations * fit.noise)
            now, turn = now * factor, turn * factor
        if pace.turns:
            self._tpot_ns = pace.expected_ns(now_ns, self._deviations)
        now += tokens * self._tpot_ns
        turn += tokens * self._tpot_ns
        branch = option.branch
        crowding = min(branch.crowding(self._states, now_ns), MAX_CROWDING)
        option.now = now * crowding * (1 + FAILURE_COST * branch.failure_share(now_ns))
        option.total = option.now + HORIZON * turn

    def _price(
        self,
        option: Option,
        name: str,
        known: PromptCacheModel,
        prompt: int,
        later: float,
        tokens: int,
    ) -> None:
        price = self._states.info(name).price
        if price is None:
            return

        def usd(size: int, cached: float) -> float:
            return price.cost_usd(
                input_tokens=size,
                cached_tokens=round(cached),
                cache_write_tokens=round(known.written * (size - cached)),
                output_tokens=tokens,
            )

        option.now = usd(prompt, option.cached)
        option.total = option.now + HORIZON * usd(prompt + NEXT_NEW, later)
        option.per_token = (usd(prompt, 0.0) - usd(prompt, prompt)) / max(prompt, 1)
        option.variance = known.lifetime.variance(0.0) * (HORIZON * option.per_token * prompt) ** 2

    def _drawn(self, options: Sequence[Option]) -> tuple[Option, str]:
        gauss = self._states.chance.gauss
        drawn = [
            max(each.total + gauss() * sqrt(each.variance), each.total / 8) for each in options
        ]
        first = options[drawn.index(min(drawn))]
        return (
            first,
            f"{self._policy}: {first.branch.label}, no branch has the session in its cache",
        )

    def _decided(
        self, home: Option, options: Sequence[Option], *, surely: bool = False
    ) -> tuple[Option, str]:
        """Return where a session goes. `surely`: it moves only for a gain that exceeds its
        uncertainty."""
        best = min(options, key=_total)
        gain = home.total - best.total
        lost, needed = max(best.now - home.now, 0.0), sqrt(home.variance + best.variance)
        if best.turns and not surely:
            needed = min(needed, lost)
        if best is not home and gain > needed:
            words = (
                f"{self._amount(gain)} less over {1 + HORIZON} turns, {self._amount(lost)} "
                f"more for this one"
            )
            return best, f"moves to {best.branch.label} from {home.branch.label}: {words}"
        others = [each for each in options if each is not home]
        why = _stays(home.branch, home.cached)
        if others:
            other = min(others, key=_total)
            cost = self._amount(other.per_token * max(home.cached - other.cached, 0.0))
            why += f", moving would cost {cost}"
        return home, why

    def _amount(self, value: float) -> str:
        return f"${value:.2g}" if self._by == "usd" else f"{value / NS_PER_S:,.1f} s"


def _home(options: Sequence[Option]) -> Option | None:
    """Return the option that has most of the session in its cache; None: none has enough to stay
    for it."""
    home, most = None, float(MIN_CACHED)
    for each in options:
        if each.cached >= most:
            home, most = each, each.cached
    return home


def _stays(branch: Branch, cached: float) -> str:
    return (
        f"stays at {branch.label}: {round(cached, -3 if cached >= 10_000 else -2):,.0f} tokens "
        f"cached there"
    )


def _total(option: Option) -> float:
    return option.total
