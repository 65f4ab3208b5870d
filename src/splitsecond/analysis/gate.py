"""Conditions on which a run fails: ``ttft_ms.p95 > +10%`` against a baseline, ``errors > 0`` by itself.

A gate holds for every row of a run. What it needs and cannot have (a figure nobody measured, a row that the baseline
has and this run has not) is a breach too: a gate that quietly checks less than it says is worse than none.
"""

import math
import operator
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from splitsecond.analysis.figures import FIGURES
from splitsecond.analysis.findings import ConditionFindings, Spread
from splitsecond.analysis.wording import by_place, number, row
from splitsecond.errors import CallerFault

SPREADS = (*FIGURES, "itl_ms")
STATISTICS = ("p50", "p95", "p99", "mean", "min", "max")
TOTALS = ("output_tokens_per_s", "requests_per_s", "batching_efficiency", "cost_usd", "usd_per_million")
COUNTS = ("errors", "requests")

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_GATE = re.compile(
    r"\s*(?P<figure>[a-z0-9_]+)(?:\.(?P<statistic>[a-z0-9]+))?"
    r"\s*(?P<compare>[<>]=?)"
    r"\s*(?P<limit>[+\-−]?(?:\d+(?:\.\d+)?|\.\d+))\s*(?P<percent>%?)\s*"
)
_ALLOWED = (
    f"Allowed: one of {', '.join(SPREADS)} with one of .{', .'.join(STATISTICS)}, or {', '.join(TOTALS + COUNTS)}; "
    "then >, >=, < or <=; then a number, or for a change against the baseline a percentage. "
    "Examples: 'ttft_ms.p95 > +10%', 'tps.p50 < -5%', 'ttft_ms.p95 > 300', 'errors > 0'."
)


class Gate(Struct, frozen=True, kw_only=True):
    """One condition on which a run fails. `limit` is in the figure's unit, or if `relative`, a share: 0.1 is +10 %."""

    text: str
    figure: str
    statistic: str
    compare: str
    limit: float
    relative: bool

    def check(
        self, rows: Sequence[ConditionFindings], baseline: Sequence[ConditionFindings] | None = None
    ) -> list[str]:
        """The breaches, a sentence for each; empty if the run passes. A relative gate without a baseline raises
        `CallerFault`. Rows that only this run has are not held against a baseline."""
        if not self.relative:
            return [breach for findings in rows if (breach := self._absolute(findings))]
        if baseline is None:
            raise CallerFault(
                f"the gate {self.text!r} needs a run to compare with, got none",
                kind="bad_gate",
                hint="Compare two runs, or give the limit in the figure's own unit.",
            )
        now, before = by_place(rows), by_place(baseline)
        return [breach for place, old in before.items() if (breach := self._against(old, now.get(place)))]

    def _absolute(self, findings: ConditionFindings) -> str:
        value = self._value(findings)
        if value is None:
            return f"{row(findings)}: {self._name} could not be had, so {self.text!r} cannot be checked."
        if _COMPARE[self.compare](value, self.limit):
            return f"{row(findings)}: {self._name} is {number(value)}, which is {self.compare} {number(self.limit)}."
        return ""

    def _against(self, old: ConditionFindings, new: ConditionFindings | None) -> str:
        if new is None:
            return f"{row(old)}: the baseline has it and this run has not, so {self.text!r} cannot be checked."
        before, after = self._value(old), self._value(new)
        if before is None or after is None or before == 0:
            missing = "this run" if after is None else "the baseline"
            return f"{row(new)}: {self._name} of {missing} is missing or 0, so {self.text!r} cannot be checked."
        moved = round(after / before - 1, 12)  # 330 against 300 is +10 %, not a hair more
        if _COMPARE[self.compare](moved, self.limit):
            return (
                f"{row(new)}: {self._name} went from {number(before)} to {number(after)} ({_change(moved)}), "
                f"which is {self.compare} {_change(self.limit)}."
            )
        return ""

    @property
    def _name(self) -> str:
        return f"{self.figure}.{self.statistic}" if self.statistic else self.figure

    def _value(self, findings: ConditionFindings) -> float | None:
        value = getattr(findings, self.figure)
        if isinstance(value, Spread):
            value = getattr(value, self.statistic)
        return None if value is None else float(value)


def parse_gate(text: str) -> Gate:
    """Read ``ttft_ms.p95 > +10%`` and its like. Raises `CallerFault` saying what is allowed."""
    match = _GATE.fullmatch(text)
    if match is None:
        raise _wrong(text, "it is not a figure, a comparison and a number")
    figure, statistic, relative = match["figure"], match["statistic"] or "", bool(match["percent"])
    if figure not in SPREADS + TOTALS + COUNTS:
        raise _wrong(text, f"there is no figure {figure!r}")
    if figure in SPREADS and statistic not in STATISTICS:
        raise _wrong(text, f"{figure} needs one of .{', .'.join(STATISTICS)}")
    if figure not in SPREADS and statistic:
        raise _wrong(text, f"{figure} is one number, it has no .{statistic}")
    if figure in COUNTS and relative:
        raise _wrong(text, f"{figure} is a count, which may be 0: give a number, not a percentage")
    limit = float(match["limit"].replace("−", "-"))
    if not math.isfinite(limit):
        raise _wrong(text, "the number is too large")
    return Gate(
        text=text.strip(),
        figure=figure,
        statistic=statistic,
        compare=match["compare"],
        limit=limit / 100 if relative else limit,
        relative=relative,
    )


def _change(share: float) -> str:
    """With more digits than `wording.change`: a gate may be missed by a hair."""
    return f"{share * 100:+.4g} %".replace("-", "−")


def _wrong(text: str, what: str) -> CallerFault:
    return CallerFault(f"cannot read the gate {text!r}: {what}", kind="bad_gate", hint=_ALLOWED)
