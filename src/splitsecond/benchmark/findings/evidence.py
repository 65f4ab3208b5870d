from collections.abc import Mapping, Sequence

from msgspec import Struct

from splitsecond.benchmark.rows.figures import FIGURES, TOTALS
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.usable_rows import load_of, rows_by_target, rows_by_workload
from splitsecond.core.catalog.price import MILLION
from splitsecond.core.timing.uses import AGENT_STEP_TOKENS, AGENT_STEPS
from splitsecond.core.wording import kind, load
from splitsecond.log.production.speed import ProductionSpeed
from splitsecond.log.statistics.summary import Interval, Summary


class Evidence(Struct, frozen=True, kw_only=True):
    """What is known of one target under one load. `row`: the condition of a run; `load`: in words;
    "" for a log. `workload`: its name, where a run has several.

    `amount`: the load's concurrency or rate, as `closed` (a concurrency) says; 0 for a log.

    `tokens_per_s`: of the system, in a log the median total TPS. `token_source`: how its tokens
    were counted, of a log how most were. `by_token`: whether its price is one of tokens, not of
    hours. `refused`: why the target cannot be used at all, such as too small a context; "" if it
    can. `unknown`: what is not known of its abilities but required; "" if nothing.
    """

    target: str
    row: str = ""
    load: str = ""
    workload: str = ""
    amount: float = 0.0
    closed: bool = True
    requests: int
    error_share: float
    figures: Mapping[str, Summary]
    tokens_per_s: float | None = None
    tokens_per_s_ci95: Interval = (None, None)
    usd_per_million: float | None = None
    tokens_per_usd: float | None = None
    by_token: bool = False
    token_source: str = ""
    refused: str = ""
    unknown: str = ""
    quality: float | None = None
    billions: float | None = None


def evidence_of_run(rows: Sequence[ConditionFindings]) -> list[list[Evidence]]:
    """Return the evidence of each target on each workload, its lightest load first."""
    return [
        [_of_row(row) for row in loads]
        for of_workload in rows_by_workload(rows)
        for loads in rows_by_target(of_workload)
    ]


def _of_row(row: ConditionFindings) -> Evidence:
    ttft = FIGURES["ttft_ms"].under(open_loop=row.concurrency is None)
    return Evidence(
        target=row.target,
        row=row.condition,
        load=load(row).removesuffix(kind(row)),
        workload=row.workload,
        amount=load_of(row),
        closed=row.concurrency is not None,
        requests=row.requests,
        error_share=row.errors / row.requests,
        figures={"ttft_ms": ttft.summary(row), "tps": row.tps, "agent_ms": row.agent_ms},
        tokens_per_s=row.output_tokens_per_s,
        tokens_per_s_ci95=row.output_tokens_per_s_ci95,
        by_token=row.price is not None and row.price.per_hour_usd is None,
        usd_per_million=row.usd_per_million,
        tokens_per_usd=TOTALS["tokens_per_usd"].value(row),
        token_source=row.token_source,
    )


def evidence_of_log(speeds: Sequence[ProductionSpeed]) -> list[list[Evidence]]:
    return [[_of_speed(speed)] for speed in speeds if speed.ttft_ms.n or speed.failed]


def _of_speed(speed: ProductionSpeed) -> Evidence:
    share, usd = speed.common_output_share, speed.common_usd_per_million
    return Evidence(
        target=speed.name,
        requests=speed.requests,
        error_share=speed.error_share,
        figures={
            "ttft_ms": speed.ttft_ms,
            "tps": speed.tps,
            "agent_ms": _agent(speed.ttft_ms, speed.tps),
        },
        tokens_per_s=speed.total_tps.p50,
        tokens_per_s_ci95=speed.total_tps.interval("p50"),
        by_token=usd is not None,
        usd_per_million=usd,
        tokens_per_usd=MILLION * share / usd if share and usd else None,
        token_source=max(
            speed.token_source, key=lambda source: speed.token_source[source], default=""
        ),
    )


def _agent(ttft: Summary, tps: Summary) -> Summary:
    """Return the median time of an agent in ms, from medians; the interval combines the ends of
    both intervals."""

    def time(first: float | None, speed: float | None) -> float | None:
        return (
            AGENT_STEPS * (first + AGENT_STEP_TOKENS * 1000 / speed)
            if first is not None and speed
            else None
        )

    (quick, slow), (low, high) = (figure.interval("p50") for figure in (ttft, tps))
    interval = time(quick, high), time(slow, low)
    return Summary(n=min(ttft.n, tps.n), p50=time(ttft.p50, tps.p50), ci95={"p50": interval})
