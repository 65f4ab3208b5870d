"""Conditions on which a run fails: ``ttft_ms.p95 > +10%`` against a baseline, ``errors > 0`` by
itself.

A gate fails where the 95% interval of the figure is beyond the limit; numbers without an interval
are judged as they are. The changes of a comparison that gates judge are corrected together for
their number (Holm). A gate that could not be checked (`Unchecked`) is no pass: a figure or a row is
missing, a percentile has too few requests, or the bound that decides is unknown.

`Equivalence` shows that nothing changed: ``ttft_ms.p50 ±5%`` passes where the change is certainly
within 5%, by two one-sided tests at 5% (Schuirmann, 1987): the 90% interval lies within. All rows
must pass, so their number needs no correction.
"""

import math
import operator
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from msgspec import Struct

from splitsecond.benchmark.findings.change_statements import ConditionChange, change_evidence
from splitsecond.benchmark.findings.compare import Comparison
from splitsecond.benchmark.rows.figures import FIGURES, TOTALS
from splitsecond.benchmark.rows.records import ConditionFindings, FigureChange
from splitsecond.benchmark.rows.usable_rows import by_place, row
from splitsecond.core.errors import CallerFault
from splitsecond.core.wording import chance, level, number
from splitsecond.log.statistics.sample_comparison import SampleComparison, holm_levels
from splitsecond.log.statistics.summary import DOUBT, PERCENTILES, Interval, advised

STATISTICS = (*PERCENTILES, "mean", "min", "max")
EQUIVALENT_DOUBT = 0.1
"""Probability that the interval of an equivalence misses: twice that of each one-sided test."""

_TESTED = [total.name for total in TOTALS.values() if total.tested]
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_GATE = re.compile(
    r"\s*+(?P<figure>[a-z0-9_]++)(?:\.(?P<statistic>[a-z0-9]++))?"
    r"\s*+(?P<compare>[<>]=?)"
    r"\s*+(?P<limit>[+\-−]?(?:\d++(?:\.\d++)?|\.\d++))\s*+(?P<percent>%?)\s*+"
)
_NO_ROW = "this run lacks a row of the baseline"
_EXAMPLES = (
    "Examples: 'ttft_ms.p95 > 300', 'errors > 0', and against a baseline 'tps.p50 < -5%'. "
    "docs/reference/figures.md lists the figures."
)


class Unchecked(str):
    """A sentence about a gate that could not be checked; other sentences of gates are breaches."""

    __slots__ = ()


