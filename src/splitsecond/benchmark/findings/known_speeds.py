import math
from collections.abc import Mapping, Sequence

from splitsecond.benchmark.rows.figures import FIGURES
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.rows.usable_rows import rows_by_target, rows_by_workload
from splitsecond.core.catalog.model_names import identify
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.wording import level
from splitsecond.log.production.against import FIGURES as COMPARED
from splitsecond.log.production.against import KnownFigure, KnownSpeed
from splitsecond.log.production.speed import ProductionSpeed

DAY = len("2025-06-01")


def known_speeds(run: Run, name: str, speeds: Sequence[ProductionSpeed]) -> list[KnownSpeed]:
    """Return the row of the run for each target of the log that it measured: of several, the one
    nearest in the length of its prompts, then in load.

    A target of another name is the same if host, region and model are, and the run has only one
    such.
    """
    measured: dict[str, list[ConditionFindings]] = {}
    for of_workload in rows_by_workload(run.conditions):
        for rows in rows_by_target(of_workload):
            measured.setdefault(rows[0].target, []).extend(rows)
    matches = []
    for speed in speeds:
        rows = measured.get(_same(speed.name, measured), [])
        if rows:
            nearest = min(rows, key=lambda row: _distance(speed, row))
            matches.append(_known(speed.name, f"{name} of {run.began[:DAY]}", nearest))
    return matches


def _same(target: str, measured: Mapping[str, object]) -> str:
    if target in measured:
        return target
    own = _place(target)
    alike = [name for name in measured if _place(name) == own]
    return alike[0] if len(alike) == 1 else ""


def _place(target: str) -> tuple[str, str, str]:
    identity = identify(target)
    return identity.host, identity.region, identity.model


def _distance(speed: ProductionSpeed, row: ConditionFindings) -> tuple[float, float]:
    """Return how far a row is from production in prompts, to a tenth, and in load; at least one
    request at a time is a load."""
    load = max(speed.in_flight or 0.0, 1.0)
    return (
        round(abs(math.log((speed.input_tokens or 1) / (row.input_tokens or 1))), 1),
        abs(math.log((_in_flight(row) or load) / load)),
    )


def _in_flight(row: ConditionFindings) -> float | None:
    if row.concurrency is not None:
        return float(row.concurrency)
    if row.rate is None or row.e2e_ms.mean is None:
        return None
    return row.rate * row.e2e_ms.mean * NS_PER_MS / NS_PER_S


def _known(target: str, source: str, row: ConditionFindings) -> KnownSpeed:
    figures = {name: KnownFigure.of(FIGURES[name].summary(row)) for name in COMPARED}
    return KnownSpeed(
        target=target,
        source=source,
        load=level(row),
        figures={name: figure for name, figure in figures.items() if figure is not None},
        in_flight=_in_flight(row),
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        token_source=row.token_source,
        few_rounds=not row.ttft_ms.rounds,
    )
