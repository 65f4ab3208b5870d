"""The answer to what would have happened, and when there is none.

Today's policy, replayed over its own log, must give the log's own figures, both with the calls' own
attempts and with answers that are all drawn from other calls. Otherwise the log or the
configuration is not what the replay takes it for, and there is no answer.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from splitsecond.core.errors import CallerFault
from splitsecond.core.timing.columns import US_PER_HOUR, Integers, Mask
from splitsecond.core.timing.packed_attempt import UNKNOWN
from splitsecond.log.statistics.summary import DOUBT
from splitsecond.log.store.request_columns import RequestColumns
from splitsecond.replay.figures import MIN_CALLS, FigureChange, Outcomes, adjusted, changes
from splitsecond.replay.history import CANCELLED, FAILED, OK, Basis, History
from splitsecond.replay.processes import replays
from splitsecond.replay.robust import MIN_KNOWN, RobustOutcomes, Weights, first_targets
from splitsecond.replay.running import ReplayedCalls, costs, replay
from splitsecond.routing.construction.expression import Expression, TargetName, first, targets
from splitsecond.routing.targets.target_info import TargetInfo

SCHEMA = "splitsecond.what-if/1"
DRAWN = ", drawn from other calls"
REPLAYS = 2
"""Replays of today's policy."""
MIN_COVERAGE = 0.7
"""Share of the calls that an answer must rest on."""
TOLERANCE = 0.03
"""Difference between log and replay that is accepted whatever its interval: as a share of a time or
of the cost, and of all calls for the share of a target."""
FAILED_TOLERANCE = 0.005
MAX_OFF = 0.1
"""What a right replay must exclude to prove something: a difference of this part of a median or of
the cost, or of all calls for the share of a target; of twice this for slow calls."""
MAX_OFF_FAILED = 0.02
TAILS = ("ttft_p95_ms", "total_p95_ms")
MAX_HIDDEN = 0.01
"""Share of the calls that may be left out because a race was lost, for figures of slow calls: these
are slow ones."""
LOAD_US = 300_000_000
"""Calls at a target are counted in periods of this length: its speed is known up to the largest
number in the log."""

LEFT_OUT = {
    Basis.FEW: "fewer than 20 similar attempts within an hour",
    Basis.LONGER: "prompts longer than the target ever had",
    Basis.SLOWER: "a race was lost, and no similar attempt took longer",
    Basis.LOAD: "more calls at a target than it ever had in the log",
}
_UNREADABLE = frozenset({"by_complexity", "by_task", "cache", "cascade", "pipeline", "cap"})
"""Policies that look into prompts and answers, of which the log has none."""
_OF_STREAMS = frozenset({"stall", "floor", "over"})
"""Settings for which a policy follows the tokens of an answer, of which the log has only the first
and the last."""


class Coverage(Struct, frozen=True, kw_only=True):
    """Which calls an answer rests on.

    `left_out`: the number of calls for each reason. `hours`: the hours of the day (UTC) in which
    most of them were; "" if none stands out. `over_load`: those of the `covered` calls that met
    more calls at a target than it ever had in the log, which was to be ignored.
    """

    calls: int
    covered: int
    left_out: dict[str, int] = field(default_factory=dict)
    hours: str = ""
    over_load: int = 0

    @property
    def share(self) -> float:
        return self.covered / self.calls if self.calls else 0.0


class Identity(Struct, frozen=True, kw_only=True):
    """Today's policy over its own log.

    `figures`: `today` as logged, `what_if` as replayed with the calls' own attempts; `drawn`: the
    same with all answers drawn from other calls. `differs`: the names of figures that do not agree.
    `unproven`: where too few calls prove that it agrees, by how much a figure may be off: as a part
    of it, or for shares of all calls.
    """

    figures: list[FigureChange]
    drawn: list[FigureChange]
    coverage: Coverage
    differs: list[str]
    unproven: dict[str, float] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        return not self.differs


class Robust(Struct, frozen=True, kw_only=True):
    """The doubly robust estimate beside the direct one.

    `refused`: why there is no estimate; "": there is one. `effective_calls`: the number of calls of
    equal weight that would be as informative as the weighted ones.
    `figures`: the estimate. `differs`: the names of figures for which the direct method is off by
    more than chance; the answer has the doubly robust ones in their place.
    """

    refused: str = ""
    effective_calls: float = 0.0
    figures: list[FigureChange] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)


