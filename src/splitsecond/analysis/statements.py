"""Findings as plain sentences: who is first on what under which load, and whether the difference is real.

First and second of each load are compared by their medians, with the interval and the test of `contrast`. A row that
is INVALID takes no part, and the built-in engine is ranked only against itself: that a toy model on this machine is
faster or slower than a provider says nothing of either. The random numbers come from a fixed seed, so the same
observations give the same sentences.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from splitsecond.analysis.contrast import Contrast, contrast
from splitsecond.analysis.cost import cost_statements
from splitsecond.analysis.figures import FIGURES, Figure, answered, ttft_figure
from splitsecond.analysis.findings import ConditionFindings
from splitsecond.analysis.verdicts import verdicts
from splitsecond.analysis.wording import ENGINE, counted, evidence, level, limits, listed, number, percent, ratio, row
from splitsecond.timing.observation import Observation

SEED = 0
MEDIAN = {"p50": 0.5}

Row = ConditionFindings
Observed = Mapping[str, Sequence[Observation]]


def statements(conditions: Sequence[ConditionFindings], observations: Sequence[Observation]) -> list[str]:
    """One sentence for each finding: the verdict on a use, the comparisons, and last what spoils them."""
    observed: defaultdict[str, list[Observation]] = defaultdict(list)
    for o in answered(observations):
        observed[o.condition].append(o)
    random = np.random.default_rng(SEED)
    valid = [c for c in conditions if not c.invalid]
    said = verdicts(valid)
    for rows in _comparable(valid):
        for figure in (ttft_figure(open_loop=rows[0].concurrency is None), FIGURES["tps"]):
            said += _first(rows, figure, observed, random)
        said += _throughput(rows)
    for rows in _by_load(valid):
        said += _goodput(rows)
    said += cost_statements(conditions)
    for reuse in (False, True):
        said += _batching([c for c in valid if c.cache_reuse == reuse], " with cache reuse" if reuse else "")
    return said + _errors(conditions) + _left_out(conditions)


def _by_load(rows: Sequence[Row]) -> list[list[Row]]:
    loads: defaultdict[tuple[int | None, float | None, bool], list[Row]] = defaultdict(list)
    for c in rows:
        loads[c.concurrency, c.rate, c.cache_reuse].append(c)
    return list(loads.values())


def _comparable(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each load, the built-in engine's apart."""
    return [
        group
        for under_one_load in _by_load(rows)
        for engines in (False, True)
        if (group := [c for c in under_one_load if c.target.startswith(ENGINE) == engines])
    ]


def _first(rows: Sequence[Row], figure: Figure, observed: Observed, random: np.random.Generator) -> list[str]:
    ranked = sorted(
        ((c, values) for c in rows if len(values := figure.values(observed.get(c.condition, ())))),
        key=lambda pair: float(np.median(pair[1])),
        reverse=figure.fast_end,
    )
    if len(ranked) < 2:
        return []
    (best, best_values), (next_best, next_values) = ranked[:2]
    # Ratios read "so many times as fast": more tokens, or less time.
    slow, fast = (next_values, best_values) if figure.fast_end else (best_values, next_values)
    found = contrast(slow, fast, MEDIAN, random)["p50"]
    best_median, next_median = (found.second, found.first) if figure.fast_end else (found.first, found.second)
    where = level(best).capitalize()
    if found.real:
        return [
            f"{where}, {best.target} is first on {figure.label}: p50 {number(best_median)} {figure.unit}, "
            f"{next_best.target} {number(next_median)}{_evidence(found)}."
        ]
    return [
        f"{where}, {best.target} and {next_best.target} cannot be told apart on {figure.label}: p50 "
        f"{number(best_median)} and {number(next_median)} {figure.unit}{_evidence(found)}."
    ]


def _evidence(found: Contrast) -> str:
    return evidence(
        "" if found.ratio is None else f"{ratio(found.ratio)} times as fast",
        found.ci95 and (ratio(found.ci95[0]), ratio(found.ci95[1])),
        found.p_value,
    )


def _throughput(rows: Sequence[Row]) -> list[str]:
    ranked = sorted(
        ((c.output_tokens_per_s, c.target) for c in rows if c.output_tokens_per_s), key=lambda pair: -pair[0]
    )
    if len(ranked) < 2 or rows[0].concurrency is None:  # in an open loop the schedule decides the throughput
        return []
    (most, first), (next_most, second) = ranked[:2]
    where = level(rows[0]).capitalize()
    return [
        f"{where}, {first} gave the most tokens in all: {number(most)} tokens/s, {second} {number(next_most)} "
        "(one figure each, no test)."
    ]


def _goodput(rows: Sequence[Row]) -> list[str]:
    judged = sorted(
        ((c.goodput, c.target) for c in rows if c.goodput and c.goodput.sent), key=lambda pair: -pair[0].fraction
    )
    if not judged:
        return []
    shares = ", ".join(f"{target} {percent(goodput.fraction)}" for goodput, target in judged)
    return [f"{level(rows[0]).capitalize()}, requests with {limits(judged[0][0].limits)}: {shares}."]


def _batching(rows: Sequence[Row], way: str) -> list[str]:
    alone = {c.target for c in rows if c.concurrency == 1}
    highest: dict[str, Row] = {}
    for c in sorted((c for c in rows if c.batching_efficiency and c.target in alone), key=_concurrency):
        highest[c.target] = c
    loads: defaultdict[int, list[Row]] = defaultdict(list)
    for c in highest.values():
        loads[_concurrency(c)].append(c)
    return [
        f"From concurrency 1 to {most}{way}, system tokens/s grow "
        + ", ".join(f"{ratio(c.batching_efficiency or 0)} times for {c.target}" for c in sorted(grown, key=_batched))
        + "."
        for most, grown in sorted(loads.items())
        if most > 1
    ]


def _concurrency(c: Row) -> int:
    return c.concurrency or 0


def _batched(c: Row) -> float:
    return -(c.batching_efficiency or 0)


def _errors(rows: Sequence[Row]) -> list[str]:
    failed = [f"{c.errors} of {c.requests} to {row(c)} ({counted(c.error_kinds)})" for c in rows if c.errors]
    return [f"Requests failed: {'; '.join(failed)}."] if failed else []


def _left_out(rows: Sequence[Row]) -> list[str]:
    spoilt = [row(c) for c in rows if c.invalid]
    return [f"Left out of these comparisons, as INVALID: {listed(spoilt)}."] if spoilt else []