class Gate(Struct, frozen=True, kw_only=True):
    """One condition on which a run fails. `limit` is in the figure's unit, or if `relative`, a
    share (0.1 is +10%)."""

    text: str
    figure: str
    statistic: str
    compare: str
    limit: float
    relative: bool

    def check(
        self, rows: Sequence[ConditionFindings], baseline: Sequence[ConditionFindings] | None = None
    ) -> list[str]:
        """Return a sentence for each breach; none if the run passes.

        Rows that only this run has are not compared. Raises `CallerFault` for a relative gate
        without a baseline.
        """
        if not self.relative:
            return [breach for findings in rows if (breach := self._absolute(findings))]
        if baseline is None:
            raise CallerFault(
                f"the gate {self.text!r} needs a run to compare with, got none",
                kind="bad_gate",
                hint="Compare two runs, or give the limit in the figure's own unit.",
            )
        now, before = by_place(rows), by_place(baseline)
        return [
            breach
            for place, old in before.items()
            if (breach := self._against(old, now.get(place)))
        ]

    def _absolute(self, findings: ConditionFindings) -> str:
        value, interval, needs = self._judged(findings)
        if needs:
            return self._too_few(row(findings))
        bound = self._nearer(value, interval)
        if bound is None:
            if value is not None or interval not in (None, (None, None)):
                return self._unbounded(row(findings))
            return self._unchecked(f"{row(findings)}: {self._name} is missing")
        if _COMPARE[self.compare](bound, self.limit):
            measured = "beyond what was answered" if value is None else number(value)
            return (
                f"{row(findings)}: {self._name} is {measured}{_between(interval)}, which is "
                f"{self.compare} {number(self.limit)}."
            )
        return ""

    def _against(self, old: ConditionFindings, new: ConditionFindings | None) -> str:
        if new is None:
            return self._unchecked(f"{row(old)}: {_NO_ROW}")
        (before, *_), (after, interval, needs) = self._judged(old), self._judged(new)
        if needs:
            return self._too_few(row(new))
        bound = self._nearer(after, interval)
        if before and after is not None and bound is None:
            return self._unbounded(row(new))
        if before is None or bound is None or before == 0:
            missing = "this run" if bound is None else "the baseline"
            return self._unchecked(f"{row(new)}: {self._name} of {missing} is missing or 0")
        if _COMPARE[self.compare](_moved(before, bound), self.limit):
            measured = "beyond what was answered" if after is None else number(after)
            moved = "" if after is None else f" ({_change(_moved(before, after))})"
            return (
                f"{row(new)}: {self._name} went from {number(before)} to "
                f"{measured}{_between(interval)}{moved}, "
                f"which is {self.compare} {_change(self.limit)}."
            )
        return ""

    def _nearer(self, value: float | None, interval: Interval | None) -> float | None:
        """Return the bound of the interval that decides; of a figure that has none (None), the
        value itself."""
        if interval is None:
            return value
        low, high = interval
        return low if self.compare.startswith(">") else high

    def _unbounded(self, name: str) -> str:
        which = "lower" if self.compare.startswith(">") else "upper"
        return self._unchecked(f"{name}: the interval of {self._name} has no {which} bound")

    def _too_few(self, name: str) -> str:
        advice = f" Use {_enough(self.statistic)}."
        return self._unchecked(f"{name}: {self._name} needs more requests", advice)

    def _unchecked(self, why: str, advice: str = "") -> Unchecked:
        return Unchecked(f"{why}, so {self.text!r} cannot be checked.{advice}")

    @property
    def _name(self) -> str:
        return f"{self.figure}.{self.statistic}" if self.statistic else self.figure

    def _judged(self, findings: ConditionFindings) -> tuple[float | None, Interval | None, int]:
        """Return the value of a row, its interval, and how many requests its percentile needs (0:
        it has enough).

        A figure, or a throughput of too few rounds, can have no interval (None).
        """
        if self.figure in TOTALS:
            total = TOTALS[self.figure]
            interval = total.ci95_of(findings)
            return total.value(findings), None if interval == (None, None) else interval, 0
        summary = FIGURES[self.figure].summary(findings)
        value: float | None = getattr(summary, self.statistic)
        needs = summary.needs.get(self.statistic, 0) if summary.n else 0
        return value, summary.ci95.get(self.statistic), needs


def check_changes(gates: Sequence[Gate], comparison: Comparison) -> list[str]:
    """Return a sentence for each breach of relative `gates`, all corrected for their number.

    Raises `CallerFault` for a statistic that has no interval.
    """
    breaches: list[str] = []
    tested: list[tuple[Gate, ConditionChange, FigureChange]] = []
    for gate in gates:
        if gate.statistic and gate.statistic not in PERCENTILES:
            raise CallerFault(
                f"the gate {gate.text!r} compares .{gate.statistic}, which has no interval",
                kind="bad_gate",
                hint=f"Use one of .{', .'.join(PERCENTILES)}.",
            )
        breaches += [gate._unchecked(f"{name}: {_NO_ROW}") for name in comparison.only_before]
        for changed in comparison.conditions:
            change = _found(changed, gate.figure, gate.statistic)
            if change is not None and change.ci95 is not None:
                if _unbounded(change):
                    breaches.append(gate._unbounded(_name(changed)))
                else:
                    tested.append((gate, changed, change))
            elif sentence := _without_interval(gate, changed, change):
                breaches.append(sentence)
    of_period = comparison.close_rounds is not None
    p_values = {at: _one_sided(gate, change) for at, (gate, _, change) in enumerate(tested)}
    for at, (adjusted, _) in holm_levels(p_values).items():
        gate, changed, change = tested[at]
        if adjusted < DOUBT:
            certain = "in these minutes" if of_period else chance(adjusted)
            breaches.append(
                f"{_name(changed)}: {gate._name} went from {number(change.before)} to "
                f"{number(change.after)}{change_evidence(change)}, which is {gate.compare} "
                f"{_change(gate.limit)} ({certain})."
            )
    return breaches


