"""What a run showed: the shapes of `run.json`, schema "splitsecond.run/1".

Others read this file: names and units are a contract. Milliseconds appear here because this is the report's side of
the program. A figure that could not be had is null, never 0.
"""

from typing import Any

from msgspec import Struct, field

from splitsecond.catalog.price import Price

SCHEMA = "splitsecond.run/1"


class Spread(Struct, kw_only=True):
    """A distribution: exact percentiles (linear interpolation, never past the maximum) of `n` values.

    `ci95` maps "p50", "p95", "p99" to a 95 % confidence interval from order statistics, and "mean" to one by
    Student's t; a bound that n values cannot give is null. `needs` maps the percentiles that n is too small for to
    the n they need. Both are empty for ITL, whose gaps are not independent of each other.
    For TPS the percentiles run from the fast end: 95 % of requests were at least as fast as p95.
    """

    n: int
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    ci95: dict[str, tuple[float | None, float | None]] = {}
    needs: dict[str, int] = {}


class Goodput(Struct, kw_only=True):
    """Requests that met every limit, of all requests sent; errors miss. `limits` as asked: {"ttft": 300.0} in ms.

    `use`: the name that the limits were asked by, such as "voice", or "".
    """

    limits: dict[str, float]
    use: str = ""
    met: int
    sent: int
    fraction: float
    per_s: float | None


class Instrument(Struct, kw_only=True):
    """The instrument's own error in one condition, in ms.

    `lag_*`: how long arrived bytes waited until they were read: `lag_p50_ms` is the median over requests of their mean
    lag, `lag_p99_ms` and `lag_max_ms` are of their worst. With `kernel_time` that lateness is not in the figures;
    without it, it is. `late_*`: how late requests left after they were due. `in_flight`: the mean number of
    requests under way in the steady window. `runqueue_wait_share`: share of the time that our process was runnable
    but not running. `cpu_ms_per_1000_tokens`: what measuring cost.
    """

    kernel_time: bool
    lag_p50_ms: float | None = None
    lag_p99_ms: float | None = None
    lag_max_ms: float | None = None
    late_p50_ms: float | None = None
    late_p99_ms: float | None = None
    in_flight: float | None = None
    runqueue_wait_share: float | None = None
    cpu_ms_per_1000_tokens: float | None = None
    collections: int = 0


class FigureChange(Struct, frozen=True, kw_only=True):
    """One percentile of one figure, twice. `change` is relative: 0.1 is +10 %; `ci95` its 95 % interval; None: not
    known.

    `real`: chance does not explain it. `better`: the change is for the better; None where there is none.
    """

    figure: str
    percentile: str
    before: float
    after: float
    change: float | None
    ci95: tuple[float, float] | None
    p_value: float | None
    real: bool
    better: bool | None


class CacheSaving(Struct, kw_only=True):
    """What a provider's prompt cache saves: a target's row of fresh prompts beside its row of cache reuse.

    `fresh` and `reuse` are the names of these conditions. `ttft`: p50 and p95, before by fresh prompts, after with
    cache reuse; empty where a row has no answer. With cache reuse `hits` of `requests` answers had input from the
    cache, the share `cached_share` of all input (None: the provider does not say). `usd_per_request_*`: what the input
    of a request costs, filling the cache included, or of a machine paid by the hour its time; output is left out, as it
    costs the same both ways and its length is chance. `verdict` says it in words.
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


class CapacityStep(Struct, kw_only=True):
    """One load of a search for capacity; its figures are those of the row that `condition` names.

    `load`: the concurrency, or in an open loop requests per second. `met` of `sent` requests kept to every limit, so
    the true share lies in `share_ci98`, each side of which errs once in a hundred times. `missed`: how many requests
    missed each limit, "errors" those that failed. `verdict`: one of `analysis.search.Verdict`.
    """

    condition: str
    load: float
    verdict: str
    met: int
    sent: int
    share_ci98: tuple[float, float]
    missed: dict[str, int] = {}


class Capacity(Struct, kw_only=True):
    """How much load a server bears while at least `share` of its requests keep to `limits`: a search through `steps`.

    `holds`: the heaviest load at which that is sure; `ceiling`: the lightest above it that is not borne, `why`: the
    verdict on it ("" for no ceiling: the search was not allowed further). Loads in `undecided`, between the two, could
    be either. `knee`: the load from which on the system's tokens/s hardly grow; null where they grow to the end.
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
    knee: float | None = None


