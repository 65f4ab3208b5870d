from collections.abc import Sequence

from splitsecond.benchmark.rows.figures import ttft_figure
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.usable_rows import load_order, row
from splitsecond.core.grouping import grouped
from splitsecond.core.timing.uses import USES
from splitsecond.core.wording import (
    Statement,
    level,
    listed,
    load,
    number,
    percent,
    span,
)
from splitsecond.log.statistics.summary import PERCENTILES

MISSES = 1 - PERCENTILES["p95"]


Row = ConditionFindings


def verdicts(rows: Sequence[Row]) -> list[Statement]:
    """Return a statement for each target that meets the limit of the use, and for all others; none
    without a named use.

    The loads of a target are checked from the lightest on, up to the first that is not certain to
    meet it.
    """
    judged = [
        c for c in rows if c.goodput and c.goodput.use and "ttft" in c.goodput.limits and c.requests
    ]
    by_target = grouped(
        sorted(judged, key=load_order),
        lambda c: (c.target, c.concurrency is None, c.cache_reuse, c.workload),
    )
    met = [statement for levels in by_target.values() for statement in _meets(levels)]
    lightest = [levels[0] for levels in by_target.values()]
    missed = _not_met("These miss", "misses", [c for c in lightest if _misses(c)])
    undecided = _not_met(
        "Too few requests or rounds to decide on",
        "is undecided on",
        [c for c in lightest if _open(c)],
    )
    return met + missed + undecided


def _meets(levels: Sequence[Row]) -> list[Statement]:
    reached = next((i for i, c in enumerate(levels) if not _met(c)), len(levels))
    if not reached:
        return []
    long, short = (_met_up_to(levels, reached, short=brief) for brief in (False, True))
    return [Statement(" ".join(long), "\n".join(short), detail=len(levels) == 1)]


def _met_up_to(levels: Sequence[Row], reached: int, *, short: bool = False) -> list[str]:
    most, use = levels[reached - 1], _use(levels[0])
    beyond = "".join(
        f"{'not' if _misses(c) else 'undecided'} {level(c, short=short)} ({_share(c, short=short)})"
        for c in levels[reached : reached + 1]
    )
    meets, where = "meets" if short else "meets the", _up_to(levels, reached, short=short)
    met = f"{most.target} {meets} {_limit(most, short=short)} {where} ({_share(most, short=short)})"
    if short:
        sentences = [f"{met}.", *([f"{beyond.capitalize()}."] if beyond else [])]
    else:
        sentences = [f"{met}{', ' if beyond else ''}{beyond}."]
    if good_ms := USES[use].good_ms:
        well = next(
            (i for i, c in enumerate(levels) if not _surely_within(c, good_ms)), len(levels)
        )
        where = "at all of these loads" if well >= reached else _up_to(levels, well, short=short)
        sentences.append(
            f"It is certain to be good (below {number(good_ms)} ms) "
            f"{where if well else 'at no load'}."
        )
    return sentences


def _not_met(verdict: str, short_verdict: str, lightest: Sequence[Row]) -> list[Statement]:
    if not lightest:
        return []
    long = [f"{row(c)} ({_share(c)})" for c in lightest]
    short = [
        f"{row(c, short=True)} {short_verdict} {_limit(c, short=True)}: {_share(c, short=True)}."
        for c in lightest
    ]
    return [Statement(f"{verdict} the {_limit(lightest[0])}: {listed(long)}.", "\n".join(short))]


def _met(c: Row) -> bool:
    low = c.goodput.ci95[0] if c.goodput else None
    return low is not None and low >= 1 - MISSES


def _misses(c: Row) -> bool:
    high = c.goodput.ci95[1] if c.goodput else None
    return high is not None and high < 1 - MISSES


def _open(c: Row) -> bool:
    return not _met(c) and not _misses(c)


def _surely_within(c: Row, limit_ms: float) -> bool:
    high = ttft_figure(open_loop=c.concurrency is None).summary(c).interval("p95")[1]
    return high is not None and high <= limit_ms


def _share(c: Row, *, short: bool = False) -> str:
    if c.goodput is None:
        return ""
    low, high = c.goodput.ci95
    if short:
        interval = (
            "" if low is None or high is None else f", 95% {span(percent(low), percent(high))}"
        )
        return f"{percent(c.goodput.fraction)} of {c.goodput.sent:,}{interval}"
    interval = (
        "" if low is None or high is None else f", 95% interval {percent(low)} to {percent(high)}"
    )
    return f"{percent(c.goodput.fraction)} of {c.goodput.sent:,} requests within it{interval}"


def _up_to(levels: Sequence[Row], reached: int, *, short: bool = False) -> str:
    most = levels[reached - 1]
    return f"up to {load(most, short=short)}" if levels[1:] else level(most, short=short)


def _limit(c: Row, *, short: bool = False) -> str:
    limit = f"{number(c.goodput.limits['ttft'] if c.goodput else 0.0)} ms"
    return f"{_use(c)} (TTFT p95 ≤ {limit})" if short else f"{limit} TTFT limit of {_use(c)} at p95"


def _use(c: Row) -> str:
    return c.goodput.use if c.goodput else ""
