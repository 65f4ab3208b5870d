"""How much load a server bears within limits: the verdict on each step of a search, and what all of them say together.

A step's requests keep to the limits or do not; `proportion` says whether their share is surely what was asked for. What
was asked of a search while it ran, and what `report` says of it later, is decided by the same function from the same
row, so the two agree.

Whose doing a miss is: where the server's failures alone decide, the client's state does not matter; else a row that is
INVALID says nothing of the server. A server that refuses what is too much (429, 503) sheds load and is well: this is a
miss like another. Any other failure, often enough to decide, means that it broke.

The knee is where more load stops to buy throughput: beyond it requests only wait for each other. It is the lightest
load of which each clearly heavier one has hardly more throughput for how much heavier it is.
"""

from collections import Counter
from collections.abc import Sequence

from splitsecond.analysis.findings import Capacity, CapacityStep, ConditionFindings
from splitsecond.analysis.proportion import bounds, decided
from splitsecond.analysis.search import Verdict, edges
from splitsecond.analysis.slo import Slo
from splitsecond.timing.observation import Observation

SHEDDING = ("http_429", "http_503", "overloaded")
"""How a server, or our own cap on what is under way, says that there is too much."""
HEAVIER = 1.25
"""From so many times the load on, more throughput should be seen, where there is more to be had."""
HARDLY = 1 / 3
"""Throughput that grows like this power of the load, or less, hardly grows: with twice the load, by a quarter."""

Row = ConditionFindings


def judge(row: Row, share: float) -> Verdict:
    """What came of a row: whether at least `share` of its requests kept to its limits (see `search.Verdict`)."""
    sent = row.goodput.sent if row.goodput else 0
    shed = sum(count for kind, count in row.error_kinds.items() if kind in SHEDDING)
    if decided(sent - row.errors + shed, sent, share) == "below":
        return "breaks"
    if decided(sent - row.errors, sent, share) == "below":
        return "fails"
    if row.invalid or row.goodput is None:
        return "invalid"
    found = decided(row.goodput.met, sent, share)
    if found == "undecided":
        return "promising" if row.goodput.met >= share * sent else "undecided"
    return "holds" if found == "above" else "fails"


def capacity_of(rows: Sequence[Row], observations: Sequence[Observation], slo: Slo, share: float) -> Capacity | None:
    """What a search says whose steps are `rows`, in the order they were tried; None where there is none."""
    if not rows:
        return None
    open_loop = rows[0].concurrency is None
    steps = [_step(row, [o for o in observations if o.condition == row.condition], slo, share) for row in rows]
    verdicts: dict[float, Verdict] = {load_of(row): judge(row, share) for row in rows}
    known = edges(verdicts)
    return Capacity(
        target=rows[0].target,
        limits=slo.limits,
        use=slo.use,
        share=share,
        open_loop=open_loop,
        steps=steps,
        holds=known.holds,
        ceiling=known.ceiling,
        why=verdicts[known.ceiling] if known.ceiling is not None else "",
        undecided=known.undecided,
        knee=_knee([row for row in rows if not row.invalid]),
    )


def _step(row: Row, observations: Sequence[Observation], slo: Slo, share: float) -> CapacityStep:
    missed: Counter[str] = Counter()
    for o in observations:
        if o.role == "measured" and o.outcome != "cancelled":
            missed.update(slo.missed_by(o, open_loop=row.concurrency is None) if o.ok else ("errors",))
    met, sent = (row.goodput.met, row.goodput.sent) if row.goodput else (0, 0)
    return CapacityStep(
        condition=row.condition,
        load=load_of(row),
        verdict=judge(row, share),
        met=met,
        sent=sent,
        share_ci98=bounds(met, sent),
        missed=dict(missed.most_common()),
    )


def load_of(row: Row) -> float:
    """How hard it was pressed: its concurrency, or requests per second."""
    return row.concurrency or row.rate or 0.0


def _knee(rows: Sequence[Row]) -> float | None:
    speeds = {load_of(row): row.output_tokens_per_s for row in rows if row.output_tokens_per_s}
    for load, speed in sorted(speeds.items()):
        heavier = [(other / load, more / speed) for other, more in speeds.items() if other >= HEAVIER * load]
        if heavier and all(growth < times**HARDLY for times, growth in heavier):
            return load
    return None