def _found(changed: ConditionChange, figure: str, statistic: str) -> FigureChange | None:
    every = (*changed.figures, *changed.totals)
    return next((f for f in every if (f.figure, f.percentile) == (figure, statistic)), None)


def _unbounded(change: FigureChange) -> bool:
    """Return whether the interval holds every change: two rounds a side that differ widely give
    such a one.

    The logarithm of its lower bound, a fall by 100%, does not exist.
    """
    return change.ci95 is not None and change.ci95[0] <= -1


def _comparison(change: FigureChange) -> SampleComparison:
    """Return the comparison that a change with an interval came from: its middle is that of the
    logarithms."""
    middle = sum(math.log1p(bound) for bound in change.ci95 or ()) / 2
    return SampleComparison(
        first=change.before,
        second=change.after,
        log_ratio=middle,
        error=change.error,
        freedom=change.freedom,
    )


def _one_sided(gate: Gate, change: FigureChange) -> float:
    """Return twice the one-sided p-value of the hypothesis that the change does not breach
    `gate`."""
    limit, compared = math.log1p(gate.limit), _comparison(change)
    doubt = compared.doubt_of(limit)
    beyond = (
        compared.log_ratio > limit if gate.compare.startswith(">") else compared.log_ratio < limit
    )
    return doubt if beyond else 2 - doubt


def _without_interval(gate: Gate, changed: ConditionChange, change: FigureChange | None) -> str:
    name = _name(changed)
    if (
        change is None
        or change.before is None
        or (change.after is None and not change.real)
        or change.before == 0
    ):
        return gate._unchecked(f"{name}: {gate._name} is missing or 0 on one side")
    if change.needs:
        return gate._too_few(name)
    if change.percentile and change.after is None:
        worse = gate.compare.startswith(">") != FIGURES[gate.figure].higher_is_better
        return f"{name}: {gate._name} is now beyond what was answered." if worse else ""
    if change.percentile:
        few = "has too few rounds or requests to be tested"
        return gate._unchecked(f"{name}: {gate._name} {few}")
    assert change.after is not None
    moved = _moved(change.before, change.after)
    if not _COMPARE[gate.compare](moved, gate.limit):
        return ""
    return (
        f"{name}: {gate._name} went from {number(change.before)} to {number(change.after)} "
        f"({_change(moved)}), which is {gate.compare} {_change(gate.limit)}."
    )


def _enough(statistic: str) -> str:
    return f"-n {advised(PERCENTILES[statistic])}"


class Equivalence(Struct, frozen=True, kw_only=True):
    """Requirement that a percentile changed by less than `share` (0.05 is ±5%) in every row."""

    text: str
    figure: str
    statistic: str
    share: float

    def check(self, comparison: Comparison) -> list[str]:
        sentences = [
            Unchecked(f"{name}: {_NO_ROW}, so {self.text!r} is not shown.")
            for name in comparison.only_before
        ]
        return sentences + [
            sentence for changed in comparison.conditions if (sentence := self._not_shown(changed))
        ]

    def _not_shown(self, changed: ConditionChange) -> str:
        change = _found(changed, self.figure, self.statistic)
        name = f"{_name(changed)}: {self.figure}{f'.{self.statistic}' if self.statistic else ''}"
        if change is None or change.ci95 is None:
            needs = (
                f" Use {_enough(self.statistic)}." if change is not None and change.needs else ""
            )
            return Unchecked(f"{name} could not be tested, so {self.text!r} is not shown.{needs}")
        if _unbounded(change):
            return Unchecked(
                f"{name} changed by an unknown amount: its interval has no bounds, so "
                f"{self.text!r} is not shown."
            )
        low, high = (bound - 1 for bound in _comparison(change).interval(EQUIVALENT_DOUBT))
        if -self.share < low and high < self.share:
            return ""
        differs = low >= self.share or high <= -self.share
        verdict = "differs by more than" if differs else "is not shown to be equivalent within ±"
        return (
            f"{name} {verdict}{' ' if differs else ''}{number(self.share * 100)}%: "
            f"{_change(change.change or 0.0)}, 90% interval {_change(low)} to {_change(high)}."
        )


