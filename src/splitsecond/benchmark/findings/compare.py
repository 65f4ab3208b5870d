"""Comparison of two runs, or of several runs on each side: how each figure changed, and whether
chance explains it.

Rows are matched by target, load and cache reuse; targets of different names are matched by request,
or if each side has only one. Several runs on a side are its rounds, because days differ more than
the rounds of one day.

All comparisons of a report are corrected together: at most one report in twenty contains a change
that is not real. That holds for runs whose rounds are far enough apart. Others are compared as they
were: in their own minutes.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from splitsecond.benchmark.findings.change_statements import (
    THROUGHPUT,
    ConditionChange,
    change_statements,
)
from splitsecond.benchmark.rows.figures import FIGURES, TOTALS, compared_figures, ended
from splitsecond.benchmark.rows.metric import Figure, Total
from splitsecond.benchmark.rows.records import ConditionFindings, FigureChange, Run
from splitsecond.benchmark.rows.round_spread import RoundSpread, round_spread, spread_statement
from splitsecond.benchmark.rows.usable_rows import Place, by_place, row
from splitsecond.core.errors import CallerFault
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import price_words
from splitsecond.core.observation import Observation
from splitsecond.core.wording import (
    Statement,
    full,
    listed,
    number,
)
from splitsecond.log.statistics.sample_comparison import (
    Blocks,
    SampleComparison,
    compare_blocks,
    compare_samples,
    holm,
    ratio_blocks,
    untested,
)
from splitsecond.log.statistics.summary import MIN_ROUNDS, PERCENTILES, FigureSample

DAY = len("2025-06-01")
Match = Mapping[str, str]


class RunData(Struct, frozen=True):
    """A run and its observations. `name`: how the user calls it, such as its folder; "" for its
    id."""

    run: Run
    observations: Sequence[Observation]
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or self.run.id


class Comparison(Struct, frozen=True, kw_only=True):
    """Changes between two sides, by the folders of their runs, or their ids. `only_before` and
    `only_after` name rows that the other side lacks. `close_rounds`: the rounds of the run in which
    they are closest together, if that is too close for a claim about other minutes than those of
    the runs; otherwise null."""

    before: str
    after: str
    conditions: list[ConditionChange]
    only_before: list[str]
    only_after: list[str]
    statements: list[str]
    short_statements: list[str] = []
    close_rounds: RoundSpread | None = None


class _Side(Struct, frozen=True):
    rows: list[ConditionFindings]
    requests: list[Sequence[Observation]]
    by_run: bool

    def sample(self, figure: Figure) -> FigureSample:
        samples = [figure.sample(each) for each in self.requests]
        if len(samples) == 1:
            return samples[0]
        rounds, first = [], 0
        for sample in samples:
            rounds.append(
                np.full(len(sample.values), first) if self.by_run else sample.rounds + first
            )
            first = int(rounds[-1].max(initial=first)) + 1
        numbers = np.concatenate(rounds)
        spread = self.by_run or len(np.unique(numbers)) >= MIN_ROUNDS
        return FigureSample(np.concatenate([s.values for s in samples]), numbers, spread)

    def total(self, total: Total) -> float | None:
        values = [value for each in self.rows if (value := total.value(each)) is not None]
        return sum(values) / (1 if total.unit == "requests" else len(values)) if values else None

    def blocks(self, total: Total) -> Blocks:
        """Return the logarithm of a total in each round or run, if it is tested."""
        if self.by_run:
            values = [total.value(each) or 0.0 for each in self.rows]
        elif total.name == THROUGHPUT:
            values = [
                rate for each in self.rows for rate in each.output_tokens_per_s_rounds.values()
            ]
        else:
            parts = dict(
                enumerate(part for each in self.rows for part in total.by_round(each).values())
            )
            return ratio_blocks(parts) if len(parts) >= MIN_ROUNDS else {}
        logarithms = {at: math.log(value) for at, value in enumerate(values) if value > 0}
        return logarithms if self.by_run or len(logarithms) >= MIN_ROUNDS else {}


def compare(
    before: Sequence[RunData],
    after: Sequence[RunData],
    *,
    match: Match | None = None,
    figures: Collection[str] = (),
) -> Comparison:
    """Compare the runs of two sides, at least one each.

    `match` maps names of targets before to names after. `figures`: names of further figures and
    totals. Raises `CallerFault` if a run is twice on one side: it would count as further rounds.
    """
    _check_once(before)
    _check_once(after)
    match = match_by_itself(before, after) if match is None else match
    old_side, new_side = _side(before, match), _side(after, {})
    pairs = [(old_side[place], new_side[place]) for place in new_side if place in old_side]
    changes = _corrected([_changed(old, new, figures) for old, new in pairs])
    close = _close_rounds(before, after)
    other_tools = _of_other_tools(before, after)
    stated = [
        *other_tools,
        *([spread_statement(close, of_tool=bool(other_tools))] if close and changes else []),
        *change_statements(changes, of_period=bool(close)),
    ]
    return Comparison(
        before=", ".join(data.label for data in before),
        after=", ".join(data.label for data in after),
        conditions=changes,
        only_before=[
            row(side.rows[-1]) for place, side in old_side.items() if place not in new_side
        ],
        only_after=[
            row(side.rows[-1]) for place, side in new_side.items() if place not in old_side
        ],
        statements=full(stated),
        short_statements=[each.short or each.long for each in stated],
        close_rounds=close,
    )


def _of_other_tools(*sides: Sequence[RunData]) -> list[Statement]:
    tools = [data.run.asked.get("settings", {}).get("tool") for side in sides for data in side]
    tool_names = list(dict.fromkeys(tool for tool in tools if tool))
    if not tool_names:
        return []
    unknown = f"Measured by {listed(tool_names)}: errors of the client are not known"
    return [
        Statement(f"{unknown}, and the rounds are blocks of one stream of requests.", f"{unknown}.")
    ]


def _close_rounds(*sides: Sequence[RunData]) -> RoundSpread | None:
    spreads = [
        round_spread(data.observations)
        for side in sides
        if not _several_days(side)
        for data in side
    ]
    return min(
        (each for each in spreads if each and not each.claims),
        key=lambda each: each.apart_s or 0,
        default=None,
    )


def _check_once(side: Sequence[RunData]) -> None:
    times = Counter(data.run.id for data in side)
    if twice := dict.fromkeys(data.label for data in side if times[data.run.id] > 1):
        raise CallerFault(
            f"the run {listed(list(twice))} was given twice on one side; each run can count once",
            kind="bad_run",
        )


def targets_of(side: Iterable[RunData]) -> list[str]:
    return list(dict.fromkeys(each.target for data in side for each in data.run.conditions))


def match_by_itself(before: Sequence[RunData], after: Sequence[RunData]) -> Match:
    old, new = targets_of(before), targets_of(after)
    return {old[0]: new[0]} if len(old) == len(new) == 1 else {}


def parse_match(
    texts: Sequence[str], before: Sequence[RunData], after: Sequence[RunData]
) -> Match | None:
    """Parse pairs ``BEFORE=AFTER`` of target names; None without any. Raises `CallerFault`."""
    old, new = targets_of(before), targets_of(after)
    pairs: dict[str, str] = {}
    for text in texts:
        # Names of policies contain "=", so every place to split is tried.
        splits = [
            (text[:at].strip(), text[at + 1 :].strip()) for at, c in enumerate(text) if c == "="
        ]
        pair = next(((a, b) for a, b in splits if a in old and b in new), None)
        if pair is None:
            raise CallerFault(
                f"cannot match {text!r}: expected BEFORE=AFTER with a target of each side",
                kind="bad_match",
                hint=f"Targets before: {', '.join(old)}. After: {', '.join(new)}.",
            )
        pairs[pair[0]] = pair[1]
    return pairs or None


def _side(runs: Sequence[RunData], match: Match) -> dict[Place, _Side]:
    places: dict[Place, tuple[list[ConditionFindings], list[Sequence[Observation]]]] = {}
    taken = set(match.values())
    for data in runs:
        observed = grouped(ended(data.observations), lambda o: o.condition)
        for (target, *place_load), each in by_place(data.run.conditions).items():
            own = f"{target} (unmatched)" if target in taken else target
            place: Place = (match.get(target, own), *place_load)  # type: ignore[assignment]
            rows, requests = places.setdefault(place, ([], []))
            rows.append(each)
            requests.append(observed[each.condition])
    by_run = _several_days(runs)
    return {place: _Side(rows, requests, by_run) for place, (rows, requests) in places.items()}


def _several_days(runs: Sequence[RunData]) -> bool:
    return len({data.run.began[:DAY] for data in runs}) > 1


Compared = tuple[str, str, SampleComparison]


class _Changed(Struct, frozen=True):
    old: _Side
    new: _Side
    compared: list[Compared]
    totals: list[Total]


def _changed(old: _Side, new: _Side, more: Collection[str]) -> _Changed:
    open_loop = new.rows[-1].concurrency is None
    figures = compared_figures(open_loop=open_loop)
    figures += [
        figure for name, figure in FIGURES.items() if name in more and figure not in figures
    ]
    totals = [total for name, total in TOTALS.items() if total.compared or name in more]
    compared = [each for figure in figures for each in _compared_percentiles(figure, old, new)]
    for total in totals:
        values = old.total(total), new.total(total)
        fits = total.name != THROUGHPUT or (_counted_alike(old, new) and not open_loop)
        if total.tested and fits and None not in values:
            blocks = old.blocks(total), new.blocks(total)
            compared.append(
                (total.name, "", compare_blocks(*blocks, paired=False, percentiles=values))
            )
    return _Changed(old, new, compared, totals)


def _compared_percentiles(figure: Figure, old: _Side, new: _Side) -> Iterator[Compared]:
    comparisons = compare_figure(figure, old.sample(figure), new.sample(figure), paired=False)
    tested = not figure.counts_tokens or _counted_alike(old, new)
    for name, each in comparisons.items():
        yield (
            figure.name,
            name,
            each if tested else untested(each.first, each.second, each.needs),
        )


def _counted_alike(old: _Side, new: _Side) -> bool:
    return old.rows[-1].token_source == new.rows[-1].token_source


def _corrected(changed: Sequence[_Changed]) -> list[ConditionChange]:
    judged = holm(
        {(at, i): c for at, each in enumerate(changed) for i, (_, _, c) in enumerate(each.compared)}
    )
    return [
        _condition_change(
            each, [(f, p, judged[at, i]) for i, (f, p, _) in enumerate(each.compared)]
        )
        for at, each in enumerate(changed)
    ]


def _condition_change(of: _Changed, compared: Sequence[Compared]) -> ConditionChange:
    old, new = of.old.rows[-1], of.new.rows[-1]
    tested = {name: comparison for name, percentile, comparison in compared if not percentile}
    return ConditionChange(
        target=new.target,
        before_target=old.target,
        concurrency=new.concurrency,
        rate=new.rate,
        figures=[
            figure_change(FIGURES[name], p, comparison) for name, p, comparison in compared if p
        ],
        totals=[
            figure_change(total, "", tested[total.name])
            if total.name in tested
            else figure_change(total, "", untested(of.old.total(total), of.new.total(total)))
            for total in of.totals
            if total.group != "Sessions" or new.in_sessions or old.in_sessions
        ],
        notes=_notes(of.old.rows, of.new.rows),
        in_sessions=new.in_sessions,
        cache_reuse=new.cache_reuse,
        workload=new.workload,
    )


def compare_figure(
    figure: Figure, before: FigureSample, after: FigureSample, *, paired: bool
) -> dict[str, SampleComparison]:
    if not np.isfinite(before.values).any() or not np.isfinite(after.values).any():
        return {}
    places = {name: 1 - q if figure.higher_is_better else q for name, q in PERCENTILES.items()}
    return compare_samples(before, after, places, paired=paired)


def figure_change(
    metric: Figure | Total, percentile: str, comparison: SampleComparison
) -> FigureChange:
    up = comparison.log_ratio
    if not comparison.rounds:
        up = (
            0.0
            if comparison.first is None or comparison.second is None
            else comparison.second - comparison.first
        )
    better = (
        None if up == 0 or metric.higher_is_better is None else (up > 0) == metric.higher_is_better
    )
    return FigureChange(
        figure=metric.name,
        percentile=percentile,
        before=comparison.first,
        after=comparison.second,
        change=None if comparison.ratio is None else comparison.ratio - 1,
        ci95=None if comparison.ci95 is None else (comparison.ci95[0] - 1, comparison.ci95[1] - 1),
        p_value=comparison.p_value,
        real=comparison.real,
        better=better,
        detectable=None if comparison.detectable is None else comparison.detectable - 1,
        error=comparison.error,
        freedom=comparison.freedom,
        needs=comparison.needs,
    )


def _notes(
    old_rows: Sequence[ConditionFindings], new_rows: Sequence[ConditionFindings]
) -> list[str]:
    sides = ("before", old_rows), ("after", new_rows)
    notes = [
        f"INVALID in the run {which}: {reason}"
        for which, rows in sides
        for c in rows
        for reason in c.invalid
    ]
    notes += _differences(old_rows[-1], new_rows[-1])
    few = [which for which, rows in sides if any(c.requests and not c.ttft_ms.rounds for c in rows)]
    if few:
        notes.append(
            f"the run {listed(few)} has fewer than five rounds: its intervals describe its own "
            "seconds only, and differences are not tested."
        )
    return notes


def _differences(old: ConditionFindings, new: ConditionFindings) -> Iterator[str]:
    for what, a, b in (
        ("source of the token counts", old.token_source, new.token_source),
        ("clock of the arrivals", _clock(old), _clock(new)),
    ):
        if a != b:
            yield f"the {what} differs: {a or 'none'}, then {b or 'none'}."
    old_price, new_price = price_words(old.price), price_words(new.price)
    if old_price and new_price and old_price != new_price:
        yield f"the price differs: {old_price}, then {new_price}."
    for what, old_tokens, new_tokens in (
        ("prompts", old.input_tokens, new.input_tokens),
        ("answers", old.output_tokens, new.output_tokens),
    ):
        if old_tokens and new_tokens and abs(new_tokens / old_tokens - 1) > 0.05:
            yield (
                f"the {what} differ in length: {number(old_tokens)} tokens, then "
                f"{number(new_tokens)}."
            )


def _clock(row: ConditionFindings) -> str:
    return (
        "packets"
        if row.instrument.packet_time
        else "kernel"
        if row.instrument.kernel_time
        else "client"
    )
