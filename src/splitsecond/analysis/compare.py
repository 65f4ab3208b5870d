"""Two runs: what changed from one to the other, figure by figure, and whether chance could have done it.

Rows are matched by target, load and way of asking. The intervals and tests know only the requests of these two runs:
they tell a change from the scatter within a run, not from a slow hour of the provider.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from splitsecond.analysis.contrast import Contrast, contrast
from splitsecond.analysis.cost import price_words
from splitsecond.analysis.figures import FIGURES, Figure, answered
from splitsecond.analysis.findings import ConditionFindings, FigureChange, Run
from splitsecond.analysis.spread import PERCENTILES
from splitsecond.analysis.wording import by_place, change, evidence, level, listed, number, row
from splitsecond.timing.observation import Observation

COMPARED = {
    False: ("ttft_ms", "tps", "e2e_ms", "total_tps"),
    True: ("ttft_due_ms", "ttft_ms", "tps", "response_ms", "e2e_ms", "total_tps"),
}
"""The figures of a closed loop, and of an open one. In a closed loop a request is due when it leaves."""
TOLD = {False: ("ttft_ms", "tps", "e2e_ms"), True: ("ttft_due_ms", "tps", "response_ms")}
TOTALS = ("output_tokens_per_s", "requests_per_s", "usd_per_million", "errors")
TOLD_PERCENTILES = ("p50", "p95")
"""Of these a change is worth a sentence; the others say the same again, or rest on few requests."""


class RunData(Struct, frozen=True):
    """A run and what it observed."""

    run: Run
    observations: Sequence[Observation]


class TotalChange(Struct, frozen=True, kw_only=True):
    """A figure that a row has one of, such as its throughput or its errors: no interval, no test."""

    figure: str
    before: float | None
    after: float | None
    change: float | None


class ConditionChange(Struct, frozen=True, kw_only=True):
    """One row in both runs. `notes` say what else differs between them, or spoils the comparison."""

    target: str
    concurrency: int | None
    rate: float | None
    figures: list[FigureChange]
    totals: list[TotalChange]
    notes: list[str]
    cache_reuse: bool = False


class Comparison(Struct, frozen=True, kw_only=True):
    """Two runs by their ids. `only_before` and `only_after` name rows that the other run has not."""

    before: str
    after: str
    conditions: list[ConditionChange]
    only_before: list[str]
    only_after: list[str]
    statements: list[str]


def compare(before: RunData, after: RunData, *, seed: int = 0) -> Comparison:
    """What changed from `before` to `after`. The same `seed` gives the same intervals and p-values."""
    random = np.random.default_rng(seed)
    old_rows, new_rows = by_place(before.run.conditions), by_place(after.run.conditions)
    old_observed, new_observed = _by_condition(before.observations), _by_condition(after.observations)
    matched = [(old_rows[place], new_rows[place]) for place in new_rows if place in old_rows]
    changes = [
        _changed(old, new, old_observed[old.condition], new_observed[new.condition], random) for old, new in matched
    ]
    return Comparison(
        before=before.run.id,
        after=after.run.id,
        conditions=changes,
        only_before=[row(old) for place, old in old_rows.items() if place not in new_rows],
        only_after=[row(new) for place, new in new_rows.items() if place not in old_rows],
        statements=_statements(changes),
    )


def _by_condition(observations: Sequence[Observation]) -> defaultdict[str, list[Observation]]:
    observed: defaultdict[str, list[Observation]] = defaultdict(list)
    for o in answered(observations):
        observed[o.condition].append(o)
    return observed


def _changed(
    old: ConditionFindings,
    new: ConditionFindings,
    old_ok: Sequence[Observation],
    new_ok: Sequence[Observation],
    random: np.random.Generator,
) -> ConditionChange:
    return ConditionChange(
        target=new.target,
        concurrency=new.concurrency,
        rate=new.rate,
        figures=[
            changed
            for name in COMPARED[new.concurrency is None]
            for changed in figure_changes(FIGURES[name], old_ok, new_ok, random)
        ],
        totals=[_total_change(name, old, new) for name in TOTALS],
        notes=_notes(old, new),
        cache_reuse=new.cache_reuse,
    )


def figure_changes(
    figure: Figure, old_ok: Sequence[Observation], new_ok: Sequence[Observation], random: np.random.Generator
) -> list[FigureChange]:
    """How each percentile of `figure` changed from the old answers to the new ones; nothing where either has none."""
    before, after = figure.values(old_ok), figure.values(new_ok)
    if not len(before) or not len(after):
        return []
    places = {name: 1 - q if figure.fast_end else q for name, q in PERCENTILES.items()}
    found = contrast(before, after, places, random)
    return [_figure_change(figure, name, found[name]) for name in places]


def _figure_change(figure: Figure, percentile: str, found: Contrast) -> FigureChange:
    return FigureChange(
        figure=figure.name,
        percentile=percentile,
        before=found.first,
        after=found.second,
        change=None if found.ratio is None else found.ratio - 1,
        ci95=None if found.ci95 is None else (found.ci95[0] - 1, found.ci95[1] - 1),
        p_value=found.p_value,
        real=found.real,
        better=None if found.first == found.second else (found.second > found.first) == figure.fast_end,
    )


def _total_change(name: str, old: ConditionFindings, new: ConditionFindings) -> TotalChange:
    before, after = getattr(old, name), getattr(new, name)
    return TotalChange(
        figure=name,
        before=before,
        after=after,
        change=after / before - 1 if before and after is not None else None,
    )


def _notes(old: ConditionFindings, new: ConditionFindings) -> list[str]:
    notes = [f"INVALID in the run {which}: {reason}" for which, c in _both(old, new) for reason in c.invalid]
    differing = {
        "source of the token counts": (old.token_source, new.token_source),
        "clock of the arrivals": tuple("kernel" if c.instrument.kernel_time else "client" for c in (old, new)),
    }
    notes += [f"the {what} differs: {a or 'none'}, then {b or 'none'}." for what, (a, b) in differing.items() if a != b]
    old_price, new_price = (price_words(c.price) for c in (old, new))
    if old_price and new_price and old_price != new_price:
        notes.append(f"the price differs: {old_price}, then {new_price}.")
    for what, a, b in (
        ("prompts", old.input_tokens, new.input_tokens),
        ("answers", old.output_tokens, new.output_tokens),
    ):
        if a and b and abs(b / a - 1) > 0.05:
            notes.append(f"the {what} differ in length: {number(a)} tokens, then {number(b)}.")
    return notes


def _both(old: ConditionFindings, new: ConditionFindings) -> tuple[tuple[str, ConditionFindings], ...]:
    return ("before", old), ("after", new)


def _real(name: str, changed: ConditionChange) -> list[str]:
    """A sentence for each change of a figure that is told which chance does not explain."""
    return [
        f"{name}: {FIGURES[f.figure].label} {f.percentile} went from {number(f.before)} to {number(f.after)} "
        f"{FIGURES[f.figure].unit}{_evidence(f)}, for the {'better' if f.better else 'worse'}."
        for f in changed.figures
        if f.real and f.percentile in TOLD_PERCENTILES and f.figure in TOLD[changed.concurrency is None]
    ]


def _statements(changes: Sequence[ConditionChange]) -> list[str]:
    """What changed row by row, then in one sentence for each load the rows in which nothing did."""
    said: list[str] = []
    same: defaultdict[str, list[str]] = defaultdict(list)
    for changed in changes:
        where = level(changed)
        real = _real(f"{changed.target} {where}", changed)
        said += real
        if not real:
            same[where].append(changed.target)
    return said + [
        f"{where.capitalize()}, no change beyond chance: {listed(targets)}." for where, targets in same.items()
    ]


def _evidence(f: FigureChange) -> str:
    return evidence(
        "" if f.change is None else change(f.change),
        f.ci95 and (change(f.ci95[0]), change(f.ci95[1])),
        f.p_value,
    )
