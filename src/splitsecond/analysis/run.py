"""Everything a run observed to its rows of findings."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from splitsecond.analysis.asked import AskedCondition
from splitsecond.analysis.condition import condition_findings
from splitsecond.analysis.cost import Prices
from splitsecond.analysis.findings import ConditionFindings
from splitsecond.analysis.slo import Slo
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation


def summarise(
    asked: Sequence[AskedCondition],
    observations: Sequence[Observation],
    readings: Sequence[InstrumentReading],
    *,
    slo: Slo | None = None,
    prices: Prices | None = None,
) -> list[ConditionFindings]:
    """A row for each condition asked for, in that order, whether or not anything came of it.

    An observation or reading belongs to the condition that it names; those that name another are ignored. `prices` by
    target: what they name gets its cost.
    """
    observed: defaultdict[str, list[Observation]] = defaultdict(list)
    for o in observations:
        observed[o.condition].append(o)
    read: defaultdict[str, list[InstrumentReading]] = defaultdict(list)
    for reading in readings:
        read[reading.condition].append(reading)
    rows = [condition_findings(a, observed[a.condition], read[a.condition], slo, prices) for a in asked]
    return with_batching_efficiency(rows)


def with_batching_efficiency(rows: Sequence[ConditionFindings]) -> list[ConditionFindings]:
    """The same rows with each target's system throughput over its own at concurrency 1, where both are known."""
    alone = {(row.target, row.cache_reuse): row.output_tokens_per_s for row in rows if row.concurrency == 1}
    return [
        msgspec.structs.replace(row, batching_efficiency=row.output_tokens_per_s / one)
        if row.concurrency is not None
        and row.output_tokens_per_s is not None
        and (one := alone.get((row.target, row.cache_reuse)))
        else row
        for row in rows
    ]