class PolicyAnswer(Struct, frozen=True, kw_only=True):
    """One policy over the calls of the log. `refused`: why there are no figures; "" if there
    are.

    `robust`: where the log has the probabilities of its choices, how far the direct method is off.
    """

    policy: str
    coverage: Coverage
    figures: list[FigureChange] = field(default_factory=list)
    refused: str = ""
    robust: Robust = Robust()


class WhatIf(Struct, frozen=True, kw_only=True):
    """Answer for the calls to `route`.

    `today`: its policy in the log. `calls`: those of the `replayed_calls` whose client waited for
    the answer. `logged_calls`: as many are in the log. `since_us`, `until_us`: the first and the
    last of `calls`, in microseconds since 1970. `unpriced`: targets without a price by the token,
    without which no cost is known. `answers`: empty if `identity` does not agree.
    """

    schema: str = SCHEMA
    route: str
    today: str
    calls: int
    replayed_calls: int
    logged_calls: int
    since_us: int
    until_us: int
    identity: Identity
    unpriced: list[str] = field(default_factory=list)
    answers: list[PolicyAnswer] = field(default_factory=list)


def what_if(
    logged: RequestColumns,
    today: Expression,
    policies: Sequence[Expression],
    info: Callable[[str], TargetInfo],
    *,
    route: str = "",
    logged_calls: int | None = None,
    any_load: bool = False,
    sent: Callable[[int], None] = lambda calls: None,
) -> WhatIf:
    """Return what the calls of a log would have met with each of `policies` in the place of
    `today`.

    `logged_calls`: how many there are, if `logged` is a part of them. `any_load`: the speed of no
    target depends on how many of these calls it gets. `sent`: see `replay`; there are `REPLAYS` of
    today's policy and `replays_of_each` of each other. Raises `CallerFault` for a policy that
    cannot be replayed, for targets that the log does not have, and for a log of fewer than
    `MIN_CALLS` calls. It replaces the clock of this process while it runs.
    """
    if len(logged.calls.came_us) < MIN_CALLS:
        raise CallerFault(
            f"the log has {len(logged.calls.came_us):,} calls to the route {route!r}; {MIN_CALLS} "
            "are needed",
            kind="nothing_logged",
            hint="Look further back with --since.",
        )
    comparison = Comparison(logged, info, any_load=any_load, route=route, sent=sent)
    comparison.clusters = _clusters(logged, today)
    for policy in (today, *policies):
        check_policy(policy, comparison.asked)
    identity = comparison.identity(today)
    answers = []
    if identity.agrees:
        count, twice = len(policies), replays_of_each(logged) > 1
        jobs = [(each, own) for own in (True, False)[: 1 + twice] for each in policies]
        replayed = comparison.replays(jobs)
        answers = [
            comparison.answer(
                repr(each), replayed[place], replayed[count + place] if twice else None
            )
            for place, each in enumerate(policies)
        ]
        figures = adjusted({each.policy: each.figures for each in answers if not each.refused})
        answers = [replace(each, figures=figures.get(each.policy, [])) for each in answers]
    return WhatIf(
        route=route,
        today=repr(today),
        calls=comparison.calls,
        replayed_calls=len(logged.calls.came_us),
        logged_calls=len(logged.calls.came_us) if logged_calls is None else logged_calls,
        since_us=int(logged.calls.came_us[0]),
        until_us=int(logged.calls.came_us[-1]),
        identity=identity,
        unpriced=[
            name
            for name in logged.targets
            if (price := info(name).price) is None or not price.by_token
        ],
        answers=answers,
    )


def replays_of_each(logged: RequestColumns) -> int:
    """Return the number of replays of each policy: two if the log has the probabilities."""
    has_chance = logged.calls.choice_ppm > 0
    return 2 if len(has_chance) and has_chance.mean() >= MIN_KNOWN else 1


