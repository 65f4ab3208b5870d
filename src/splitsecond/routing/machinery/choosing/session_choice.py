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

from collections.abc import Iterator, Mapping, Sequence
from math import exp, inf, sqrt
from operator import attrgetter
from statistics import NormalDist
from typing import Literal

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
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
from splitsecond.routing.machinery.choosing.speed import OUTPUT_REFRESH_NS
from splitsecond.routing.targets.conversations import MIN_CACHED, CachedPrompt, newest
from splitsecond.routing.targets.prompt_cache import PromptCacheModel
from splitsecond.routing.targets.target_state import TargetState
from splitsecond.routing.targets.target_states import TargetStates

CacheUse = Literal["aware", "off"]
By = Literal["total", "ttft", "usd"]
HORIZON = 30
"""Later turns that a better branch is better for. A recorded session of an agent has 67 more at the
mean, at any of its turns; but speeds drift meanwhile."""
NEXT_NEW = 700
"""Assumed new tokens of a later turn: the median of those sessions, with the answer before."""
_UNKNOWN = PromptCacheModel()


class Option(Struct):
    """A branch for one turn.

    `known`: what is learned from the earlier turns at its target. `sent`: tokens of the prompt that
    the target has received before, the last time `age_ns` ago. `cached`: tokens that its cache
    probably still has. `now`: the expected time or cost of this turn; `total`: the same with later
    turns. `per_token`: how much more a new token takes than a cached one.
    """

    branch: Branch
    known: PromptCacheModel
    sent: int
    age_ns: float
    cached: float
    now: float = inf
    total: float = inf
    per_token: float = 0.0


_total = attrgetter("total")


class NextTurn(Struct, frozen=True):
    """What is the same for all branches: the tokens of the prompt and those of it that the session
    has sent before, the tokens of the answer, and what each target was sent last."""

    prompt: int
    reusable: int
    answer: int
    prompts: Mapping[str, CachedPrompt]
    now_ns: int


