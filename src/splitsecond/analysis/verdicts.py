"""Whether targets are fast enough for a use that was named: up to which load its limit on TTFT is kept at p95.

A request that failed misses the limit, so a row of which more than one in twenty failed does not keep it, whatever
the p95 of the others is.
"""

from collections import defaultdict
from collections.abc import Sequence

from splitsecond.analysis.figures import ttft_figure
from splitsecond.analysis.findings import ConditionFindings, Spread
from splitsecond.analysis.slo import GOOD
from splitsecond.analysis.spread import PERCENTILES
from splitsecond.analysis.wording import level, listed, load, number, percent

MISSES = 1 - PERCENTILES["p95"]

Row = ConditionFindings


def verdicts(rows: Sequence[Row]) -> list[str]:
    """A sentence for each target that keeps to the use somewhere, and one for all that nowhere do. Without a use none.

    A target's levels are gone through from the lightest on; beyond the first that misses, none is looked at.
    """
    judged = [c for c in rows if c.goodput and c.goodput.use and c.requests]
    by_target: defaultdict[tuple[str, bool, bool], list[Row]] = defaultdict(list)
    for c in sorted(judged, key=lambda c: c.concurrency or c.rate or 0):
        by_target[c.target, c.concurrency is None, c.cache_reuse].append(c)
    kept = [sentence for levels in by_target.values() for sentence in _keeps(levels)]
    missed = [levels[0] for levels in by_target.values() if not _kept(levels[0], _limit(levels[0]))]
    return kept + _missed(missed)


def _keeps(levels: Sequence[Row]) -> list[str]:
    """How far one target keeps to the use; nothing where it never does."""
    limit = _limit(levels[0])
    reached = _reached(levels, limit)
    if not reached:
        return []
    most, use = levels[reached - 1], _use(levels[0])
    said = f"{most.target} keeps to the {number(limit)} ms of {use} at p95 {_up_to(levels, reached)} ({_tail(most)})"
    if good := GOOD.get(use):
        well = _reached(levels, good)
        where = "nowhere" if not well else "throughout" if well == reached else _up_to(levels, well)
        said += f", good (below {number(good)} ms) {where}"
    if reached < len(levels):
        beyond = levels[reached]
        said += f", not {level(beyond)} ({_tail(beyond)})"
    return [said + "."]


def _missed(lightest: Sequence[Row]) -> list[str]:
    if not lightest:
        return []
    limit, use = number(_limit(lightest[0])), _use(lightest[0])
    tails = listed([f"{c.target} ({_tail(c)} {level(c)})" for c in lightest])
    return [f"Not within the {limit} ms of {use} at p95: {tails}."]


def _reached(levels: Sequence[Row], limit: float) -> int:
    """How many levels from the lightest on keep to `limit`."""
    return next((i for i, c in enumerate(levels) if not _kept(c, limit)), len(levels))


def _kept(c: Row, limit: float) -> bool:
    p95 = _ttft(c).p95
    return p95 is not None and p95 <= limit and c.errors <= MISSES * c.requests


def _tail(c: Row) -> str:
    """What was held against the limit: the p95, or where too many failed, their share."""
    p95 = _ttft(c).p95
    if c.errors > MISSES * c.requests:
        return f"{percent(c.errors / c.requests)} failed"
    few = f" of only {c.requests - c.errors} requests" if "p95" in _ttft(c).needs else ""
    return "no first token" if p95 is None else f"p95 {number(p95)} ms{few}"


def _up_to(levels: Sequence[Row], reached: int) -> str:
    most = levels[reached - 1]
    return f"up to {load(most)}" if levels[1:] else level(most)


def _ttft(c: Row) -> Spread:
    spread: Spread = getattr(c, ttft_figure(open_loop=c.concurrency is None).name)
    return spread


def _limit(c: Row) -> float:
    return c.goodput.limits["ttft"] if c.goodput else 0.0


def _use(c: Row) -> str:
    return c.goodput.use if c.goodput else ""