def parse_equivalence(text: str) -> Equivalence:
    """Parse ``ttft_ms.p50 ±5%``. Raises `CallerFault` with what is allowed."""
    match = _EQUIVALENT.fullmatch(text)
    if match is None:
        raise _not_equivalence(text, "it is not a figure and ± a percentage")
    figure, statistic = match["figure"], match["statistic"] or ""
    share = float(match["limit"]) / 100
    if figure in FIGURES and statistic not in PERCENTILES:
        raise _not_equivalence(text, f"{figure} needs one of .{', .'.join(PERCENTILES)}")
    if figure not in FIGURES and (statistic or figure not in _TESTED):
        raise _not_equivalence(text, f"there is no figure {figure!r} with an interval")
    if not 0 < share < 1:
        raise _not_equivalence(text, "the percentage must be above 0 and below 100")
    return Equivalence(text=text.strip(), figure=figure, statistic=statistic, share=share)


_EQUIVALENT = re.compile(
    r"\s*+(?P<figure>[a-z0-9_]++)(?:\.(?P<statistic>[a-z0-9]++))?\s*+(?:±|\+-|\+/-)\s*+"
    r"(?P<limit>\d++(?:\.\d++)?|\.\d++)\s*+%\s*+"
)


def _not_equivalence(text: str, what: str) -> CallerFault:
    return CallerFault(
        f"cannot read the equivalence {text!r}: {what}",
        kind="bad_gate",
        hint=f"Allowed: one of {', '.join(FIGURES)} with .p50, .p95 or .p99, or one of "
        f"{', '.join(_TESTED)}; then ± and a percentage, as in 'ttft_ms.p50 ±5%'.",
    )


def parse_gate(text: str) -> Gate:
    """Parse a gate such as ``ttft_ms.p95 > +10%``. Raises `CallerFault` with what is allowed."""
    match = _GATE.fullmatch(text)
    if match is None:
        raise _wrong(text, "it is not a figure, a comparison and a number")
    figure, statistic, relative = match["figure"], match["statistic"] or "", bool(match["percent"])
    _check_figure(text, figure, statistic, relative=relative)
    limit = float(match["limit"].replace("−", "-"))
    if not math.isfinite(limit):
        raise _wrong(text, "the number is too large")
    if relative and limit <= -100:
        raise _wrong(text, "nothing falls by 100% or more")
    return Gate(
        text=text.strip(),
        figure=figure,
        statistic=statistic,
        compare=match["compare"],
        limit=limit / 100 if relative else limit,
        relative=relative,
    )


def _check_figure(text: str, figure: str, statistic: str, *, relative: bool) -> None:
    if figure not in FIGURES and figure not in TOTALS:
        raise _wrong(text, f"there is no figure {figure!r}{_similar(figure)}")
    if figure in FIGURES and statistic not in STATISTICS:
        raise _wrong(text, f"{figure} needs one of .{', .'.join(STATISTICS)}")
    if figure in TOTALS and statistic:
        raise _wrong(text, f"{figure} is one number, it has no .{statistic}")
    if figure in TOTALS and TOTALS[figure].unit == "requests" and relative:
        raise _wrong(text, f"{figure} is a count, which may be 0: give a number, not a percentage")


def _name(changed: ConditionChange) -> str:
    return f"{changed.name} {level(changed)}"


def _moved(before: float, after: float) -> float:
    """Return the relative change; rounded, because 330 against 300 is +10%, not slightly more."""
    return round(after / before - 1, 12) if math.isfinite(after) else after


def _between(interval: Interval | None) -> str:
    if interval is None:
        return ""
    low, high = interval
    return (
        f" (95% interval {'?' if low is None else number(low)} to "
        f"{'?' if high is None else number(high)})"
    )


def _change(share: float) -> str:
    # more digits than `wording.change`: a gate may be missed narrowly
    return f"{share * 100:+.4g}%".replace("-", "−")


def _similar(figure: str) -> str:
    names = [*FIGURES, *TOTALS]
    near = [name for name in names if figure in name.split("_")] or get_close_matches(
        figure, names, cutoff=0.5
    )
    return f"; did you mean {' or '.join(near[:3])}?" if near else ""


def _wrong(text: str, what: str) -> CallerFault:
    return CallerFault(f"cannot read the gate {text!r}: {what}", kind="bad_gate", hint=_EXAMPLES)
