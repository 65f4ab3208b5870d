"""An invented capacity search of a server that slows down under load."""

from collections.abc import Sequence
from typing import Any

import msgspec
from tests.analysis.made import closed_loop, failure

from splitsecond.benchmark.findings.capacity import capacity_of, capacity_statements
from splitsecond.benchmark.findings.conclusion import conclusion
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import AskedCondition, Run
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.core.catalog.price import Price
from splitsecond.core.observation import Observation
from splitsecond.core.wording import full

TARGET = "127.0.0.1:8000/mine"
SLO = parse_slo("ttft=300ms,tpot=20ms")
STEPS: dict[int, dict[str, Any]] = {
    1: {"ttft_ms": 50, "gap_ms": 10, "rounds": 20},
    2: {"ttft_ms": 70, "gap_ms": 11, "rounds": 10},
    4: {"ttft_ms": 120, "gap_ms": 13, "rounds": 24},
    8: {"ttft_ms": 340, "gap_ms": 15, "rounds": 6},
    6: {"ttft_ms": 180, "gap_ms": 14, "rounds": 40},
}
"""By concurrency, in the order of the search."""


def searched_run(*, spoilt: bool = False) -> tuple[Run, Sequence[Observation]]:
    """Return a search that found 6. With `spoilt`, some requests at 8 failed and the client was
    late at 6."""
    asked = [
        AskedCondition(condition=f"c{c}", target=TARGET, concurrency=c, output_tokens=11)
        for c in STEPS
    ]
    observations: list[Observation] = []
    for concurrency, made in STEPS.items():
        observed = closed_loop(concurrency, **made)
        if spoilt and concurrency == 8:
            observed[::4] = [failure(at + 1000, kind="refused") for at in range(len(observed[::4]))]
        observations += [
            msgspec.structs.replace(
                o, condition=f"c{concurrency}", target=TARGET, round=1 + 5 * at // len(observed)
            )
            for at, o in enumerate(observed)
        ]
    conditions = condition_rows(
        asked, observations, [], slo=SLO, prices={TARGET: Price(per_hour_usd=2)}
    )
    if spoilt:
        conditions[-1].invalid.append("the client was too late.")
    found = capacity_of(conditions, observations, SLO, 0.95)
    assert found is not None
    stated = capacity_statements(found, conditions)
    run = Run(
        id="20261121-140302-7f3",
        began="2026-11-21T14:03:02Z",
        began_ns=0,
        version="0.1.0",
        asked={"command": f"splitsecond capacity {TARGET}"},
        finished=True,
        conditions=conditions,
        capacity=found,
        statements=full(stated),
        short_statements=[each.short or each.long for each in stated],
    )
    run.conclusion = conclusion(run, observations)
    return run, observations