def _clusters(logged: RequestColumns, today: Expression) -> Integers:
    """Return what the calls that chance sent to a target together have in common: a session
    (UNKNOWN: none), or with a `split` by key the key."""
    split = first(today, "split")
    by_key = split is not None and dict(split.settings).get("by") == "key"
    return logged.calls.client if by_key else logged.calls.session


def check_policy(policy: Expression, logged_targets: Sequence[str]) -> None:
    """Raise `CallerFault` if the calls of a log with attempts at these targets cannot be replayed
    through `policy`."""
    if why := _unreplayable(policy):
        raise CallerFault(f"{policy!r} cannot be replayed: {why}", kind="not_replayable")
    if missing := [name for name in targets(policy) if name not in logged_targets]:
        words = f"the log has no attempt at {' or '.join(missing)} for this route"
        hint = "Send it a small share of the calls for a week: see --explore 1%."
        raise CallerFault(words, kind="never_asked", hint=hint)


def _unreplayable(policy: Expression) -> str:
    if isinstance(policy, TargetName):
        return ""
    if policy.own is not None:
        return (
            f"{policy.policy} is a policy of your own, which may read prompts, and the log has none"
        )
    if policy.policy in _UNREADABLE:
        return f"{policy.policy} reads prompts or answers, and the log has none"
    settings = dict(policy.settings)
    if policy.policy == "race" and settings.get("by") == "total":
        return 'race(by="total") reads answers, and the log has none'
    if policy.policy == "resume" or _OF_STREAMS & settings.keys():
        return "it follows the tokens of an answer, and the log has only the first and the last"
    return next(filter(None, map(_unreplayable, policy.parts)), "")


