from msgspec import Struct

from splitsecond.core.catalog.price import Price
from splitsecond.core.observation import PacketCounts
from splitsecond.log.statistics.summary import Interval, Summary


class Goodput(Struct, kw_only=True):
    """Requests that met every limit, of all requests sent; errors miss. `limits`: {"ttft": 300.0},
    times in ms.

    `use`: the named use that the limits belong to, such as "voice", or "". `ci95`: interval of
    `fraction`, from the scatter between rounds.
    """

    limits: dict[str, float]
    use: str = ""
    met: int
    sent: int
    fraction: float
    per_s: float | None
    ci95: Interval = (None, None)


class Instrument(Struct, kw_only=True):
    """Error of the instrument itself in one condition, in ms.

    `lag_*`: how long arrived bytes waited until they were read. `lag_p50_ms` is the median over
    requests of their mean lag; `lag_p99_ms` and `lag_max_ms` are taken from their worst. With
    `kernel_time`, this lag is not part of the figures; without it, it is. With `packet_time`, each
    token has the time of its packet. `packets`: what the packet clock has seen; None without one.
    `first_tokens_merged`: number of first tokens that were read together with later ones and dated
    back, by at most `first_merged_max_ms`. `sparse`: number of responses that were read sparsely,
    whose ITL is not known. `last_tokens_merged`: number of last tokens that were read together with
    later packets, and may have come up to `last_merged_max_ms` earlier. `priority`: the scheduling
    priorities of the processes that measured. `late_*`: how long after they were due requests were
    sent. `in_flight`: mean number of requests in flight in the steady window.
    `runqueue_wait_share`: share of the time in which our process was runnable but not running.
    `cpu_share`: mean share of a core that each measuring process used. `cpu_ms_per_1000_tokens`:
    processor time that measuring took; null if there were fewer than 1,000 tokens, or fewer than
    1,000 per second of a process.
    """

    kernel_time: bool
    packet_time: bool = False
    packets: PacketCounts | None = None
    first_tokens_merged: int = 0
    first_merged_max_ms: float | None = None
    sparse: int = 0
    last_tokens_merged: int = 0
    last_merged_max_ms: float | None = None
    priority: str = ""
    lag_p50_ms: float | None = None
    lag_p99_ms: float | None = None
    lag_max_ms: float | None = None
    late_p50_ms: float | None = None
    late_p99_ms: float | None = None
    in_flight: float | None = None
    runqueue_wait_share: float | None = None
    cpu_share: float | None = None
    cpu_ms_per_1000_tokens: float | None = None
    collections: int = 0


class NodeFindings(Struct, kw_only=True):
    """The part of a row that one node sent.

    `requests` counts its measured requests, `errors` those that failed, `ttft_p50_ms` is the median
    of the others. `clock_offset_ms`: its monotonic clock minus that of the machine that led the
    run, at the first block, known to `clock_error_ms` in the worst block. `instrument`: its own
    error. `invalid`: why its part must not be trusted.
    """

    node: str
    requests: int
    errors: int
    ttft_p50_ms: float | None
    clock_offset_ms: float | None
    clock_error_ms: float | None
    instrument: Instrument
    invalid: list[str] = []


class Estimated(Struct, frozen=True):
    """One number and its 95% interval. `value` None: it is undefined, or the data cannot tell."""

    value: float | None = None
    ci95: Interval = (None, None)


class TurnClass(Struct, kw_only=True):
    """TTFT of the turns of one class. `by`: "turn", "new tokens" or "cached tokens".

    Tokens of the class, or the number of the turn, are at least `low` and below `high`; None:
    without end.
    """

    by: str
    low: int
    high: int | None
    ttft_ms: Summary


