"""Whether answers were valid, beside the speed: a speed that buys wrong answers is INVALID."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.slo import share_of
from splitsecond.benchmark.rows.usable_rows import load_order
from splitsecond.core.grouping import grouped
from splitsecond.core.observation import Observation
from splitsecond.core.wording import level, percent


def checked(ok: Sequence[Observation], of_round: int | None) -> dict[str, Any]:
    """Return the fields of a row about the answers that were checked."""
    known = [o for o in ok if o.valid is not None]
    if not known:
        return {}
    within = [(o.round, bool(o.valid)) for o in known]
    return {
        "checked": len(known),
        "valid_share": sum(each for _, each in within) / len(known),
        "valid_share_ci95": share_of(known, within, of_round),
    }


def with_fallen(rows: Sequence[ConditionFindings]) -> list[ConditionFindings]:
    """Return the rows, INVALID where the share of valid answers is surely below that of the same
    target at its lightest load: where their intervals do not touch."""
    lightest = {
        key: min(own, key=load_order)
        for key, own in grouped((row for row in rows if row.checked), _key).items()
    }
    return [_judged(row, lightest.get(_key(row))) for row in rows]


def _key(row: ConditionFindings) -> tuple[str, bool, str]:
    return row.target, row.cache_reuse, row.workload


def _judged(row: ConditionFindings, first: ConditionFindings | None) -> ConditionFindings:
    if first is None or row.valid_share is None or first.valid_share is None:
        return row
    high, low = row.valid_share_ci95[1], first.valid_share_ci95[0]
    if high is None or low is None or high >= low:
        return row
    reason = (
        f"the answers are worse under this load: {percent(row.valid_share)} are valid, "
        f"{percent(first.valid_share)} {level(first)}. This speed is not comparable."
    )
    return replace(row, invalid=[*row.invalid, reason])