class SessionChoice:
    """`by`: the time of the whole answer ("total") or of its first token ("ttft"), at the quantile
    `at`, or "usd"."""

    def __init__(
        self, states: TargetStates, policy: str, *, by: By = "total", at: float | None = None
    ) -> None:
        self._states = states
        self._targets = states.by_name()
        self._policy = policy
        self._by = by
        self._deviations = 0.0 if at is None or at == 0.5 else NormalDist().inv_cdf(at)
        self._output_tokens: list[float] = []
        self._output_refreshed_ns = -OUTPUT_REFRESH_NS
        self._has_amounts = by == "usd"
        self._tpot_ns = 0.0  # of another branch, for one whose time per token is not known

    def choices(
        self, call: Call, session: CallSession, among: Sequence[Branch]
    ) -> Iterator[Choice] | None:
        """Return the branches of `among`, all available, the best first, each with the reason.

        None: the turn is like any other call. Its prompt is too short for a cache, or the session
        is free, and nothing is known of the speed of any branch at the turns of sessions.
        """
        reusable = session.reusable_tokens
        if session.new_tokens + reusable < MIN_CACHED:
            return None
        free = reusable < MIN_CACHED
        if free and not self._knows_any(among):
            return None
        turn = self._turn(call, session, among)
        options = self._options(among, turn)
        home = None if free else _home(options)
        if home is not None:
            return self._in_order(*self._decided(home, options, turn), 1.0, options, among)
        if self._by == "usd" or any(each.known.fit.turns for each in options):
            return self._in_order(*self._drawn(options, turn), UNKNOWN_ODDS, options, among)
        return None

    def _knows_any(self, among: Sequence[Branch]) -> bool:
        """Return whether an amount is known of any branch: a price, or the speed at the turns of
        sessions."""
        if self._has_amounts:
            return True
        targets = self._targets
        for branch in among:
            for name in branch.names:
                if name in targets and targets[name].prompt_cache.fit.turns:
                    self._has_amounts = True
                    return True
        return False

    def _in_order(
        self,
        first: Option,
        why: str,
        odds: float,
        options: Sequence[Option],
        among: Sequence[Branch],
    ) -> Iterator[Choice]:
        yield first.branch, why, odds, among
        for each in sorted(options, key=_total):
            if each is not first:
                yield each.branch, f"{self._policy}: {each.branch.label}", 1.0, ()

    def home(self, session: CallSession, among: Sequence[Branch]) -> Choice | None:
        """Return the branch that probably has most of a session in its cache, and why; None: none
        has enough of it."""
        if session.reusable_tokens < MIN_CACHED:
            return None
        now_ns, reusable, agent = clock.now_ns(), session.reusable_tokens, session.agent
        targets, home, most = self._targets, None, 0.0
        # the last one mostly has the most, so that the others need no more than a look
        for name, agents in reversed(self._states.conversations.at_targets(session).items()):
            prompt = agents.get(agent) or newest(agents)
            sent = min(prompt.tokens, reusable)
            if sent <= most:
                continue
            cache = targets[name].prompt_cache if name in targets else _UNKNOWN
            cached = sent * cache.lifetime.kept_share(now_ns - prompt.at_ns)
            if cached <= most or cached < MIN_CACHED:
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
        home = self.home(session, among)
        if home is None or home[0] is preferred:
            return None
        turn = self._turn(call, session, (home[0], preferred))
        options = self._options((home[0], preferred), turn)
        if options[0].cached - options[1].cached < MIN_CACHED:
            return None
        first, why = self._decided(options[0], options, turn, surely=True)
        return first.branch, why, 1.0, among

    def _known(self, name: str) -> PromptCacheModel:
        state = self._targets.get(name)
        return _UNKNOWN if state is None else state.prompt_cache

    def _turn(self, call: Call, session: CallSession, among: Sequence[Branch]) -> NextTurn:
        now_ns, reusable, answer = clock.now_ns(), session.reusable_tokens, 0
        prompts = self._states.conversations.prompts(session)
        if self._by != "ttft":
            if now_ns - self._output_refreshed_ns >= OUTPUT_REFRESH_NS:
                self._output_tokens = usual_output_tokens(call, among, self._states)
                self._output_refreshed_ns = now_ns
            answer = output_tokens(call, self._output_tokens)
        return NextTurn(session.new_tokens + reusable, reusable, answer, prompts, now_ns)

    def _options(self, among: Sequence[Branch], turn: NextTurn) -> list[Option]:
        return [
            self._at_target(branch, branch.names[0], turn)
            if len(branch.names) == 1
            else self._inside(branch, turn)
            for branch in among
        ]

    def _inside(self, branch: Branch, turn: NextTurn) -> Option:
        """Return the best option of a branch that is a policy: its representatives, and where else
        it may keep the session."""
        homes = filter(turn.prompts.__contains__, branch.names) if turn.reusable else ()
        names = [*branch.representatives(self._states), *filter(self._states.available, homes)]
        return min(
            (self._at_target(branch, name, turn) for name in dict.fromkeys(names)), key=_total
        )

    def _at_target(self, branch: Branch, name: str, turn: NextTurn) -> Option:
        state, before = self._targets.get(name), turn.prompts.get(name)
        cache = _UNKNOWN if state is None else state.prompt_cache
        if before is None:
            option = Option(branch, cache, 0, inf, 0.0)
        else:
            sent, age_ns = min(before.tokens, turn.reusable), max(turn.now_ns - before.at_ns, 0)
            option = Option(branch, cache, sent, age_ns, cache.lifetime.share(age_ns) * sent)
        if self._by == "usd":
            info = self._states.info(name) if state is None else state.info
            self._price(option, info.price, turn)
        else:
            self._time(option, state, turn)
        return option

    def _time(self, option: Option, state: TargetState | None, turn: NextTurn) -> None:
        branch, cache, cached = option.branch, option.known, option.cached
        prompt, now_ns, fit = turn.prompt, turn.now_ns, cache.fit
        a, b, c = fit.expected(now_ns)
        later = cache.lifetime.later * prompt
        now = a + b * (prompt - cached) + c * cached
        later_turn = a + b * (prompt + NEXT_NEW - later) + c * later
        option.per_token = fit.b - fit.c
        if self._deviations:
            factor = exp(self._deviations * fit.noise)
            now, later_turn = now * factor, later_turn * factor
        if cache.pace.turns:
            self._tpot_ns = cache.pace.expected_ns(now_ns, self._deviations)
        answer_ns = turn.answer * self._tpot_ns
        in_flight = 0 if state is None else len(state.in_flight)
        at_branch = in_flight if len(branch.names) == 1 else branch.in_flight(self._states)
        option.now = now = (now + answer_ns) * branch.slowdown(at_branch, now_ns)
        total = now + HORIZON * (later_turn + answer_ns)
        if state is not None:
            total *= cache.load.factor(in_flight + 1)
            if in_flight > 1:
                total += now * (state.lateness(now_ns) - 1)
        option.total = total

    def _price(self, option: Option, price: Price | None, turn: NextTurn) -> None:
        if price is None:
            return
        cache, cached, prompt, answer = option.known, option.cached, turn.prompt, turn.answer
        new_usd, cached_usd, output_usd = price.rates(prompt).of_turn(cache.written)
        option.per_token = new_usd - cached_usd
        now = (prompt - cached) * new_usd + cached * cached_usd + answer * output_usd
        size, later = prompt + NEXT_NEW, cache.lifetime.later * prompt
        if price.tiers:
            new_usd, cached_usd, output_usd = price.rates(size).of_turn(cache.written)
        option.now = now
        option.total = now + HORIZON * (
            (size - later) * new_usd + later * cached_usd + answer * output_usd
        )

    def _variance(self, option: Option, turn: NextTurn) -> float:
        """Return the uncertainty of an option's total."""
        cache, cached, prompt = option.known, option.cached, turn.prompt
        lifetime = cache.lifetime
        if self._by == "usd":
            variance = lifetime.variance(0.0) * (HORIZON * option.per_token * prompt) ** 2
        else:
            later = lifetime.later * prompt
            new = prompt - cached + HORIZON * (prompt + NEXT_NEW - later)
            all_cached = cached + HORIZON * later
            variance = cache.fit.variance(1 + HORIZON, new, all_cached, turn.now_ns)
        if option.sent:
            variance += lifetime.variance(option.age_ns) * (option.per_token * option.sent) ** 2
        return variance

    def _drawn(self, options: Sequence[Option], turn: NextTurn) -> tuple[Option, str]:
        gauss = self._states.chance.gauss
        drawn = [
            max(each.total + gauss() * sqrt(self._variance(each, turn)), each.total / 8)
            for each in options
        ]
        first = options[drawn.index(min(drawn))]
        return (
            first,
            f"{self._policy}: {first.branch.label}, no branch has the session in its cache",
        )

    def _decided(
        self, home: Option, options: Sequence[Option], turn: NextTurn, *, surely: bool = False
    ) -> tuple[Option, str]:
        """Return where a session goes. `surely`: it moves only for a gain that exceeds its
        uncertainty."""
        best = min(options, key=_total)
        if best is not home:
            gain, lost = home.total - best.total, max(best.now - home.now, 0.0)
            needed = sqrt(self._variance(home, turn) + self._variance(best, turn))
            if best.known.fit.turns and not surely:
                needed = min(needed, lost)
            if gain > needed:
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
