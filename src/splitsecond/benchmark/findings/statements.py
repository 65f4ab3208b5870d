"""Findings as plain sentences: which target is first on what under which load, and whether the
difference is real.

All comparisons of a run are corrected together, so at most one run in twenty reports any difference
that is not real. Where a difference is not certain, the sentence says what this run could have
seen, and what it takes to see 10%. A run whose rounds follow each other too closely names no target
first.

The built-in engine is ranked only against itself. Targets whose tokens are counted differently are
not compared on tokens per second. With the limits of a named use, the first sentences are its
`verdicts`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from splitsecond.benchmark.findings.verdicts import verdicts
from splitsecond.benchmark.rows.figures import TOTALS, ended, main_figures
from splitsecond.benchmark.rows.metric import Figure, Total
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.round_spread import round_spread
from splitsecond.benchmark.rows.row_cost import cost_statements
from splitsecond.benchmark.rows.usable_rows import row
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import Observation
from splitsecond.core.wording import (
    ENGINE,
    Statement,
    change,
    counted,
    counted_as,
    evidence,
    in_a_line,
    kind,
    level,
    limits,
    listed,
    load,
    number,
    percent,
    ratio,
    span,
)
from splitsecond.log.statistics.sample_comparison import (
    SampleComparison,
    compare_blocks,
    compare_samples,
    holm,
    ratio_blocks,
)
from splitsecond.log.statistics.summary import Interval

MEDIAN = {"p50": 0.5}
WORTH_SEEING = 1.1
"""Difference for which a sentence states how many requests it takes to see it."""

_OWN_UNIT = ("TPS", "total TPS")
Row = ConditionFindings
Observed = Mapping[str, Sequence[Observation]]


class Lead(Struct, frozen=True):
    metric: Figure | Total
    best: Row
    next_best: Row
    values: tuple[float | None, float | None]
    found: SampleComparison


def statements(conditions: Sequence[Row], observations: Sequence[Observation]) -> list[Statement]:
    valid = [c for c in conditions if not c.invalid]
    sentences = verdicts(valid)
    spread = round_spread(observations)
    period = "" if spread is None or spread.claims else spread.period()
    sentences += [_lead(each, period) for each in leads(conditions, observations)]
    sentences += [
        sentence for rows in _comparable(valid) for sentence in _counted_differently(rows)
    ]
    for rows in _by_load(valid):
        sentences += _goodput(rows)
    sentences += cost_statements(conditions)
    for reuse, workload in dict.fromkeys((c.cache_reuse, c.workload) for c in valid):
        alike = [c for c in valid if (c.cache_reuse, c.workload) == (reuse, workload)]
        sentences += _batching(alike, kind(alike[0]))
    return sentences + _errors(conditions) + _left_out(conditions)


def leads(conditions: Sequence[Row], observations: Sequence[Observation]) -> list[Lead]:
    observed = grouped(ended(observations), lambda o: o.condition)
    valid = [c for c in conditions if not c.invalid]
    all_leads = [each for rows in _comparable(valid) for each in _leads(rows, observed)]
    judged = holm({number: each.found for number, each in enumerate(all_leads)})
    return [replace(each, found=judged[number]) for number, each in enumerate(all_leads)]


def _by_load(rows: Sequence[Row]) -> list[list[Row]]:
    return list(
        grouped(rows, lambda c: (c.concurrency, c.rate, c.cache_reuse, c.workload)).values()
    )


def _comparable(rows: Sequence[Row]) -> list[list[Row]]:
    return [
        group
        for under_one_load in _by_load(rows)
        for engines in (False, True)
        if (group := [c for c in under_one_load if c.target.startswith(ENGINE) == engines])
    ]


def _leads(rows: Sequence[Row], observed: Observed) -> Iterator[Lead]:
    open_loop = rows[0].concurrency is None
    yield from _session_time([c for c in rows if c.session and c.session.session_s.value])
    for figure in main_figures(inputs=rows[0].inputs > 0):
        for alike in _counted_alike(rows) if figure.counts_tokens else [rows]:
            yield from _first(alike, figure.under(open_loop=open_loop), observed)
    if not open_loop:  # in an open loop the schedule decides the throughput
        for alike in _counted_alike(rows):
            yield from _throughput(alike)


def _counted_alike(rows: Sequence[Row]) -> list[list[Row]]:
    return list(grouped((c for c in rows if c.token_source), lambda c: c.token_source).values())


def _counted_differently(rows: Sequence[Row]) -> list[Statement]:
    groups = _counted_alike(rows)
    if len(groups) < 2:
        return []
    sources = [
        f"{listed([c.target for c in group])} by {group[0].token_source}" for group in groups
    ]
    return [
        Statement(
            f"{level(rows[0]).capitalize()}, tokens per second are not compared between targets "
            f"whose tokens are counted differently: {listed(sources)}.",
            in_a_line(
                f"{load(rows[0], short=True)}: TPS not compared, tokens counted differently: ",
                sources,
            ),
        )
    ]


def _first(rows: Sequence[Row], figure: Figure, observed: Observed) -> Iterator[Lead]:
    worst = -math.inf if figure.higher_is_better else math.inf
    ranked = sorted(
        (
            (c, figure.summary(c).p50)
            for c in rows
            if figure.summary(c).n and c.condition in observed
        ),
        key=lambda pair: worst if pair[1] is None else pair[1],
        reverse=figure.higher_is_better,
    )
    if len(ranked) < 2:
        return

    def compared(best: Row, next_best: Row) -> SampleComparison:
        # Ratios mean "times as fast": more tokens, or less time.
        pair = (next_best, best) if figure.higher_is_better else (best, next_best)
        slow, fast = (figure.sample(observed[c.condition]) for c in pair)
        return compare_samples(slow, fast, MEDIAN, paired=True)["p50"]

    (best, best_value), (next_best, next_value) = ranked[:2]
    test = compared(best, next_best)
    # the rounds say the opposite of the medians of all requests
    if test.real and test.log_ratio < 0:
        best, next_best, best_value, next_value = next_best, best, next_value, best_value
        test = compared(best, next_best)
    yield Lead(figure, best, next_best, (best_value, next_value), test)


def _session_time(rows: Sequence[Row]) -> Iterator[Lead]:
    ranked = sorted(
        (c.session.session_s.value or 0.0, at) for at, c in enumerate(rows) if c.session
    )
    if len(ranked) < 2:
        return
    (first, at), (second, next_at) = ranked[:2]
    best, next_best = rows[at], rows[next_at]
    total = TOTALS["session_s"]
    short, long = (ratio_blocks(total.by_round(c)) for c in (best, next_best))
    test = compare_blocks(short, long, paired=True, percentiles=(first, second))
    yield Lead(total, best, next_best, (first, second), test)


def _throughput(rows: Sequence[Row]) -> Iterator[Lead]:
    ranked = sorted(
        (c for c in rows if c.output_tokens_per_s), key=lambda c: -(c.output_tokens_per_s or 0.0)
    )
    if len(ranked) < 2:
        return
    best, next_best = ranked[:2]
    values = best.output_tokens_per_s, next_best.output_tokens_per_s
    fast, slow = (
        {at: math.log(speed) for at, speed in c.output_tokens_per_s_rounds.items() if speed > 0}
        for c in (best, next_best)
    )
    yield Lead(
        TOTALS["output_tokens_per_s"],
        best,
        next_best,
        values,
        compare_blocks(slow, fast, paired=True, percentiles=(values[1], values[0])),
    )


def _lead(of: Lead, period: str) -> Statement:
    """Return the sentence about a lead. `period`: the time that it is about, "" if it holds for
    other times too."""
    test = of.found
    if test.real:
        verdict, doubt = "ahead on " if period else "best ", ""
    elif test.p_value is None:
        verdict, doubt = "", " not tested"
    else:
        verdict, doubt = "", " unclear"
    if period and test.p_value is not None:
        doubt += f" in {period}"
    first, second = (number(value) if value is not None else "unanswered" for value in of.values)
    # "TPS 214" needs no unit.
    unit = "" if of.metric.label in _OWN_UNIT else of.metric.unit_after
    short = (
        f"{load(of.best, short=True)}, "
        f"{verdict}{of.metric.label}{' p50' if isinstance(of.metric, Figure) else ''}"
        f"{doubt}: {of.best.target} {first}, {of.next_best.target} "
        f"{second}{unit}{_evidence(test, short=True)}."
    )
    if (
        test.p_value is not None
        and not test.real
        and not period
        and (seen := _could_see(test, of.best))
    ):
        short += f"\n{seen.removeprefix('; ').capitalize()}."
    return Statement(_full_lead(of, period), short, detail=of.metric.name != "session_s")


def _full_lead(of: Lead, period: str) -> str:
    test = of.found
    p50 = "p50 " if isinstance(of.metric, Figure) else ""
    best, next_best = (
        number(value) if value is not None else "beyond what was answered" for value in of.values
    )
    where, evident = level(of.best).capitalize(), _evidence(test, of_period=bool(period))
    if test.real and period:
        return (
            f"{where}, {of.best.target} was ahead on {of.metric.label} in {period}: "
            f"{p50}{best}{of.metric.unit_after}, {of.next_best.target} {next_best}{evident}."
        )
    if test.real:
        return (
            f"{where}, {of.best.target} is first on {of.metric.label}: "
            f"{p50}{best}{of.metric.unit_after}, {of.next_best.target} {next_best}{evident}."
        )
    if test.p_value is None:
        return (
            f"{where}, {of.metric.label} {p50}is {best}{of.metric.unit_after} for {of.best.target} "
            f"and {next_best} for {of.next_best.target} (not tested: too few requests or rounds)."
        )
    return (
        f"{where}, no clear difference in "
        f"{f'{of.metric.label} {p50}'.rstrip()}{f' in {period}' if period else ''}: "
        f"{of.best.target} {best}{of.metric.unit_after}, {of.next_best.target} {next_best}{evident}"
        f"{'' if period else _could_see(test, of.best)}."
    )


def _could_see(test: SampleComparison, of: Row) -> str:
    if test.detectable is None or test.detectable <= 1:
        return ""
    seen = f"; this run could have seen {change(test.detectable - 1).removeprefix('+')}"
    if test.detectable <= WORTH_SEEING:
        return seen
    rounds = test.rounds_for(WORTH_SEEING)
    in_rounds = f" in {counted_as(rounds, 'round')}" if of.ttft_ms.rounds else ""
    return (
        f"{seen}, 10% takes about -n {math.ceil(of.requests * rounds / test.rounds):,}{in_rounds}"
    )


def _evidence(test: SampleComparison, *, short: bool = False, of_period: bool = False) -> str:
    return evidence(
        "" if test.ratio is None else f"{ratio(test.ratio)}{'×' if short else ' times as fast'}",
        test.ci95 and (ratio(test.ci95[0]), ratio(test.ci95[1])),
        None if of_period else test.p_value,
        short=short,
    )


def _goodput(rows: Sequence[Row]) -> list[Statement]:
    judged = sorted(
        ((c.goodput, c.target) for c in rows if c.goodput and c.goodput.sent),
        key=lambda pair: -pair[0].fraction,
    )
    if not judged or not judged[0][0].limits:
        return []
    met = limits(judged[0][0].limits)
    shares = ", ".join(
        f"{target} {percent(goodput.fraction)}{_between(goodput.ci95)}"
        for goodput, target in judged
    )
    short = [
        f"{target} {percent(goodput.fraction)}{_between(goodput.ci95, short=True)}"
        for goodput, target in judged
    ]
    return [
        Statement(
            f"{level(rows[0]).capitalize()}, requests with {met}: {shares}.",
            in_a_line(f"{load(rows[0], short=True)}, {met}: ", short),
            detail=True,
        )
    ]


def _batching(rows: Sequence[Row], way: str) -> list[Statement]:
    alone = {c.target for c in rows if c.concurrency == 1}
    highest: dict[str, Row] = {}
    for c in sorted(
        (c for c in rows if c.batching_efficiency and c.target in alone), key=_concurrency
    ):
        highest[c.target] = c
    sentences = []
    for most, alike in sorted(grouped(highest.values(), _concurrency).items()):
        grown = sorted(
            ((c.batching_efficiency or 0.0, c.target) for c in alike), key=lambda pair: -pair[0]
        )
        times = ", ".join(f"{ratio(by)} times for {target}" for by, target in grown)
        short = [f"{target} {ratio(by)}×" for by, target in grown]
        if most > 1:
            sentences.append(
                Statement(
                    f"From concurrency 1 to {most}{way}, system tokens/s grow {times}.",
                    in_a_line(f"c=1 to {most}{way}, system tokens/s: ", short),
                    detail=True,
                )
            )
    return sentences


def _concurrency(c: Row) -> int:
    return c.concurrency or 0


def _errors(rows: Sequence[Row]) -> list[Statement]:
    long, short = (
        [
            f"{c.errors:,} of {c.requests:,} to {row(c, short=brief)} ({counted(c.error_kinds)})"
            for c in rows
            if c.errors
        ]
        for brief in (False, True)
    )
    if not long:
        return []
    return [
        Statement(
            f"Requests failed: {'; '.join(long)}.",
            in_a_line("Requests failed: ", short),
            detail=True,
        )
    ]


def _left_out(rows: Sequence[Row]) -> list[Statement]:
    long, short = ([row(c, short=brief) for c in rows if c.invalid] for brief in (False, True))
    before = "Not compared, because INVALID: "
    return (
        [Statement(f"{before}{listed(long)}.", in_a_line(before, short), detail=True)]
        if long
        else []
    )


def _between(interval: Interval, *, short: bool = False) -> str:
    low, high = interval
    if low is None or high is None:
        return ""
    return (
        f" ({span(percent(low), percent(high)) if short else f'{percent(low)} to {percent(high)}'})"
    )