class SessionFindings(Struct, kw_only=True):
    """Figures of a row of sessions. Intervals come from the scatter between rounds and between
    sessions.

    `sessions` have `turns` measured requests. `finished` of them came to their end, `broken` ones
    have a request that failed; rounds begin and end in the middle of the others. `cache_by`: what
    tells how much was in the cache: "usage" of the provider, or the "times" until the first token
    where it reports no cached tokens; "": nothing does. Of the `primed` sessions, whose cache was
    filled before their first turn, the `unprimed` ones began with a prompt that was not in the
    cache, by usage and by TTFT.

    `session_s`: mean session time; `waiting_s`: the part of it until first tokens. `waiting_share`,
    `generating_share` and `tools_share` of the time of sessions are spent so along the critical
    path. `cached_share`: reported cached input ÷ input; `ideal_cached_share`: the same of a cache
    without limits; `cached_of_ideal`: the first ÷ the second. `fixed_ms`, `prefill_tokens_per_s`
    and `ms_per_1000_cached_tokens` describe TTFT = fixed + new tokens ÷ prefill speed + cached
    tokens × their cost. `misses` of `reusing` turns, whose prompt should have been in the cache,
    found less than half of it there, which is the `miss_share`; both leave out turns whose cached
    input is unknown. `miss_s`: what one costs; `miss_waiting_share`: what all cost ÷ all time until
    first tokens. `usd` and `usd_uncached`: cost of a session, and what it would be without a cache.
    `by_round`: for each figure that comparisons test, the two numbers of each round that it is the
    ratio of.
    """

    sessions: int
    turns: int
    finished: int = 0
    broken: int = 0
    primed: int = 0
    unprimed: list[str] = []
    cache_by: str = ""
    ok_share: Estimated = Estimated()
    session_s: Estimated = Estimated()
    waiting_s: Estimated = Estimated()
    waiting_share: Estimated = Estimated()
    generating_share: Estimated = Estimated()
    tools_share: Estimated = Estimated()
    cached_share: Estimated = Estimated()
    ideal_cached_share: Estimated = Estimated()
    cached_of_ideal: Estimated = Estimated()
    fixed_ms: Estimated = Estimated()
    prefill_tokens_per_s: Estimated = Estimated()
    ms_per_1000_cached_tokens: Estimated = Estimated()
    misses: int = 0
    reusing: int = 0
    miss_share: Estimated = Estimated()
    miss_s: Estimated = Estimated()
    miss_waiting_share: Estimated = Estimated()
    usd: Estimated = Estimated()
    usd_uncached: Estimated = Estimated()
    by_round: dict[str, dict[int, tuple[float, float]]] = {}
    classes: list[TurnClass] = []


class TtftCheck(Struct, frozen=True, kw_only=True):
    """Comparison of the server's mean TTFT with ours, over all requests of a row's blocks.

    `server_requests`, `requests`: first tokens that the server counted, and that the run saw.
    `others`: they differ, so the server served others too. `network_ms`: mean round trip of the
    connections; None: unknown.
    """

    server_requests: int
    requests: int
    server_ms: float
    network_ms: float | None
    measured_ms: float
    others: bool

    @property
    def rest_ms(self) -> float:
        return self.measured_ms - self.server_ms - (self.network_ms or 0.0)


class ServerView(Struct, frozen=True, kw_only=True):
    """What the server of a row and its GPUs told about themselves. None: not told.

    `title`: the engine. `samples`: readings while the load was up. Over these, `running`, `waiting`
    and `kv_use` (a share) are medians, and `*_max` the highest. Over all requests of the row's
    blocks, `preemptions` counts requests that lost their place in the KV cache, `cached_share` is
    the share of prompt tokens from the prefix cache, `accepted_share` that of proposed tokens which
    were accepted, and `*_ms` are mean times. `check` compares the server's TTFT with ours.

    Of `gpus`: `gpu_use`, and the shares of time in which the power limit (`power_capped`) or heat
    (`heat_capped`) slowed one down; `power_w` of all while the load was up, and `idle_power_w`
    before the run. `joules_per_token` and `tokens_per_kwh` are about output tokens, and contain the
    idle power. `electricity_usd_per_million`: per million output tokens.
    """

    title: str = ""
    samples: int = 0
    running: float | None = None
    running_max: float | None = None
    waiting: float | None = None
    waiting_max: float | None = None
    kv_use: float | None = None
    kv_use_max: float | None = None
    preemptions: float | None = None
    cached_share: float | None = None
    accepted_share: float | None = None
    ttft_ms: float | None = None
    queue_ms: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    e2e_ms: float | None = None
    check: TtftCheck | None = None
    gpus: float | None = None
    gpu_use: float | None = None
    gpu_memory_bytes: float | None = None
    clock_mhz: float | None = None
    power_capped: float | None = None
    heat_capped: float | None = None
    power_w: float | None = None
    idle_power_w: float | None = None
    joules_per_token: float | None = None
    tokens_per_kwh: float | None = None
    electricity_usd_per_million: float | None = None


class RowFields(Struct, kw_only=True):
    condition: str
    target: str
    concurrency: int | None = None
    rate: float | None = None
    cache_reuse: bool = False
    workload: str = ""
    region: str = ""
    inputs: int = 0
    requests: int
    errors: int
    error_kinds: dict[str, int] = {}
    error_examples: dict[str, str] = {}
    warmups: int = 0
    cooldowns: int = 0
    output_tokens_per_s: float | None = None
    output_tokens_per_s_ci95: Interval = (None, None)
    output_tokens_per_s_rounds: dict[int, float] = {}
    output_tokens_per_s_whole: float | None = None
    requests_per_s: float | None = None
    inputs_per_s: float | None = None
    input_tokens_per_s: float | None = None
    usd_per_1000_inputs: float | None = None
    steady_s: float | None = None
    batching_efficiency: float | None = None
    goodput: Goodput | None = None
    checked: int = 0
    valid_share: float | None = None
    valid_share_ci95: Interval = (None, None)
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
    session: SessionFindings | None = None
    server: ServerView | None = None
    instrument: Instrument
    nodes: list[NodeFindings] = []
    invalid: list[str] = []
    notes: list[str] = []

    @property
    def in_sessions(self) -> bool:
        return self.session is not None
