"""The two policies of a `split`, compared by the calls that each of them served.

Sessions or keys were assigned to an arm, not calls, and the calls of one key resemble each other.
So the uncertainty of an arm comes from leaving out its sessions or keys in groups (the grouped
jackknife), and that of the difference from them, from leaving out periods of time, or, of few
units, from assigning these anew (`reassignment`), whichever is larger. Times and cost are compared
as ratios. The figures are tested together (Holm).
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, cast

import numpy as np
from msgspec import Struct

from splitsecond.core.errors import CallerFault
from splitsecond.core.timing.columns import Floats, Integers, Mask
from splitsecond.core.timing.packed_attempt import UNKNOWN
from splitsecond.log.statistics.jackknife import MAX_GROUPS
from splitsecond.log.statistics.reassignment import Reassignment
from splitsecond.log.statistics.sample_comparison import POWER_T, holm_levels, welch
from splitsecond.log.statistics.student import t_doubt, t_quantile
from splitsecond.log.statistics.summary import DOUBT, MIN_CLUSTERS, Z95, needed
from splitsecond.log.store.request_columns import RequestColumns
from splitsecond.log.store.rows import session_id
from splitsecond.replay.answer import logged_outcomes
from splitsecond.replay.figures import NAMES, PERIODS, Outcomes
from splitsecond.replay.history import CANCELLED, prompt_tokens
from splitsecond.routing.construction.expression import Expression, first, targets
from splitsecond.routing.machinery.settings import Share
from splitsecond.routing.policies.split import SHARE, Unit, in_second, seed_of, unit_of
from splitsecond.routing.targets.target_info import TargetInfo

SCHEMA = "splitsecond.split/1"
LEFT = "client_left"
FIGURES = (*NAMES, LEFT)
SHARES = ("failed", LEFT)
"""Figures whose difference is one of shares; that of all others is a ratio."""
QUANTILES = {"ttft_p50_ms": 0.5, "ttft_p95_ms": 0.95, "total_p50_ms": 0.5, "total_p95_ms": 0.95}
MIN_AGREEMENT = 0.99
"""Share of the calls that must have gone to the arm that the policy sends them to now."""
MANY_UNITS = 200
"""Units of equal size in the smaller arm from which on their scatter shows its uncertainty."""
SAME_DOUBT = 0.1
"""Probability that the interval of "same" misses: twice that of each one-sided test."""
SHARE_SCALE = 0.1
"""Shares are the same within this part of the limit for ratios: half a point for 5%."""

Verdict = Literal["better", "worse", "same", "cannot tell"]


class Arm(Struct, frozen=True, kw_only=True):
    """`units`: sessions or keys, or calls that have neither. `effective_units`: of as many units
    with equally many calls its figures would be as certain."""

    policy: str
    calls: int
    units: int
    effective_units: float


class ArmChange(Struct, frozen=True, kw_only=True):
    """One figure of both arms; all of them are better if they are lower.

    `change`: second / first − 1 for times and cost, second − first for shares of the calls; `ci95`
    its interval at the level of Holm's procedure. `detectable`: the change that would have been
    seen four times in five. None without a value, or with too few units.
    """

    name: str
    first: float | None
    second: float | None
    change: float | None = None
    ci95: tuple[float, float] | None = None
    p_value: float | None = None
    detectable: float | None = None
    verdict: Verdict = "cannot tell"


class SplitComparison(Struct, frozen=True, kw_only=True):
    """Calls to `route` from `since_us` to `until_us`, in microseconds since 1970.

    `others`: calls that no split sent, or another one. `within`: changes below it are the same.
    `refused`: why nothing is tested; "": something is. `figures`: without those that are 0 or not
    known in both arms, such as failures.
    """

    schema: str = SCHEMA
    route: str
    policy: str
    by: Unit
    share: float
    within: float
    since_us: int
    until_us: int
    others: int
    arms: tuple[Arm, Arm]
    refused: str = ""
    figures: list[ArmChange]


class _Test(NamedTuple):
    """`difference`: of logarithms, or of shares; `error` its standard error. `by_chance`: sizes of
    the difference if units are assigned anew, sorted; empty for many units."""

    difference: float
    error: float
    freedom: int
    by_chance: Floats

    def half(self, level: float) -> float:
        """Return half the interval that misses with the probability `level`."""
        half = t_quantile(level, self.freedom) * self.error
        if not len(self.by_chance):
            return half
        n = len(self.by_chance)
        place = math.ceil((1 - level) * (n + 1)) - 1
        return max(half, float(self.by_chance[min(place, n - 1)]))

    @property
    def doubt(self) -> float:
        if self.error <= 0:
            return 0.0 if self.difference else 1.0
        by_t = t_doubt(abs(self.difference) / self.error, self.freedom)
        if not len(self.by_chance):
            return by_t
        n = len(self.by_chance)
        beyond = n - int(np.searchsorted(self.by_chance, abs(self.difference)))
        return max(by_t, (beyond + 1) / (n + 1))


def compare_arms(
    logged: RequestColumns,
    policy: Expression,
    info: Callable[[str], TargetInfo],
    *,
    route: str,
    within: float,
) -> SplitComparison:
    """Compare the arms of the first `split` in `policy`.

    Raises `CallerFault` if the policy has no split, if the split sent no calls, or if the calls of
    the log did not go where it sends them.
    """
    split = first(policy, "split")
    if split is None:
        raise CallerFault(
            f"the policy of the route {route!r} is no split: {policy!r}",
            kind="no_split",
            hint='Route it to split("a/x", "b/x", share="10%"), or name its policy with --today.',
        )
    settings = dict(split.settings)
    by = cast(Unit, settings.get("by", "session"))
    share = Share.parse("share", settings.get("share", SHARE.literal)).value
    seed = seed_of(route, [targets(branch) for branch in split.branches])
    calls = logged.calls
    unit, expected = _units(logged, by, seed, share)
    ours = (calls.choice == 0) | (calls.choice == 1)
    agree = ours & ((expected == UNKNOWN) | (expected == calls.choice))
    _check(calls.came_us, ours, agree, route)
    arms = [agree & (calls.choice == place) for place in (0, 1)]
    outcomes = logged_outcomes(logged, prompt_tokens(logged), info)
    compared = _Compared(outcomes, calls.outcome == CANCELLED, arms, unit)
    described = [
        Arm(policy=repr(branch), calls=int(arm.sum()), units=units, effective_units=effective)
        for branch, arm, (units, effective) in zip(
            split.branches, arms, compared.units, strict=True
        )
    ]
    refused = _refusal(described)
    places = np.flatnonzero(agree)
    return SplitComparison(
        route=route,
        policy=repr(split),
        by=by,
        share=share,
        within=within,
        since_us=int(calls.came_us[places[0]]),
        until_us=int(calls.came_us[places[-1]]),
        others=int((~agree).sum()),
        arms=(described[0], described[1]),
        refused=refused,
        figures=_judged(compared, {} if refused else compared.tests(), within),
    )


def _units(
    logged: RequestColumns, by: Unit, seed: bytes, share: float
) -> tuple[Integers, Integers]:
    """Return the number of each call's unit, and the arm that it belongs to; UNKNOWN for calls
    without session and key, whose ids are not read."""
    calls = logged.calls
    session = calls.session if by == "session" else np.full(len(calls.session), UNKNOWN)
    sessions, of_session = np.unique(session, return_inverse=True)
    clients = len(logged.clients)
    pairs, unit = np.unique(of_session * clients + calls.client, return_inverse=True)
    expected, alone = np.full(len(pairs), UNKNOWN), np.zeros(len(pairs), bool)
    for place, pair in enumerate(pairs.tolist()):
        number, name = int(sessions[pair // clients]), logged.clients[pair % clients]
        if number == UNKNOWN and not name:
            alone[place] = True
            continue
        identity = "" if number == UNKNOWN else session_id(number)
        expected[place] = in_second(seed, unit_of(by, identity, name, ""), share)
    single = np.where(alone[unit], len(pairs) + np.arange(len(unit)), unit)
    return single, expected[unit]


def _check(came_us: Integers, ours: Mask, agree: Mask, route: str) -> None:
    if not ours.any():
        raise CallerFault(
            f"the log has no calls to the route {route!r} that a split sent", kind="nothing_logged"
        )
    if (part := agree.sum() / ours.sum()) >= MIN_AGREEMENT:
        return
    last_us = int(came_us[ours & ~agree][-1])
    last = np.datetime64(last_us, "us").astype("datetime64[s]").item()
    raise CallerFault(
        f"{1 - part:.0%} of the calls went to another arm than this split sends them to, the "
        f"last at {last:%Y-%m-%d %H:%M:%S} UTC",
        kind="another_split",
        hint="If its share, its unit or its targets were changed, look back to the change with "
        "--since, or name the policy of that time with --today.",
    )


def _refusal(arms: Sequence[Arm]) -> str:
    few = [arm for arm in arms if arm.effective_units < MIN_CLUSTERS]
    if not few:
        return ""
    arm = min(few, key=lambda each: each.effective_units)
    return (
        f"the calls of {arm.policy} come from {arm.units:,} sessions or keys, which count as "
        f"{arm.effective_units:.1f} of equal size; {MIN_CLUSTERS} are needed"
    )


class _Compared:
    """The calls of both arms. `figures`: of each arm."""

    def __init__(
        self, outcomes: Outcomes, left: Mask, arms: Sequence[Mask], unit: Integers
    ) -> None:
        self._outcomes = outcomes
        self._left = left
        self._arms = arms
        self._unit = unit
        self.units = [_effective(unit[arm]) for arm in arms]
        self.figures = [self._figures(arm) for arm in arms]

    def tests(self) -> dict[str, _Test]:
        """Return the test of each figure that both arms have."""
        errors, freedoms = zip(*map(self._by_units, self._arms), strict=True)
        over_time = self._by_periods()
        few = min(effective for _, effective in self.units) < MANY_UNITS
        by_chance = self._by_chance() if few else {}
        tests = {}
        for place, name in enumerate(FIGURES):
            first, second = (_scaled(name, each[place]) for each in self.figures)
            own = [
                max(error[place], self._of_chance(name, arm) ** 2)
                for error, arm in zip(errors, self._arms, strict=True)
            ]
            if first == second == 0:
                continue  # nothing failed, or no client left: there is nothing to test
            if not all(map(math.isfinite, (first, second, *own, over_time[place]))):
                continue
            freedom = int(welch((np.array(own[0]), np.array(own[1])), freedoms))
            error = math.sqrt(sum(own))
            if over_time[place] > error:
                error, freedom = float(over_time[place]), PERIODS - 1
            tests[name] = _Test(second - first, error, freedom, by_chance.get(name, np.empty(0)))
        return tests

    def _figures(self, which: Mask) -> Floats:
        """Return `FIGURES` of the calls `which`; all but the last without those that the client
        left."""
        served = self._outcomes.figures(which & ~self._left, 0)[: len(NAMES)]
        return np.append(served, self._left[which].mean() if which.any() else math.nan)

    def _scaled_figures(self, which: Mask) -> Floats:
        return np.array(list(map(_scaled, FIGURES, self._figures(which))))

    def _by_units(self, arm: Mask) -> tuple[Floats, int]:
        """Return the variance of each figure of an arm, and its degrees of freedom."""
        numbers = np.unique(self._unit[arm], return_inverse=True)[1] % MAX_GROUPS
        group = np.full(len(arm), UNKNOWN)
        group[arm] = numbers
        effective = _effective(numbers)[1]
        return self._jackknife(arm, group), max(round(effective) - 1, 1)

    def _jackknife(self, which: Mask, group: Integers) -> Floats:
        names = np.unique(group[which])
        without = np.array([self._scaled_figures(which & (group != each)) for each in names])
        n = len(names)
        return np.asarray((n - 1) / n * np.square(without - without.mean(axis=0)).sum(axis=0))

    def _by_periods(self) -> Floats:
        """Return the standard error of the difference of each figure, from periods of time."""
        both = self._arms[0] | self._arms[1]
        period = np.full(len(both), UNKNOWN)
        period[both] = np.arange(int(both.sum())) * PERIODS // int(both.sum())
        without = []
        for each in range(PERIODS):
            rest = period != each
            first, second = (self._scaled_figures(arm & rest) for arm in self._arms)
            without.append(second - first)
        differences = np.array(without)
        squares = np.square(differences - differences.mean(axis=0)).sum(axis=0)
        return np.asarray(np.sqrt((PERIODS - 1) / PERIODS * squares))

    def _by_chance(self) -> dict[str, Floats]:
        """Return the sizes of each figure's difference if units are dealt anew."""
        both = self._arms[0] | self._arms[1]
        unit = np.unique(self._unit[both], return_inverse=True)[1]
        dealt = Reassignment(unit, self._arms[1][both])
        by_figure = {
            name: dealt.of_mean(self._flags(name)[both].astype(np.float64), ratio=False)
            for name in SHARES
        }
        for name in FIGURES:
            values = np.where(self._left, np.nan, self._values(name))[both]
            if name in QUANTILES and name not in by_figure:
                alike = [each for each in QUANTILES if each[:4] == name[:4]]
                sizes = dealt.of_quantiles(values, [QUANTILES[each] for each in alike])
                by_figure.update(zip(alike, sizes, strict=True))
            elif name not in by_figure:
                by_figure[name] = dealt.of_mean(values, ratio=True)
        return by_figure

    def _flags(self, name: str) -> Mask:
        return self._left if name == LEFT else self._outcomes.failed & ~self._left

    def _values(self, name: str) -> Floats:
        columns = {"ttft": self._outcomes.ttft_ms, "total": self._outcomes.total_ms}
        return columns.get(name.partition("_")[0], self._outcomes.usd)

    def _of_chance(self, name: str, arm: Mask) -> float:
        """Return the standard error of a figure if calls were independent: it cannot be smaller.

        Leaving out groups shows too little of it where a share, or the part above a percentile, is
        a few calls.
        """
        n = int(arm.sum())
        if name in SHARES:
            share = (float(self._flags(name)[arm].sum()) + 1) / (n + 2)
            return math.sqrt(share * (1 - share) / n)
        if name not in QUANTILES:
            return 0.0
        q, values = QUANTILES[name], np.sort(self._values(name)[arm & ~self._left])
        values = values[~np.isnan(values)]
        if len(values) < needed(q):
            return math.inf
        off = Z95 * math.sqrt(q * (1 - q) / len(values))
        low, high = (
            values[min(max(math.ceil(each * len(values)) - 1, 0), len(values) - 1)]
            for each in (q - off, q + off)
        )
        return float(np.log(high / low)) / (2 * Z95) if low > 0 else math.inf


