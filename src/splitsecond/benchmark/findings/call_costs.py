"""What a number of calls a day would cost at each target of a run, with the run's own lengths of
prompts and responses.

A target that is paid by the token costs its calls. A machine that is paid by the hour costs all
hours of as many machines as the calls need, if they come evenly and each carries what it did in the
row.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.usable_rows import rows_by_target
from splitsecond.core.wording import load

CARD_CALLS = (1_000, 10_000)
"""Calls a day of the card in every report."""
HOURS_A_DAY, S_A_DAY, DAYS_A_MONTH = 24, 86_400, 30


class CallCost(Struct, frozen=True, kw_only=True):
    """Cost of calls at one target, in US dollars. `machines`: those paid by the hour; None: it is
    paid by the token.

    `usd_per_call` and `usd_per_day` are None if no price is known, or nothing was answered. `load`:
    where it was measured: at the load at which a call costs least.
    """

    target: str
    load: str
    usd_per_call: float | None
    usd_per_day: float | None
    machines: int | None = None

    @property
    def usd_per_30_days(self) -> float | None:
        return None if self.usd_per_day is None else DAYS_A_MONTH * self.usd_per_day


def call_costs(rows: Sequence[ConditionFindings], calls_per_day: float) -> list[CallCost]:
    """Return the cost at each target, the cheapest first, those without a known price last."""
    costs = [
        min((_cost(row, calls_per_day) for row in loads), key=_by_cost)
        for loads in rows_by_target(rows)
    ]
    return sorted(costs, key=_by_cost)


def cost_card(rows: Sequence[ConditionFindings]) -> dict[str, list[CallCost]]:
    """Return the cost of `CARD_CALLS` at each target whose price is known, the cheapest first."""
    few, *more = (call_costs(rows, calls) for calls in CARD_CALLS)
    card = {cost.target: [cost] for cost in few if cost.usd_per_day is not None}
    for costs in more:
        for cost in costs:
            if cost.target in card:
                card[cost.target].append(cost)
    return card


def _cost(row: ConditionFindings, calls_per_day: float) -> CallCost:
    by_hour = row.price.per_hour_usd if row.price else None
    if by_hour is None:
        a_day = None if row.usd_per_request is None else row.usd_per_request * calls_per_day
        return CallCost(
            target=row.target, load=load(row), usd_per_call=row.usd_per_request, usd_per_day=a_day
        )
    if not row.requests_per_s:
        return CallCost(target=row.target, load=load(row), usd_per_call=None, usd_per_day=None)
    machines = math.ceil(calls_per_day / (row.requests_per_s * S_A_DAY))
    a_day = machines * HOURS_A_DAY * by_hour
    return CallCost(
        target=row.target,
        load=load(row),
        usd_per_call=a_day / calls_per_day,
        usd_per_day=a_day,
        machines=machines,
    )


def _by_cost(cost: CallCost) -> float:
    return math.inf if cost.usd_per_day is None else cost.usd_per_day
