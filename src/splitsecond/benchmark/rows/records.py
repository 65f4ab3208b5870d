"""Findings of a run: the shapes of `run.json`, schema "splitsecond.run/1".

Other programs read this file: names and units are a contract. A figure that is undefined or unknown
is null, never 0.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, defstruct, field

from splitsecond.benchmark.rows.figures import FIGURES, TOTALS
from splitsecond.benchmark.rows.round_spread import RoundSpread
from splitsecond.benchmark.rows.row_fields import RowFields
from splitsecond.core.timing.uses import Criterion
from splitsecond.core.wording import Statement
from splitsecond.log.production.speed_and_price import SpeedAndPrice
from splitsecond.log.statistics.summary import Interval, Summary

SCHEMA = "splitsecond.run/1"


class FigureChange(Struct, frozen=True, kw_only=True):
    """Change of one percentile of one figure, or of one total (`percentile` "").

    `before` and `after` are those of all requests; null if they lie among failed requests. `change`
    is relative (0.1 is +10%), and `ci95` its interval; null: unknown. `p_value` and `ci95` are
    corrected for the number of comparisons; without a test `p_value` is null. `real`: chance does
    not explain the change. `better`: it is an improvement; null if nothing changed. `detectable`:
    the change that this comparison could have seen. `error`: standard error of log(1 + change),
    with `freedom` degrees of freedom, for intervals at other levels. `needs`: the requests a side
    that this percentile needs, 0 if there are enough.
    """

    figure: str
    percentile: str
    before: float | None
    after: float | None
    change: float | None
    ci95: tuple[float, float] | None
    p_value: float | None
    real: bool
    better: bool | None
    detectable: float | None = None
    error: float = 0.0
    freedom: int = 0
    needs: int = 0


class CacheSaving(Struct, kw_only=True):
    """Savings by a provider's prompt cache: a target's row of fresh prompts compared with its row
    of cache reuse.

    `fresh` and `reuse` name these conditions. `ttft`: p50 and p95, before with fresh prompts, after
    with cache reuse; empty if a row has no successful request. With cache reuse, `hits` of
    `requests` responses had input from the cache, the share `cached_share` of all input (None: not
    reported). `usd_per_request_*`: cost of the input of a request, filling the cache included, or
    on a machine paid by the hour, of its time. Output is left out: it costs the same both ways and
    its length is chance. `verdict` is the conclusion as a sentence, `short_verdict` on one line.
    """

    target: str
    fresh: str
    reuse: str
    ttft: list[FigureChange] = []
    requests: int = 0
    hits: int = 0
    cached_share: float | None = None
    usd_per_request_fresh: float | None = None
    usd_per_request_reuse: float | None = None
    verdict: str = ""
    short_verdict: str = ""


class CapacityStep(Struct, kw_only=True):
    """One load of a capacity search; its figures are those of the row that `condition` names.

    `load`: the concurrency, or in an open loop requests per second. `met` of `sent` requests met
    every limit, so the true share lies in `share_ci98`; each of its bounds is wrong once in a
    hundred times. `missed`: number of requests that missed each limit; "errors" are those that
    failed. `verdict`: one of `benchmark.statistics.search.Verdict`.
    """

    condition: str
    load: float
    verdict: str
    met: int
    sent: int
    share_ci98: tuple[float, float]
    missed: dict[str, int] = {}


CapacityCause = Literal["", "eviction", "computing", "memory", "slots", "throttling"]


class Capacity(Struct, kw_only=True):
    """Load that a server handles while at least `share` of its requests meet `limits`, found by a
    search (`steps`).

    `holds`: the heaviest load at which that is certain; `ceiling`: the lightest load above it at
    which it fails, with the verdict `why` ("" without a ceiling: the search was not allowed
    further). Loads in `undecided`, between the two, could be either; at `likely`, the heaviest of
    them, the share was met, but with too few requests to be certain. `cause`: what limits the
    server: its prompt cache evicts prompts of sessions that come again ("eviction"), or the work
    itself is too much ("computing"). By the server's own series, requests wait because the KV cache
    is full ("memory"), or for a free place in the batch ("slots"), or the GPUs are throttled
    ("throttling"). "": unknown. `knee`: the load at which system tokens/s saturate; null if they
    grow to the end.
    """

    target: str
    limits: dict[str, float]
    use: str = ""
    share: float
    open_loop: bool
    steps: list[CapacityStep] = []
    holds: float | None = None
    ceiling: float | None = None
    why: str = ""
    undecided: list[float] = []
    likely: float | None = None
    cause: CapacityCause = ""
    knee: float | None = None


class TargetRating(Struct, frozen=True, kw_only=True):
    """Rating of one target for one use. `keeps`: whether it meets the limit. `why`: why not, or why
    it is unsure.

    Of a run, it describes the target under `load`; `up_to` is the heaviest load up to which each
    load meets the limit or may do so, "" if none does; `rows` are the conditions that it rests on.
    All three are empty for a log. `value`: the percentile that the limit applies to, `ci95` its
    interval; None without a limit. `tps` and `agent_ms` are medians, `tokens_per_s` the system
    throughput, or in a log the median total TPS. The price, in US dollars, is that of the target's
    own mix of input and output. `quality`: the score that the user gives; `billions`: parameters of
    the model. `rank_ci95`: interval of the figure that ranks the targets.
    """

    target: str
    keeps: Literal["yes", "unsure", "no"]
    why: str = ""
    load: str = ""
    up_to: str = ""
    value: float | None = None
    ci95: Interval = (None, None)
    ttft_p95_ms: float | None = None
    tps: float | None = None
    agent_ms: float | None = None
    tokens_per_s: float | None = None
    tokens_per_usd: float | None = None
    usd_per_million: float | None = None
    quality: float | None = None
    billions: float | None = None
    requests: int
    rows: list[str] = []
    rank_ci95: Interval = (None, None)


class Recommendation(Struct, frozen=True, kw_only=True):
    """Recommendation for one use, on one `workload` where a run has several. `fastest`, `cheapest`
    and `smallest` are "" if no target qualifies; `policy` is for a route. `smallest`: the smallest
    model that meets the limit, where a quality is required.

    `fastest` is the first of those that meet `limits` at this `percentile`, by the figure `by`;
    for a batch, the one with most tokens per dollar. `good_ms`: a stricter limit, below which the
    use is served well; None: the use has no such limit. `would_change`: sentences on what would
    change the recommendation. `candidates`: all targets, the best first. `may_be_first`:
    `fastest`, and the targets that chance may have put behind it. `quality_front`: of the targets
    with a score, those that no other one beats by both `by` and score; the best by `by` first.
    """

    use: str
    workload: str = ""
    limits: dict[str, float] = {}
    percentile: str = "p95"
    good_ms: float | None = None
    by: Criterion
    fastest: str = ""
    cheapest: str = ""
    smallest: str = ""
    policy: str = ""
    would_change: list[str] = []
    candidates: list[TargetRating]
    may_be_first: list[str] = []
    quality_front: list[str] = []

    @property
    def is_clear(self) -> bool:
        """Whether one target is first, and chance does not explain it."""
        return len(self.may_be_first) == 1


class BreakEven(Struct, frozen=True, kw_only=True):
    """Break-even of a `machine` paid by the hour against an `api` paid by the token.

    `machine_tokens_per_month`: what it can do at the highest throughput of the run, day and night.
    From `tokens_per_month` on it is cheaper, which takes this `utilisation`; None: never. `rows`:
    what it rests on.
    """

    machine: str
    api: str
    rows: list[str]
    owned: bool
    usd_per_month: float
    usd_per_million: float
    machine_tokens_per_month: float
    tokens_per_month: float | None
    utilisation: float


class RouteGain(Struct, frozen=True, kw_only=True):
    """Gain of a policy over one of its targets: ratios of total TPS p50 and of the cost of a
    request. None: unknown. `ttft_*` are those of the policy, `target_ttft_*` of the target;
    `p95_known`: both p95 have an interval."""

    policy: str
    target: str
    load: str
    rows: list[str]
    speed: float
    speed_ci95: Interval
    cost: float | None
    ttft_p50_ms: float | None = None
    ttft_p95_ms: float | None = None
    target_ttft_p50_ms: float | None = None
    target_ttft_p95_ms: float | None = None
    p95_known: bool = False


class Crossing(Struct, frozen=True, kw_only=True):
    """Length at which two targets take equally long: up to `tokens` of output, `first` is sooner,
    beyond it `then`.

    `ci95` is None if it is not sure that they cross.
    """

    first: str
    then: str
    load: str
    rows: list[str]
    tokens: float
    ci95: tuple[float, float] | None


class ShareOfChange(Struct, frozen=True, kw_only=True):
    """Relative change (0.1 is +10%) with its interval; None: unknown."""

    change: float
    low: float | None
    high: float | None


class LoadStep(Struct, frozen=True, kw_only=True):
    """Changes from a `lighter` concurrency to this one; `ttft`, `tps`: of p50. `queueing`: "yes",
    "unsure" or "no". `tps_per_doubling`: the change of TPS for each doubling of the load; a fixed
    resource that is split in two would give -0.5."""

    lighter: int = 0
    concurrency: int
    ttft: ShareOfChange | None
    ttft_p95: ShareOfChange | None
    tps: ShareOfChange | None
    tps_per_doubling: float | None = None
    queueing: str


class LoadShape(Struct, frozen=True, kw_only=True):
    """How one target changes with concurrency, on one `workload` where a run has several: `steps`
    from the lightest to each other one, `between` from each to the next, where there are more than
    two. `knee` and `sweet_spot` need three loads."""

    target: str
    workload: str = ""
    rows: list[str]
    lightest: int
    steps: list[LoadStep]
    between: list[LoadStep] = []
    knee: float | None
    sweet_spot: int | None

    @property
    def name(self) -> str:
        return f"{self.target} on workload {self.workload}" if self.workload else self.target


class Forecast(Struct, frozen=True, kw_only=True):
    """What a policy would have given under one load, from `pairs` of requests to its targets
    (`rows`).

    Costs are US dollars per answered request. Percentiles count failures as slower than all others;
    None: it failed. `measured_*`: what the run measured of the policy itself; None: it did not.
    """

    policy: str
    load: str
    rows: list[str]
    pairs: int
    ttft_p50_ms: float | None
    ttft_p50_ci95: Interval
    ttft_p95_ms: float | None
    ttft_p95_ci95: Interval
    e2e_p50_ms: float | None
    failed_share: float
    usd_per_request: float | None
    measured_ttft_p50_ms: float | None = None
    measured_ttft_p95_ms: float | None = None
    measured_usd_per_request: float | None = None


class WorkloadChange(Struct, frozen=True, kw_only=True):
    """Change of a target from one workload of the run (`before`) to another: TTFT p50 in ms, and
    TPS p50 as a share."""

    target: str
    before: str
    after: str
    rows: list[str]
    ttft_ms: float | None
    ttft_ci95: Interval
    tps: float | None


if TYPE_CHECKING:

    class ConditionFindings(RowFields, kw_only=True):
        """One row: one target at one concurrency or rate on one workload.

        It has a `Summary` for each entry of `figures.FIGURES`, and a number for each of
        `figures.TOTALS`. `cache_reuse`: its prompts shared a beginning that the provider's prompt
        cache could hold; otherwise each prompt was new. `requests` counts the measured requests
        that were sent, `errors` those that failed; `error_kinds` counts them by kind, and
        `error_examples` has one message of each. `cost_estimated`: attempts in `cost_usd` whose
        token counts were not all known. `price`: the price used, with its day and source.
        `phases_ms`: mean time of each phase of a request (dns, tcp, tls, network, provider,
        streaming); they add up. `server_ms`: medians of the durations that the server reports, by
        its own names. `server`: what it told about itself meanwhile; null if it told nothing.
        `nodes`: the parts of the nodes that sent it; empty if one machine did. `invalid`: why the
        numbers of this row must not be trusted; `notes`: what a reader should know.
        """

        def __init__(self, **fields: Any) -> None: ...

        def __getattr__(self, name: str) -> Summary: ...

else:
    ConditionFindings = defstruct(
        "ConditionFindings",
        [
            *((name, Summary, field(default_factory=lambda: Summary(n=0))) for name in FIGURES),
            *(
                (name, float | None, None)
                for name in TOTALS
                if name not in RowFields.__struct_fields__
            ),
        ],
        bases=(RowFields,),
        module=__name__,
        kw_only=True,
    )


class Run(Struct, kw_only=True):
    """Content of `run.json`: settings, environment and findings.

    `began` is the wall-clock moment (RFC 3339, UTC) at which the monotonic clock showed `began_ns`.
    `asked` holds the command line and every setting, enough to repeat the run; `environment` the
    machine and the versions. `conclusion`: which target for what was asked, how sure that is, and
    what it costs, as three sentences. `statements` are the findings as sentences;
    `short_statements` has the same findings, each sentence on a line of at most 100 columns;
    `highlights` are those of the short ones that belong on one screen. `cost_usd` covers everything
    that was sent. `uses` rates the targets for each use. `finished` is false while the run is in
    progress, and stays false if it is interrupted. `spread`: how far apart its rounds are; null if
    nothing was measured.
    """

    id: str
    began: str
    began_ns: int
    schema: str = SCHEMA
    version: str = ""
    asked: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    finished: bool = False
    spread: RoundSpread | None = None
    conditions: list[ConditionFindings] = []
    cost_usd: float | None = None
    statements: list[str] = []
    short_statements: list[str] = []
    highlights: list[str] = []
    conclusion: list[str] = []
    cache_savings: list[CacheSaving] = []
    capacity: Capacity | None = None
    uses: list[Recommendation] = []
    speed_and_price: SpeedAndPrice | None = None
    break_even: list[BreakEven] = []
    route_gains: list[RouteGain] = []
    crossings: list[Crossing] = []
    load_shapes: list[LoadShape] = []
    forecasts: list[Forecast] = []
    workload_changes: list[WorkloadChange] = []
    invalid: list[str] = []

    def state(self, statements: Iterable[Statement]) -> None:
        for each in statements:
            self.statements.append(each.long)
            self.short_statements.append(each.short or each.long)
            if not each.detail:
                self.highlights.append(each.short or each.long)


class AskedCondition(Struct, frozen=True, kw_only=True):
    """Settings of one condition: one target under one load.

    A closed loop has a `concurrency` (requests kept in flight). An open loop has a `rate` in
    requests per second, unless its arrivals come from a trace. `output_tokens` is the requested
    response length. `cache_reuse`: prompts share a beginning for the provider's prompt cache.
    `shared_blocks`: they share beginnings as a trace says. `workload`: its name, where a run has
    several. `usage`: where the provider is known to send token counts, a key of `USAGE_WORDS` in
    `core.wire.api_format`; "": unknown. `region`: that of the target, if its name has one.
    `inputs`: texts to embed or documents to rank in each request; 0 if its answer is text.
    """

    condition: str
    target: str
    concurrency: Annotated[int, Meta(ge=1)] | None = None
    rate: Annotated[float, Meta(gt=0)] | None = None
    output_tokens: int | None = None
    cache_reuse: bool = False
    shared_blocks: bool = False
    workload: str = ""
    usage: str = ""
    region: str = ""
    inputs: int = 0

    @property
    def open_loop(self) -> bool:
        return self.concurrency is None
