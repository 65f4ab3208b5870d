"""Where two targets cross: up to how many output tokens one is sooner, and from where on the other.

A response of n tokens takes TTFT + n ÷ TPS. Two targets take equally long at n = (TTFT₂ − TTFT₁) ÷
(1/TPS₁ − 1/TPS₂). The medians of each target are used, and the interval is a bootstrap of the
requests. Over all targets of a load, the soonest at each length form the lower envelope of these
lines; only neighbours on it are compared.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from splitsecond.benchmark.rows.figures import FIGURES, successful
from splitsecond.benchmark.rows.records import ConditionFindings, Crossing
from splitsecond.benchmark.rows.usable_rows import lightest_rows
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import Observation
from splitsecond.core.wording import Statement, level
from splitsecond.log.statistics.resampling import interval, median_draws, resamples
from splitsecond.log.statistics.summary import Floats

SURE = 0.95
LONGEST = 100_000
"""Crossings beyond this many tokens are of no use."""


class _Line(Struct):
    row: ConditionFindings
    ttft: float
    tpot: float
    ttft_draws: Floats
    tpot_draws: Floats


def crossings(
    rows: Sequence[ConditionFindings], observations: Sequence[Observation]
) -> list[Crossing]:
    usable = {row.condition: row for row in lightest_rows(rows)}
    timed = [o for o in successful(observations) if o.ttft_ns is not None and o.tpot_ns is not None]
    answered = grouped((o for o in timed if o.condition in usable), lambda o: o.condition)
    random = np.random.default_rng(0)
    lines = [_line(usable[name], requests, random) for name, requests in answered.items()]
    alike = grouped(lines, lambda line: line.row.token_source)
    return [crossing for lines in alike.values() for crossing in _envelope(lines)]


def _envelope(lines: Sequence[_Line]) -> list[Crossing]:
    envelope = []
    at = min(lines, key=lambda line: (line.ttft, line.tpot), default=None)
    while at is not None:
        later = [
            (n, line)
            for line in lines
            if (n := _meet(at.ttft, at.tpot, line.ttft, line.tpot)) is not None
        ]
        if not later:
            break
        tokens, following = min(later, key=lambda pair: (pair[0], pair[1].tpot))
        if 1 <= tokens <= LONGEST:
            envelope.append(_crossing(at, following, tokens))
        at = following
    return envelope


def _line(
    row: ConditionFindings, answered: Sequence[Observation], random: np.random.Generator
) -> _Line:
    ttft, tpot = (
        FIGURES["ttft_ms"].sample(answered).values,
        FIGURES["tpot_ms"].sample(answered).values,
    )
    drawn = resamples([o.round for o in answered], random)
    return _Line(
        row=row,
        ttft=float(np.median(ttft)),
        tpot=float(np.median(tpot)),
        ttft_draws=median_draws(ttft, drawn),
        tpot_draws=median_draws(tpot, drawn),
    )


def _meet(ttft: float, tpot: float, later_ttft: float, quicker_tpot: float) -> float | None:
    return (
        (later_ttft - ttft) / (tpot - quicker_tpot)
        if quicker_tpot < tpot and later_ttft >= ttft
        else None
    )


def _crossing(first: _Line, then: _Line, tokens: float) -> Crossing:
    count = min(len(first.ttft_draws), len(then.ttft_draws))
    later = then.ttft_draws[:count] - first.ttft_draws[:count]
    gained = first.tpot_draws[:count] - then.tpot_draws[:count]
    crosses = (later > 0) & (gained > 0)
    sure = bool(count) and float(crosses.mean()) >= SURE
    return Crossing(
        first=first.row.target,
        then=then.row.target,
        load=level(first.row),
        rows=[first.row.condition, then.row.condition],
        tokens=tokens,
        ci95=interval(later[crosses] / gained[crosses]) if sure else None,
    )


def crossing_statements(all_crossings: Sequence[Crossing]) -> list[Statement]:
    return [
        Statement(
            f"{each.load.capitalize()}, a response of up to {each.tokens:,.0f} output tokens ends "
            f"sooner at {each.first}, a longer one at {each.then} (95% interval {low:,.0f} to "
            f"{high:,.0f} tokens).",
            f"Up to {each.tokens:,.0f} output tokens (95% {low:,.0f}–{high:,.0f}) {each.first} is "
            f"sooner, beyond {each.then}.",
        )
        for each in all_crossings
        if each.ci95 is not None
        for low, high in [each.ci95]
    ]