def _judged(compared: _Compared, tests: dict[str, _Test], within: float) -> list[ArmChange]:
    levels = holm_levels({name: each.doubt for name, each in tests.items()})
    changes = []
    for place, name in enumerate(FIGURES):
        first, second = (
            float(each[place]) if math.isfinite(each[place]) else None for each in compared.figures
        )
        if first == second and not first:
            continue
        if name not in tests:
            changes.append(ArmChange(name=name, first=first, second=second))
            continue
        test, (p_value, level) = tests[name], levels[name]
        half = test.half(level)
        seen = half + t_quantile(POWER_T, test.freedom) * test.error
        changes.append(
            ArmChange(
                name=name,
                first=first,
                second=second,
                change=_change(name, test.difference),
                ci95=(_change(name, test.difference - half), _change(name, test.difference + half)),
                p_value=p_value,
                detectable=_change(name, seen),
                verdict=_verdict(name, test, p_value, within),
            )
        )
    return changes


def _verdict(name: str, test: _Test, p_value: float, within: float) -> Verdict:
    if p_value < DOUBT:
        return "better" if test.difference < 0 else "worse"
    limit = within * SHARE_SCALE if name in SHARES else math.log1p(within)
    return "same" if abs(test.difference) + test.half(SAME_DOUBT) < limit else "cannot tell"


def _effective(numbers: Integers) -> tuple[int, float]:
    """Return how many different numbers there are, and as how many of equal size they count."""
    counts = np.unique(numbers, return_counts=True)[1].astype(np.float64)
    return len(counts), float(counts.sum() ** 2 / np.square(counts).sum()) if len(counts) else 0.0


def _scaled(name: str, value: float) -> float:
    if name in SHARES:
        return float(value)
    return math.log(value) if 0 < value < math.inf else math.nan


def _change(name: str, difference: float) -> float:
    return difference if name in SHARES else math.expm1(min(difference, 100.0))
