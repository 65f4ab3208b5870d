from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from splitsecond.benchmark.findings.capacity import capacity_of, capacity_statements
from splitsecond.benchmark.findings.causes import server_statements
from splitsecond.benchmark.findings.conclusion import conclusion
from splitsecond.benchmark.findings.crossing import crossing_statements, crossings
from splitsecond.benchmark.findings.evidence import evidence_of_run
from splitsecond.benchmark.findings.front import front_statements
from splitsecond.benchmark.findings.load_shape import load_shape_statements, load_shapes
from splitsecond.benchmark.findings.recommendation import recommend, use_statements
from splitsecond.benchmark.findings.session_statements import session_statements
from splitsecond.benchmark.findings.statements import statements
from splitsecond.benchmark.findings.sweep import workload_changes, workload_statements
from splitsecond.benchmark.foreign.formats import SUFFIXES, read_result
from splitsecond.benchmark.foreign.result import ORIGIN_NS, ForeignResult
from splitsecond.benchmark.load.sweep import swept
from splitsecond.benchmark.money.break_even import break_even_statements, break_evens
from splitsecond.benchmark.money.caching import cache_savings
from splitsecond.benchmark.money.route_gain import route_gain_statements, route_gains
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.figures import TOTALS
from splitsecond.benchmark.rows.records import (
    SCHEMA,
    AskedCondition,
    Capacity,
    ConditionFindings,
    Run,
)
from splitsecond.benchmark.rows.round_spread import round_spread, spread_statement
from splitsecond.benchmark.rows.server_view import add_server_views
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.benchmark.rows.usable_rows import lightest_rows
from splitsecond.benchmark.runs.forecasting import add_forecasts
from splitsecond.benchmark.server_view.samples import ServerRecord, ServerSeries
from splitsecond.benchmark.workload.sessions import Answers, SessionSet, distributions
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.money.cost import run_cost_usd
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.wording import Statement, level
from splitsecond.log.production.speed_and_price import (
    PricedSpeed,
    SpeedAndPrice,
    speed_and_price_statements,
    weighed,
)
from splitsecond.log.store.folder import (
    RUN,
    read_observations,
    read_readings,
    read_run,
    read_server,
)


class SessionsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of a run: their source, how many there were to draw from, and their
    distributions."""

    name: str
    format: str
    count: int
    answers: Answers
    longest_wait_s: float
    distributions: dict[str, dict[str, float]]
    note: str = ""

    @classmethod
    def of(cls, sessions: SessionSet) -> "SessionsRecord":
        return cls(
            name=sessions.name,
            format=sessions.format,
            count=len(sessions.sessions),
            answers=sessions.answers,
            longest_wait_s=sessions.longest_wait_ns / NS_PER_S,
            distributions=distributions(sessions),
            note=sessions.note,
        )


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What `run.json` keeps under `asked`: enough to repeat the run and to recompute its findings.

    `command` is empty for a run of the Python API; `settings` are its options by name. `plan`: the
    file with which `splitsecond bench` repeats it; "": there is none. `prices` are those of the day
    of the run. `sessions` tells which sessions were sent. `share`, of a capacity search: the share
    of requests that must meet the limits. `usd_per_kwh`: price of electricity. `failures`, of a
    sweep: the settings whose server did not run, and why; null: the run is no sweep.
    """

    command: list[str] = []
    settings: dict[str, Any]
    targets: list[TargetSpec] = []
    conditions: list[AskedCondition]
    prices: dict[str, Price] = {}
    slo: str = ""
    share: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    notes: list[str] = []
    sessions: SessionsRecord | None = None
    usd_per_kwh: float | None = None
    plan: str = ""
    failures: dict[str, str] | None = None


