from collections.abc import Sequence

from msgspec.structs import replace

from splitsecond.benchmark.findings.conclusion import conclusion
from splitsecond.benchmark.findings.crossing import crossing_statements, crossings
from splitsecond.benchmark.findings.evidence import evidence_of_run
from splitsecond.benchmark.findings.load_shape import load_shape_statements, load_shapes
from splitsecond.benchmark.findings.recommendation import recommend, use_statements
from splitsecond.benchmark.findings.sweep import workload_changes, workload_statements
from splitsecond.benchmark.money.break_even import break_even_statements, break_evens
from splitsecond.benchmark.money.route_gain import route_gain_statements, route_gains
from splitsecond.benchmark.rows.figures import TOTALS
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.rows.round_spread import round_spread, spread_statement
from splitsecond.benchmark.rows.usable_rows import lightest_rows
from splitsecond.core.observation import Observation
from splitsecond.core.wording import Statement, level
from splitsecond.log.production.speed_and_price import (
    PricedSpeed,
    SpeedAndPrice,
    speed_and_price_statements,
    weighed,
)


def add_answers(
    run: Run, observations: Sequence[Observation], found: Sequence[Statement], use: str = ""
) -> None:
    """Put the answers about uses, money, length and load into `run`, add their statements to those
    `found` before, and conclude.

    If the run says nothing about other minutes, that is its first statement. `use`: that of the
    run's limits, or "".
    """
    texts = [row for row in run.conditions if not row.inputs]  # uses are about text
    run.uses = recommend(evidence_of_run(texts)) if texts or not run.conditions else []
    run.route_gains = route_gains(run.conditions, observations)
    run.crossings = crossings(run.conditions, observations)
    run.load_shapes = load_shapes(run.conditions)
    run.speed_and_price = speed_and_price(run.conditions)
    run.break_even = break_evens(run.conditions)
    run.workload_changes = workload_changes(run.conditions)
    run.spread = round_spread(observations)
    apart = [replace(spread_statement(run.spread), detail=True)] if run.spread else []
    claims = run.spread is None or run.spread.claims
    run.state(
        [
            *([] if claims else apart),
            *use_statements(
                run.uses, use, "" if claims or run.spread is None else run.spread.period()
            ),
            *found,
            *route_gain_statements(run.route_gains),
            *workload_statements(run.workload_changes),
            *crossing_statements(run.crossings),
            *load_shape_statements(run.load_shapes),
            *speed_and_price_statements(run.speed_and_price),
            *break_even_statements(run.break_even),
            *(apart if claims else []),
        ]
    )
    run.conclusion = conclusion(run, observations, use)


def speed_and_price(rows: Sequence[ConditionFindings]) -> SpeedAndPrice | None:
    points = [
        PricedSpeed(
            target=row.target,
            row=row.condition,
            load=level(row),
            tps=row.tps.p50 or 0.0,
            tps_ci95=row.tps.interval("p50"),
            usd_per_million=row.usd_per_million or 0.0,
            cost_adjusted_tps=TOTALS["cost_adjusted_tps"].value(row),
            tokens_per_usd=TOTALS["tokens_per_usd"].value(row),
        )
        for row in lightest_rows(rows)
        if row.usd_per_million and row.tps.p50
    ]
    return weighed(points)