class ConditionFindings(Struct, kw_only=True):
    """One row: one target at one concurrency or rate on one workload.

    `cache_reuse`: its prompts began alike, so that the provider's prompt cache could have them; else each was new.
    `requests` counts the measured ones that were sent, `errors` those of them that failed, `error_kinds` by class.
    `output_tokens_per_s` is system throughput in the steady window, `output_tokens_per_s_whole` from the first request
    sent to the last token; over that time also `requests_per_s`, of answered requests, and goodput's `per_s`.
    `itl_ms` are the gaps between content events, `itl_per_token_ms` shares them out over the tokens that ended them.
    `cost_usd`: the money for all that was sent for this row, warm-ups included; of `cost_estimated` attempts in it the
    counts were not all known. `usd_per_request` and `usd_per_million` share it out over the answers, and over all their
    tokens, input and output; `usd_per_million_output` over their output alone. `price`: by which, of which day, whose.
    `phases_ms`: where the time of a request goes, means that add up: dns, tcp, tls, network, provider, streaming.
    `server_ms`: medians of the durations that the server itself states, by its own names for them.
    `invalid`: why the numbers of this row must not be trusted; `notes`: what a reader should know.
    """

    condition: str
    target: str
    concurrency: int | None = None
    rate: float | None = None
    cache_reuse: bool = False
    requests: int
    errors: int
    error_kinds: dict[str, int] = {}
    error_examples: dict[str, str] = {}
    warmups: int = 0
    ttft_ms: Spread
    ttft_cold_ms: Spread
    ttft_due_ms: Spread
    first_answer_ms: Spread
    tps: Spread
    tpot_ms: Spread
    itl_ms: Spread
    itl_per_token_ms: Spread = field(default_factory=lambda: Spread(n=0))
    e2e_ms: Spread
    response_ms: Spread
    total_tps: Spread
    output_tokens_per_s: float | None = None
    output_tokens_per_s_whole: float | None = None
    requests_per_s: float | None = None
    steady_s: float | None = None
    batching_efficiency: float | None = None
    goodput: Goodput | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    cached_tokens: float | None = None
    reasoning_tokens: float | None = None
    tokens_per_event: float | None = None
    cost_usd: float | None = None
    cost_estimated: int = 0
    usd_per_request: float | None = None
    usd_per_million: float | None = None
    usd_per_million_output: float | None = None
    price: Price | None = None
    token_source: str = ""
    phases_ms: dict[str, float] = {}
    server_ms: dict[str, float] = {}
    instrument: Instrument
    invalid: list[str] = []
    notes: list[str] = []


class Run(Struct, kw_only=True):
    """`run.json`: what was asked, where it ran, what came out.

    `began` is the wall-clock moment (RFC 3339, UTC) at which the monotonic clock showed `began_ns`. `asked` holds the
    command line and every setting, enough to run it again; `environment` the machine and the versions. `statements`
    are the findings as plain sentences, `cache_savings` what a run of two ways of asking shows, `capacity` what a
    search for it does. `cost_usd`: by the token, of everything that was sent. `finished` is false while it runs, and
    stays so if it was interrupted.
    """

    id: str
    began: str
    began_ns: int
    schema: str = SCHEMA
    version: str = ""
    asked: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    finished: bool = False
    conditions: list[ConditionFindings] = []
    cost_usd: float | None = None
    statements: list[str] = []
    cache_savings: list[CacheSaving] = []
    capacity: Capacity | None = None
    invalid: list[str] = []