def conclude(
    run: Run,
    request: RunRequest,
    observations: Sequence[Observation],
    readings: Sequence[InstrumentReading],
    server: ServerSeries | None = None,
) -> None:
    """Compute the findings of `run`. Raises `CallerFault` for limits that cannot be read."""
    share, slo = request.share, parse_slo(request.slo) if request.slo else None
    spread = None if share else round_spread(observations)
    of_round = spread.requests_of_round if spread else None
    run.conditions = condition_rows(
        request.conditions,
        observations,
        readings,
        slo=slo,
        prices=request.prices,
        of_round=of_round,
        searched=bool(share),
    )
    if server:
        add_server_views(run.conditions, observations, readings, server, request.usd_per_kwh)
    run.cost_usd = run_cost_usd(observations, request.prices)
    run.cache_savings = cache_savings(run.conditions, observations, request.prices)
    run.capacity = capacity_of(run.conditions, observations, slo, share) if slo and share else None
    run.statements, run.short_statements, run.highlights = [], [], []
    if run.capacity:
        _conclude_search(run, run.capacity, observations)
    else:
        sentences = (
            [] if request.failures is None else front_statements(run.conditions, request.failures)
        )
        sentences += [
            Statement(saving.verdict, saving.short_verdict) for saving in run.cache_savings
        ]
        sentences += session_statements(run.conditions) + server_statements(run.conditions)
        add_answers(
            run,
            observations,
            sentences + statements(run.conditions, observations),
            slo.use if slo else "",
        )
        add_forecasts(run, observations)
    _add_notes(run.conditions, request.notes)


def _conclude_search(run: Run, capacity: Capacity, observations: Sequence[Observation]) -> None:
    confirmed = [step.condition for step in capacity.steps if step.load == capacity.holds]
    run.spread = round_spread(o for o in observations if not confirmed or o.condition in confirmed)
    run.state(capacity_statements(capacity, run.conditions))
    run.state([spread_statement(run.spread)] if run.spread else [])
    run.conclusion = conclusion(run, observations)


def _add_notes(rows: Sequence[ConditionFindings], notes: Sequence[str]) -> None:
    """Add each note to the rows that it begins with: a row, a target with its workload, or a
    target."""
    by_target: dict[str, list[str]] = {}
    for note in notes:
        place, _, text = note.partition(": ")
        by_target.setdefault(place, []).append(text)
    for row in rows:
        places = (row.condition, swept(row.target, row.workload), row.target)
        row.notes += [note for place in dict.fromkeys(places) for note in by_target.get(place, [])]


def read_series(path: Path) -> ServerSeries:
    return ServerSeries(read_server(run_folder(path), ServerRecord))


def run_folder(path: Path) -> Path:
    return path.parent if path.name == RUN else path


def recompute(path: Path, *, slo: str = "") -> tuple[Run, list[Observation]]:
    """Compute a run's findings again, under the limits `slo` or those of the run.

    `path`: the folder of a run, its run.json, or the result file of another tool.
    Raises `CallerFault` if there is no run.
    """
    if is_foreign(path):
        return _of_other_tool(read_result(path), slo)
    run = read_run(path, Run)
    if run.schema != SCHEMA:
        raise CallerFault(
            f"{path}: got the schema {run.schema!r}, expected {SCHEMA!r}", kind="bad_run"
        )
    path = run_folder(path)
    try:
        request = msgspec.convert(run.asked, RunRequest)
    except msgspec.ValidationError as error:
        raise CallerFault(
            f"{path}: what was asked cannot be read: {error}", kind="bad_run"
        ) from None
    if slo:
        request = replace(request, slo=slo)
    observations = read_observations(path)
    conclude(run, request, observations, read_readings(path), read_series(path))
    return run, observations


def is_foreign(path: Path) -> bool:
    return path.suffix in SUFFIXES and path.name != RUN and path.is_file()


def _of_other_tool(result: ForeignResult, slo: str) -> tuple[Run, list[Observation]]:
    observations = result.observations()
    request = RunRequest(
        settings={"tool": result.tool},
        conditions=result.conditions(),
        slo=slo,
        notes=[f"{result.model}: {note}" for note in result.notes],
    )
    run = Run(
        id=result.id,
        began=result.began.isoformat(timespec="milliseconds"),
        began_ns=ORIGIN_NS,
        asked=msgspec.to_builtins(request),
        finished=True,
    )
    conclude(run, request, observations, [])
    return run, observations


def add_answers(
    run: Run, observations: Sequence[Observation], earlier: Sequence[Statement], use: str = ""
) -> None:
    """Put the answers about uses, money, length and load into `run`, add their statements to those
    `earlier` before, and conclude.

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
    of_tool = bool(run.asked.get("settings", {}).get("tool"))
    apart = (
        [replace(spread_statement(run.spread, of_tool=of_tool), detail=True)] if run.spread else []
    )
    claims = run.spread is None or run.spread.claims
    run.state(
        [
            *([] if claims else apart),
            *use_statements(
                run.uses, use, "" if claims or run.spread is None else run.spread.period()
            ),
            *earlier,
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
