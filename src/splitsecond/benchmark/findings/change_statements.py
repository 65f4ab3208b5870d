from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from splitsecond.benchmark.rows.figures import FIGURES, TOTALS
from splitsecond.benchmark.rows.metric import Figure, Total, in_words
from splitsecond.benchmark.rows.records import FigureChange
from splitsecond.core.grouping import grouped
from splitsecond.core.wording import (
    Statement,
    change,
    evidence,
    in_a_line,
    level,
    listed,
    load,
)

THROUGHPUT = "output_tokens_per_s"
STATED_PERCENTILES = ("p50", "p95")
"""A change of one of these gets a sentence; the others repeat it, or rest on few requests."""


class ConditionChange(Struct, frozen=True, kw_only=True):
    """Changes of one row. `notes`: what else differs between the runs, or spoils the comparison.

    `totals` are numbers such as the throughput or the errors; the throughput and some figures of
    sessions have a test.
    """

    target: str
    before_target: str
    concurrency: int | None
    rate: float | None
    figures: list[FigureChange]
    totals: list[FigureChange]
    notes: list[str]
    in_sessions: bool = False
    cache_reuse: bool = False
    workload: str = ""

    @property
    def name(self) -> str:
        return (
            self.target
            if self.target == self.before_target
            else f"{self.before_target} → {self.target}"
        )


def _stated(changed: ConditionChange) -> list[FigureChange]:
    open_loop = changed.concurrency is None
    stated = [
        figure.under(open_loop=open_loop).name for figure in FIGURES.values() if figure.stated
    ]
    figures = [
        f for f in changed.figures if f.percentile in STATED_PERCENTILES and f.figure in stated
    ]
    return figures + [total for total in changed.totals if total.p_value is not None]


def _real(changed: ConditionChange, *, of_period: bool) -> list[Statement]:
    before, after = (", ", " in these minutes") if of_period else (", for the ", "")
    return [
        Statement(
            f"{changed.name} {level(changed)}: {label} went from {_value(metric, f.before)} to "
            f"{_value(metric, f.after)}{metric.unit_after}"
            f"{change_evidence(f, None if of_period else f.p_value)}"
            f"{before}{better}{after}.",
            f"{changed.name} {level(changed, short=True)}: {label} {_value(metric, f.before)} → "
            f"{_value(metric, f.after)}{metric.unit_after}{change_evidence(f, short=True)}, "
            f"{better}.",
        )
        for f in _stated(changed)
        if f.real and (metric := FIGURES.get(f.figure) or TOTALS[f.figure])
        for label in [f"{metric.label} {f.percentile}".rstrip()]
        for better in ["better" if f.better else "worse"]
    ]


def _value(metric: Figure | Total, value: float | None) -> str:
    return "beyond what was answered" if value is None else in_words(metric, value)


def change_statements(changes: Sequence[ConditionChange], *, of_period: bool) -> list[Statement]:
    real = [(changed, _real(changed, of_period=of_period)) for changed in changes]
    same = grouped((changed for changed, sentences in real if not sentences), level)
    return [each for _, sentences in real for each in sentences] + [
        _unchanged(alike, of_period=of_period) for alike in same.values()
    ]


def _unchanged(alike: Sequence[ConditionChange], *, of_period: bool) -> Statement:
    rows = [
        f"{c.name}{' (not tested: too few requests or rounds)' if _not_tested(c) else ''}"
        for c in alike
    ]
    short = [f"{c.name}{' (not tested)' if _not_tested(c) else ''}" for c in alike]
    seen = _could_see(alike)
    unchanged = f"no change beyond chance{' in these minutes' if of_period else ''}"
    return Statement(
        f"{level(alike[0]).capitalize()}, {unchanged}: {listed(rows)}."
        + "".join(
            f" A change of {label} p50 by {listed(sizes)} would have been seen."
            for label, sizes in seen.items()
        ),
        "\n".join(
            [
                in_a_line(f"{load(alike[0], short=True)}, {unchanged}: ", short),
                *(
                    in_a_line(f"Smallest change of {label} p50 that would show: ", s)
                    for label, s in seen.items()
                ),
            ]
        ),
    )


def _first_p50(changed: ConditionChange) -> FigureChange | None:
    return next((f for f in _stated(changed) if f.percentile == "p50"), None)


def _not_tested(changed: ConditionChange) -> bool:
    median = _first_p50(changed)
    return median is None or (not median.detectable and median.p_value is None)


def _could_see(alike: Sequence[ConditionChange]) -> dict[str, list[str]]:
    by_figure: defaultdict[str, list[str]] = defaultdict(list)
    for row_change in alike:
        first = _first_p50(row_change)
        if first is not None and first.detectable:
            size = change(first.detectable).removeprefix("+")
            by_figure[FIGURES[first.figure].label].append(
                f"{size} ({row_change.name})" if len(alike) > 1 else size
            )
    return by_figure


def change_evidence(f: FigureChange, p_value: float | None = None, *, short: bool = False) -> str:
    moved = "" if f.change is None else change(f.change)
    return evidence(moved, f.ci95 and (change(f.ci95[0]), change(f.ci95[1])), p_value, short=short)