class Comparison:
    """The calls of a log, as they were and as other policies would have served them. See
    `what_if`. `clusters`: the session of each call, or what else resembles each other; UNKNOWN:
    nothing."""

    def __init__(
        self,
        logged: RequestColumns,
        info: Callable[[str], TargetInfo],
        *,
        any_load: bool = False,
        route: str = "",
        sent: Callable[[int], None] = lambda calls: None,
    ) -> None:
        self._logged = logged
        self._history = History(logged)
        self.asked = self._history.asked
        self._info = info
        self._any_load = any_load
        self._route = route
        self.clusters = logged.calls.session
        self._sent = sent
        calls = logged.calls
        self._stream = calls.stream.astype(bool)
        self._left = calls.outcome == CANCELLED
        self._today = logged_outcomes(logged, self._history.input_tokens, info)
        self.calls = int((~self._left).sum())

    def identity(self, today: Expression) -> Identity:
        own, drawn = self.replays([(today, True), (today, False)])
        own_covered, covered = (
            self.covered(own, check_load=False),
            self.covered(drawn, check_load=False),
        )
        coverage = self._coverage(drawn, covered)
        if min(own_covered.sum(), covered.sum()) < MIN_CALLS:
            return Identity(
                figures=[],
                drawn=[],
                coverage=coverage,
                differs=["too few calls with similar attempts"],
            )
        figures = self._changes(own, own_covered)
        by_draws = self._changes(drawn, covered)
        doubt = DOUBT / (len(figures) + len(by_draws))  # of all figures together (Bonferroni)
        differs = [each.name for each in figures if not _agrees(each, doubt)]
        differs += [f"{each.name}{DRAWN}" for each in by_draws if not _agrees(each, doubt)]
        off = [(each.name, _may_be_off(each)) for each in by_draws]
        return Identity(
            figures=figures,
            drawn=by_draws,
            coverage=coverage,
            differs=differs,
            unproven={name: share for name, share in off if share > _max_off(name)},
        )

    def replayed(self, policy: Expression) -> ReplayedCalls:
        return self.replays([(policy, True)])[0]

    def drawn(self, policy: Expression) -> ReplayedCalls | None:
        """Return the calls with answers that are all drawn from other calls; None if the log has
        too few probabilities for a use of it."""
        return self.replays([(policy, False)])[0] if replays_of_each(self._logged) > 1 else None

    def replays(self, jobs: Sequence[tuple[Expression, bool]]) -> list[ReplayedCalls]:
        """Return the calls as each policy would have served them, with their own attempts (True)
        or with answers that are all drawn from other calls."""
        calls = len(self._logged.calls.came_us)
        return replays([partial(self._replay, *each) for each in jobs], calls, self._sent)

    def _replay(self, policy: Expression, own: bool, sent: Callable[[int], None]) -> ReplayedCalls:
        history = self._history if own else History(self._logged, own=False)
        chance = 1 if own else 2
        return replay(history, policy, self._info, route=self._route, chance=chance, sent=sent)

    def answer(
        self, policy: str, replayed: ReplayedCalls, drawn: ReplayedCalls | None = None
    ) -> PolicyAnswer:
        covered = self.covered(replayed)
        coverage = self._coverage(replayed, covered)
        if coverage.share < MIN_COVERAGE or coverage.covered < MIN_CALLS:
            least = f"at least {MIN_COVERAGE:.0%} and {MIN_CALLS} calls are needed"
            return PolicyAnswer(
                policy=policy, coverage=coverage, refused=f"too little of it is known: {least}"
            )
        figures = self._changes(replayed, covered)
        robust = self._robust(replayed, drawn, covered, figures)
        better = {each.name: each for each in robust.figures if each.name in robust.differs}
        return PolicyAnswer(
            policy=policy,
            coverage=coverage,
            figures=[better.get(each.name, each) for each in figures],
            robust=robust,
        )

    def _robust(
        self,
        replayed: ReplayedCalls,
        drawn: ReplayedCalls | None,
        covered: Mask,
        direct: Sequence[FigureChange],
    ) -> Robust:
        attempts, calls = self._logged.attempts, self._logged.calls
        count = len(calls.came_us)
        logged = first_targets(attempts.call, attempts.target, self._history.begin_ns, count)
        own = first_targets(*replayed.attempts, count)
        other = own if drawn is None else first_targets(*drawn.attempts, count)
        weights = Weights(calls.choice_ppm, (logged, own, other))
        if drawn is None or (refused := weights.refusal(covered)):
            return Robust(refused=weights.refusal(covered) if drawn is None else refused)
        outcomes, by_draws = self._outcomes(replayed), self._outcomes(drawn)
        corrected = RobustOutcomes(by_draws, outcomes, weights)
        both = (covered, self.clusters, self._logged.targets)
        figures = changes(self._today, corrected, *both)
        hidden = {each.name for each in direct if each.difference is None}
        doubt = DOUBT / max(len(figures) - len(hidden), 1)
        off = changes(outcomes, corrected, *both)
        return Robust(
            effective_calls=weights.effective_calls(covered),
            figures=figures,
            differs=[
                each.name
                for each in off
                if each.name not in hidden and each.p_value is not None and each.p_value < doubt
            ],
        )

    def _outcomes(self, r: ReplayedCalls) -> Outcomes:
        return Outcomes.of(r.ttft_ns, r.total_ns, r.failed, r.target, r.usd, self._stream)

    def _changes(self, replayed: ReplayedCalls, covered: Mask) -> list[FigureChange]:
        """Return the figures; without those of slow calls if too many slow times are hidden behind
        lost races."""
        outcomes = self._outcomes(replayed)
        figures = changes(self._today, outcomes, covered, self.clusters, self._logged.targets)
        if ((replayed.basis == Basis.SLOWER) & ~self._left).sum() <= MAX_HIDDEN * self.calls:
            return figures
        return [
            FigureChange(name=each.name, today=each.today) if each.name in TAILS else each
            for each in figures
        ]

    def covered(self, replayed: ReplayedCalls, *, check_load: bool = True) -> Mask:
        """Return which calls an answer rests on."""
        if check_load and not self._any_load:
            replayed.basis[self._overloaded(replayed) & (replayed.basis == Basis.SIMILAR)] = (
                Basis.LOAD
            )
        covered: Mask = (replayed.basis == Basis.SIMILAR) & ~self._left
        return covered

    def _overloaded(self, replayed: ReplayedCalls) -> Mask:
        """Return which calls were at a target when it had more calls than in any such time of the
        log."""
        logged, overloaded = self._logged.attempts, np.zeros(len(self._logged.calls.came_us), bool)
        begun_us = self._logged.calls.came_us[logged.call] + self._history.begin_ns // 1000
        call, target, at_us = replayed.attempts
        if not len(at_us):
            return overloaded
        first = int(min(begun_us.min(), at_us.min())) // LOAD_US
        for number in range(len(self._logged.targets)):
            here = target == number
            if not here.any():
                continue
            counts = np.bincount(begun_us[logged.target == number] // LOAD_US - first)
            most = int(counts.max(initial=0))
            most += 1 + round(2 * most**0.5)  # as many may come by chance
            periods = at_us[here] // LOAD_US - first
            overloaded[call[here][np.bincount(periods)[periods] > most]] = True
        return overloaded

    def _coverage(self, replayed: ReplayedCalls, covered: Mask) -> Coverage:
        out = ~covered & ~self._left
        reasons = {
            words: int((out & (replayed.basis == basis)).sum()) for basis, words in LEFT_OUT.items()
        }
        return Coverage(
            calls=self.calls,
            covered=int(covered.sum()),
            left_out={words: count for words, count in reasons.items() if count},
            hours=_hours(self._logged.calls.came_us, out, ~self._left),
            over_load=int((self._overloaded(replayed) & covered).sum()),
        )


def logged_outcomes(
    logged: RequestColumns, prompts: Integers, info: Callable[[str], TargetInfo]
) -> Outcomes:
    """Return how the calls ended in the log. A complete answer ends when its attempt ended: how
    fast the client read it is not the policy's. `prompts`: the input tokens of each call."""
    calls, attempts = logged.calls, logged.attempts
    total_ns = calls.end_ns.copy()
    answered = (attempts.outcome == OK) & (attempts.target == calls.target[attempts.call])
    total_ns[attempts.call[answered]] = attempts.end_ns[answered]
    prompt = np.where(attempts.input_tokens > 0, attempts.input_tokens, prompts[attempts.call])
    counts = (
        each.clip(0)
        for each in (
            attempts.cached_tokens,
            attempts.cache_write_tokens,
            attempts.cache_write_1h_tokens,
            attempts.output_tokens,
        )
    )
    usd = costs([info(name).price for name in logged.targets], attempts.target, prompt, *counts)
    unsent = attempts.sent_ns == UNKNOWN
    billed = (attempts.first_token_ns != UNKNOWN) | ~(unsent | (attempts.status >= 400))
    per_call = np.bincount(attempts.call, usd * billed, len(calls.came_us)).astype(np.float64)
    failed = calls.outcome == FAILED
    return Outcomes.of(
        calls.first_token_ns, total_ns, failed, calls.target, per_call, calls.stream.astype(bool)
    )


def _agrees(figure: FigureChange, doubt: float) -> bool:
    if figure.today is None or figure.what_if is None or figure.difference is None:
        return figure.name in TAILS or figure.today == figure.what_if
    if figure.p_value is not None and figure.p_value >= doubt:
        return True
    if figure.name == "failed":
        return abs(figure.difference) <= FAILED_TOLERANCE
    return abs(figure.difference) <= TOLERANCE * _size(figure)


def _may_be_off(figure: FigureChange) -> float:
    low, high = figure.ci95
    if low is None or high is None or not (size := _size(figure)):
        return 0.0
    return max(abs(low), abs(high)) / size


def _max_off(name: str) -> float:
    if name == "failed":
        return MAX_OFF_FAILED
    return 2 * MAX_OFF if name in TAILS else MAX_OFF


def _size(figure: FigureChange) -> float:
    return 1.0 if figure.name == "failed" or "/" in figure.name else abs(figure.today or 0.0)


def _hours(came_us: Integers, out: Mask, all_calls: Mask) -> str:
    """Return the six hours of the day that have most of the calls `out`, if more than half of these
    are in them."""
    hours = came_us // US_PER_HOUR % 24
    counts, calls = (np.bincount(hours[each], minlength=24) for each in (out, all_calls))
    total = int(counts.sum())
    if not total or int((calls > 0).sum()) < 12:
        return ""
    sums = [int(counts[np.arange(first, first + 6) % 24].sum()) for first in range(24)]
    first = int(np.argmax(sums))
    return f"{first:02}:00 to {(first + 6) % 24:02}:00 UTC" if sums[first] * 2 > total else ""
