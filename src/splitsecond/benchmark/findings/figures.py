"""Figures of a run: the one table that defines every metric.

`run.json`, the tables on the terminal and in the HTML report, `compare`, `--fail-if`, the data frame and
docs/reference/figures.md are all derived from `FIGURES` and `TOTALS`. To add a metric, add one entry.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from splitsecond.benchmark.findings.row_fields import Estimated, RowFields, SessionFindings
from splitsecond.benchmark.statistics.sessions import session_numbers
from splitsecond.benchmark.statistics.steady import begin_ns, event_tokens
from splitsecond.core.catalog.price import MILLION
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.observation import Observation
from splitsecond.core.timing.uses import AGENT_STEP_TOKENS, AGENT_STEPS
from splitsecond.log.statistics.summary import (
    MIN_ROUNDS,
    FigureSample,
    Floats,
    Interval,
    RoundNumbers,
    Summary,
    summary_of,
)

GROUPS = ("Latency", "Speed after the first token", "Sessions", "System", "Tokens per request")
MAX_TOKENS = 1 << 20
"""Tokens of an answer whose gaps are divided among its tokens. A provider can report any number."""
ONE_TOKEN_PER_EVENT = 1.05
"""Up to this many tokens per event, a stream counts as one token at a time, and ITL per token equals ITL."""


class Figure(Struct, frozen=True, kw_only=True):
    """One figure of a request. `name` is its key in run.json.

    `of` returns its value for one request (None: undefined) or, for gaps within a request, an array of values; `scale`
    divides them to give `unit`. With `higher_is_better`, percentiles run from the fast end. `from_due` names the figure
    that replaces this one in an open loop, where time counts from the moment a request was due.

    `among`: the requests that it describes. A failed one counts as slower than all others, unless `answered_only`.
    `counts_tokens`: compared only between rows with the same source of counts.

    `main`: shown in the first table (p50 and p95). `listed`: percentiles under "All metrics". `applies`: rows for which
    it differs from simpler figures. `compared`: part of `compare`; `stated`: a change gets a sentence.
    """

    name: str
    label: str
    unit: str
    group: str
    definition: str
    of: Callable[[Observation], float | Floats | None]
    among: Callable[[Observation], bool] = lambda o: True
    scale: int = 1
    higher_is_better: bool = False
    from_due: str = ""
    per_request: bool = True
    answered_only: bool = False
    counts_tokens: bool = False
    main: bool = False
    listed: tuple[str, ...] = ("p50",)
    applies: Callable[[RowFields], bool] = lambda row: True
    compared: bool = False
    stated: bool = False

    @property
    def unit_after(self) -> str:
        return f" {self.unit}"

    def value(self, observation: Observation) -> Any:
        value = self.of(observation) if self.among(observation) else None
        return None if value is None else value / self.scale

    def sample(self, requests: Sequence[Observation]) -> FigureSample:
        """Return the figure of `requests` (see `ended`), in `unit`; those that succeeded without it are left out.

        Gaps within a request are those of the answers.
        """
        requests = [o for o in requests if self.among(o)]
        if self.answered_only or not self.per_request:
            requests = [o for o in requests if o.ok]
        failed = -np.inf if self.higher_is_better else np.inf
        found = [(o, value) for o in requests if (value := self.of(o) if o.ok else failed) is not None]
        numbers = np.array([o.round for o, _ in found], dtype=np.int64)
        if self.per_request:
            values, rounds = np.array([value for _, value in found], dtype=np.float64), numbers
        else:
            values = np.concatenate([np.empty(0), *(gaps for _, gaps in found)])
            rounds = np.repeat(numbers, [np.size(gaps) for _, gaps in found])
        clusters = session_numbers([o for o, _ in found]) if self.per_request else None
        return _in_rounds(values / self.scale, rounds, clusters)

    def summarise(self, requests: Sequence[Observation], of_round: int | None = None) -> Summary:
        """Return the distribution over `requests` (see `ended`). `of_round`: see `summary_of`.

        Gaps within a request get no intervals: a slow step of the server delays all of its streams at once, so the
        number of gaps says nothing about the error of a percentile.
        """
        sample = self.sample(requests)
        if self.per_request:
            return summary_of(sample, higher_is_better=self.higher_is_better, of_round=of_round)
        return summary_of(sample.values, independent=False)

    def summary(self, row: RowFields) -> Summary:
        found: Summary = getattr(row, self.name)
        return found

    def under(self, *, open_loop: bool) -> "Figure":
        return FIGURES[self.from_due] if open_loop and self.from_due else self


def _in_rounds(values: Floats, rounds: RoundNumbers, clusters: RoundNumbers | None) -> FigureSample:
    spread = len(np.unique(rounds[rounds > 0])) >= MIN_ROUNDS
    return FigureSample(values.astype(np.float64), rounds, spread, clusters)


class Total(Struct, frozen=True, kw_only=True):
    """One number of a row. With `of` it is computed from the row; without, it is a field of `RowFields`."""

    name: str
    label: str
    unit: str
    definition: str
    group: str = ""
    of: Callable[[RowFields], float | None] | None = None
    higher_is_better: bool | None = None
    main: bool = False
    compared: bool = False
    ci95_of: Callable[[RowFields], Interval] = lambda row: (None, None)

    @property
    def unit_after(self) -> str:
        return "" if self.unit in ("", *re.split("[ ,]+", self.label)) else f" {self.unit}"

    def value(self, row: RowFields) -> float | None:
        stored: float | None = getattr(row, self.name)
        return self.of(row) if stored is None and self.of else stored


def _gaps(o: Observation) -> Floats:
    return np.diff(np.array([] if o.sparse else o.token_at, dtype=np.float64))


def _gaps_per_token(o: Observation) -> Floats:
    if o.sparse:
        return _gaps(o)
    tokens = np.maximum(event_tokens(o)[1:].round(), 1.0)
    if tokens.sum() > MAX_TOKENS:
        return _gaps(o)
    return np.repeat(_gaps(o) / tokens, tokens.astype(np.int64))


def _agent_ns(o: Observation) -> float | None:
    ttft, tpot = o.ttft_ns, o.tpot_ns
    return None if ttft is None or tpot is None else AGENT_STEPS * (ttft + AGENT_STEP_TOKENS * tpot)


def _of_sessions(row: RowFields) -> bool:
    return row.session is not None


def _begins(o: Observation) -> bool:
    return o.turn is not None and o.turn.turn == 1


def _goes_on(o: Observation) -> bool:
    return o.turn is not None and o.turn.turn > 1


FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            name="ttft_ms",
            label="TTFT",
            unit="ms",
            group="Latency",
            definition=(
                "Time to first token: from the first byte of the request on a ready connection to the arrival of the "
                "first token."
            ),
            of=lambda o: o.ttft_ns,
            scale=NS_PER_MS,
            from_due="ttft_due_ms",
            main=True,
            listed=("p99",),
            compared=True,
            stated=True,
        ),
        Figure(
            name="ttft_cold_ms",
            label="TTFT cold",
            unit="ms",
            group="Latency",
            definition="TTFT plus the time for DNS, TCP and TLS, which is 0 on a reused connection.",
            of=lambda o: o.ttft_cold_ns,
            scale=NS_PER_MS,
        ),
        Figure(
            name="ttft_due_ms",
            label="TTFT from due",
            unit="ms",
            group="Latency",
            definition=(
                "TTFT counted from the moment the schedule planned the request, so waiting in our client is included."
            ),
            of=lambda o: o.ttft_due_ns,
            scale=NS_PER_MS,
        ),
        Figure(
            name="first_answer_ms",
            label="time to first answer",
            unit="ms",
            group="Latency",
            definition="From the first byte of the request to the first token that is not reasoning.",
            of=lambda o: o.first_answer_after_ns,
            scale=NS_PER_MS,
        ),
        Figure(
            name="tps",
            label="TPS",
            unit="tokens/s",
            group="Speed after the first token",
            definition=(
                "Tokens per second of one request after its first token: (N − n1) / (last token − first token), with "
                "N the output tokens and n1 those in the first event. Undefined below two tokens, or when all arrived "
                "at once. p95 is the slow tail: 95% of requests were at least this fast."
            ),
            of=lambda o: o.tps,
            higher_is_better=True,
            counts_tokens=True,
            main=True,
            listed=(),
            compared=True,
            stated=True,
        ),
        Figure(
            name="tpot_ms",
            label="TPOT",
            unit="ms",
            group="Speed after the first token",
            definition="Time per output token: 1/TPS.",
            of=lambda o: o.tpot_ns,
            scale=NS_PER_MS,
            counts_tokens=True,
        ),
        Figure(
            name="itl_ms",
            label="ITL",
            unit="ms",
            group="Speed after the first token",
            definition=(
                "Inter-token latency: the gaps between events that carry content, of all requests together. The gaps "
                "of one answer depend on each other, so ITL has no confidence interval. Answers that were read "
                "sparsely are left out."
            ),
            of=_gaps,
            scale=NS_PER_MS,
            per_request=False,
            listed=("p50", "p95", "p99"),
        ),
        Figure(
            name="itl_per_token_ms",
            label="ITL per token",
            unit="ms",
            group="Speed after the first token",
            definition=(
                "ITL with each gap divided by the tokens of the event that ended it: k tokens count as k gaps, each "
                "1/k as long. k comes from the provider's running count, otherwise from the event's share of the "
                "characters, otherwise it is 1."
            ),
            of=_gaps_per_token,
            scale=NS_PER_MS,
            per_request=False,
            listed=("p50", "p95"),
            applies=lambda row: (row.tokens_per_event or 1.0) > ONE_TOKEN_PER_EVENT,
        ),
        Figure(
            name="e2e_ms",
            label="E2E",
            unit="ms",
            group="Latency",
            definition="End to end: from the first byte of the request to the last token.",
            of=lambda o: o.e2e_ns,
            scale=NS_PER_MS,
            from_due="response_ms",
            listed=("p50", "p95"),
            compared=True,
            stated=True,
        ),
        Figure(
            name="response_ms",
            label="response time",
            unit="ms",
            group="Latency",
            definition="E2E counted from the moment the request was due.",
            of=lambda o: o.response_ns,
            scale=NS_PER_MS,
            listed=("p95",),
        ),
        Figure(
            name="agent_ms",
            label="agent time",
            unit="ms",
            group="Latency",
            definition=(
                f"Time of an agent that makes {AGENT_STEPS} calls in sequence, each of {AGENT_STEP_TOKENS} output "
                f"tokens: {AGENT_STEPS} × (TTFT + {AGENT_STEP_TOKENS} ÷ TPS) of one request. The time of its tools "
                "comes on top."
            ),
            of=_agent_ns,
            scale=NS_PER_MS,
            counts_tokens=True,
        ),
        Figure(
            name="total_tps",
            label="total TPS",
            unit="tokens/s",
            group="Speed after the first token",
            definition=(
                "Output tokens divided by the whole time from the arrival of the call to its end, connecting and "
                "waiting included; successful requests only."
            ),
            of=lambda o: o.total_tps,
            higher_is_better=True,
            answered_only=True,
            counts_tokens=True,
            compared=True,
        ),
        Figure(
            name="ttft_first_turn_ms",
            label="TTFT of first turns",
            unit="ms",
            group="Sessions",
            definition="TTFT of the first turns of sessions and of their sub-agents: most of the prompt is new.",
            of=lambda o: o.ttft_ns,
            among=_begins,
            scale=NS_PER_MS,
            listed=("p50", "p95"),
            applies=_of_sessions,
            compared=True,
        ),
        Figure(
            name="ttft_later_turns_ms",
            label="TTFT of later turns",
            unit="ms",
            group="Sessions",
            definition="TTFT of all later turns, whose prompt begins with the turn before and its answer.",
            of=lambda o: o.ttft_ns,
            among=_goes_on,
            scale=NS_PER_MS,
            listed=("p50", "p95"),
            applies=_of_sessions,
            compared=True,
        ),
    )
}


def _ttft(row: RowFields) -> Summary:
    return FIGURES["ttft_ms"].summary(row)


def _divided(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def _session_total(
    name: str,
    label: str,
    unit: str,
    definition: str,
    of: Callable[[SessionFindings], Estimated | float],
    *,
    higher_is_better: bool | None = None,
) -> Total:
    def estimated(row: RowFields) -> Estimated:
        found = Estimated() if row.session is None else of(row.session)
        return found if isinstance(found, Estimated) else Estimated(found)

    return Total(
        name=name,
        label=label,
        unit=unit,
        definition=definition,
        group="Sessions",
        of=lambda row: estimated(row).value,
        higher_is_better=higher_is_better,
        ci95_of=lambda row: estimated(row).ci95,
    )


_SESSION_TOTALS = (
    _session_total("sessions", "sessions", "", "Sessions that were measured.", lambda s: s.sessions),
    _session_total("turns", "turns", "", "Measured requests of these sessions.", lambda s: s.turns),
    _session_total(
        "sessions_ok_share",
        "sessions without an error",
        "share",
        "Sessions that were finished, of those that were finished or in which a request failed.",
        lambda s: s.ok_share,
        higher_is_better=True,
    ),
    _session_total(
        "session_s",
        "session time",
        "s",
        "Mean time of a session, its tools included: the time of all sessions in flight during the rounds ÷ the "
        "sessions that were finished in them.",
        lambda s: s.session_s,
        higher_is_better=False,
    ),
    _session_total(
        "session_waiting_share",
        "waiting for first tokens",
        "share",
        "Share of the time of sessions until first tokens, along the critical path: the turns without which a session "
        "would have gone on sooner.",
        lambda s: s.waiting_share,
        higher_is_better=False,
    ),
    _session_total(
        "session_generating_share",
        "generating",
        "share",
        "Share of the time of sessions from first tokens to the ends of answers, along the critical path.",
        lambda s: s.generating_share,
    ),
    _session_total(
        "session_tools_share",
        "tools",
        "share",
        "The rest of the time of sessions: from the end of an answer on the critical path to the next turn.",
        lambda s: s.tools_share,
    ),
    _session_total(
        "cached_share",
        "cached share of input",
        "share",
        "Input tokens of the turns that the provider reports as cached ÷ their input tokens.",
        lambda s: s.cached_share,
        higher_is_better=True,
    ),
    _session_total(
        "ideal_cached_share",
        "ideal cached share",
        "share",
        "The cached share of a prompt cache without limits.",
        lambda s: s.ideal_cached_share,
    ),
    _session_total(
        "cached_of_ideal",
        "cached, of the ideal",
        "share",
        "Cached share of input ÷ ideal cached share.",
        lambda s: s.cached_of_ideal,
        higher_is_better=True,
    ),
    _session_total(
        "prefill_tokens_per_s",
        "prefill speed",
        "tokens/s",
        "New input tokens that the server reads per second, by a robust fit of TTFT = fixed part + new tokens ÷ "
        "prefill speed + cached tokens × their cost.",
        lambda s: s.prefill_tokens_per_s,
        higher_is_better=True,
    ),
    _session_total(
        "ms_per_1000_cached_tokens",
        "1,000 cached tokens",
        "ms",
        "What 1,000 tokens from the prompt cache add to TTFT, by the same fit.",
        lambda s: s.ms_per_1000_cached_tokens,
        higher_is_better=False,
    ),
    _session_total(
        "ttft_fixed_ms",
        "fixed part of TTFT",
        "ms",
        "TTFT without any input, by the same fit: network, queue and the first step.",
        lambda s: s.fixed_ms,
        higher_is_better=False,
    ),
    _session_total(
        "cache_miss_share",
        "cache misses",
        "share",
        "Turns that found less than half of their ideal in the prompt cache, of those whose ideal is 1,024 tokens or "
        "more. Where the provider reports no cached tokens, TTFT decides.",
        lambda s: s.miss_share,
        higher_is_better=False,
    ),
    _session_total(
        "cache_miss_s",
        "cost of a cache miss",
        "s",
        "Mean time that a cache miss adds to TTFT: its missing tokens × (time of a new token − that of a cached one).",
        lambda s: s.miss_s,
        higher_is_better=False,
    ),
    _session_total(
        "cache_miss_waiting_share",
        "waiting by cache misses",
        "share",
        "Cost of all cache misses ÷ all time until first tokens.",
        lambda s: s.miss_waiting_share,
        higher_is_better=False,
    ),
    _session_total(
        "usd_per_session",
        "cost of a session",
        "USD",
        "Cost of the measured turns ÷ sessions that were finished.",
        lambda s: s.usd,
        higher_is_better=False,
    ),
    _session_total(
        "usd_per_session_uncached",
        "cost without a cache",
        "USD",
        "Cost of a session if all of its input had the price of new input.",
        lambda s: s.usd_uncached,
    ),
)


TOTALS: dict[str, Total] = {
    total.name: total
    for total in (
        Total(
            name="output_tokens_per_s",
            label="system tokens/s",
            unit="tokens/s",
            definition=(
                "Output tokens of all requests together that arrived in the steady window (while the concurrency was "
                "at its target), divided by its length."
            ),
            higher_is_better=True,
            main=True,
            compared=True,
            ci95_of=lambda row: row.output_tokens_per_s_ci95,
        ),
        Total(
            name="output_tokens_per_s_whole",
            label="system tokens/s, whole run",
            unit="tokens/s",
            group="System",
            definition="System tokens/s from the first request sent to the last token.",
            higher_is_better=True,
        ),
        Total(
            name="requests_per_s",
            label="requests/s",
            unit="requests/s",
            group="System",
            definition="Successful requests per second, from the first request sent to the last token.",
            higher_is_better=True,
            compared=True,
        ),
        Total(
            name="steady_s",
            label="steady window, s",
            unit="s",
            group="System",
            definition="Length of the steady window: the time during which the load was at its target.",
        ),
        Total(
            name="batching_efficiency",
            label="batching efficiency",
            unit="",
            group="System",
            definition="System tokens/s at this concurrency divided by that at concurrency 1.",
            higher_is_better=True,
        ),
        Total(
            name="consistency",
            label="consistency",
            unit="",
            group="System",
            definition="TTFT p95 ÷ TTFT p50. 1 is a target that always answers alike.",
            of=lambda row: _divided(_ttft(row).p95, _ttft(row).p50),
            higher_is_better=False,
        ),
        Total(
            name="goodput_share",
            label="goodput",
            unit="share",
            group="System",
            definition="Requests that met every limit, of all requests sent; errors miss.",
            of=lambda row: row.goodput.fraction if row.goodput else None,
            higher_is_better=True,
            ci95_of=lambda row: row.goodput.ci95 if row.goodput else (None, None),
        ),
        Total(
            name="rounds",
            label="rounds",
            unit="",
            group="System",
            definition=(
                "Rounds of the run, spread over time, whose scatter the intervals include. 0: fewer than five; then "
                "the intervals describe the measured seconds only."
            ),
            of=lambda row: _ttft(row).rounds,
        ),
        Total(
            name="n_effective",
            label="effective n",
            unit="",
            group="System",
            definition=(
                "Number of independent requests that the row's requests are worth for the median of TTFT: fewer than "
                "were sent if some rounds were slower than others."
            ),
            of=lambda row: _ttft(row).n_effective,
        ),
        Total(
            name="autocorrelation",
            label="autocorrelation",
            unit="",
            group="System",
            definition=(
                "Correlation of the mean TTFT of a round with that of the round before (lag 1); without correlation, "
                "about −1 divided by the number of rounds. If it is high, the rounds lie too close together."
            ),
            of=lambda row: _ttft(row).autocorrelation,
        ),
        Total(
            name="tokens_per_event",
            label="tokens per event",
            unit="",
            group="Speed after the first token",
            definition="Streamed output tokens per event that carries content.",
        ),
        Total(
            name="input_tokens",
            label="input",
            unit="tokens",
            group="Tokens per request",
            definition="Mean input tokens of a successful request.",
        ),
        Total(
            name="cached_tokens",
            label="cached input",
            unit="tokens",
            group="Tokens per request",
            definition="Mean input tokens that came from the provider's prompt cache, as the provider reports them.",
        ),
        Total(
            name="output_tokens",
            label="output",
            unit="tokens",
            group="Tokens per request",
            definition="Mean output tokens of a successful request, reasoning included.",
        ),
        Total(
            name="reasoning_tokens",
            label="reasoning",
            unit="tokens",
            group="Tokens per request",
            definition="Mean output tokens that were reasoning, as the provider reports them.",
        ),
        Total(
            name="cost_usd",
            label="cost of the row",
            unit="USD",
            definition="Cost of everything that was sent for the row: warm-ups, failures and losers of races included.",
            higher_is_better=False,
        ),
        Total(
            name="usd_per_request",
            label="cost per request",
            unit="USD",
            definition="Cost of the measured requests, failed ones included, divided by the successful ones.",
            higher_is_better=False,
        ),
        Total(
            name="usd_per_million",
            label="cost per million tokens",
            unit="USD",
            definition="Cost of the measured requests per million of their tokens, input and output in their own mix.",
            higher_is_better=False,
            compared=True,
        ),
        Total(
            name="usd_per_million_output",
            label="cost per million output tokens",
            unit="USD",
            definition="Cost of the measured requests per million output tokens.",
            higher_is_better=False,
        ),
        Total(
            name="tokens_per_usd",
            label="tokens per dollar",
            unit="tokens",
            definition="Output tokens for one US dollar, input included: 1,000,000 ÷ cost per million output tokens.",
            of=lambda row: _divided(MILLION, row.usd_per_million_output),
            higher_is_better=True,
        ),
        Total(
            name="cost_adjusted_tps",
            label="cost-adjusted TPS",
            unit="tokens/s per USD",
            definition="TPS p50 of one request ÷ cost per million tokens in US dollars.",
            of=lambda row: _divided(FIGURES["tps"].summary(row).p50, row.usd_per_million),
            higher_is_better=True,
        ),
        Total(
            name="errors",
            label="errors",
            unit="requests",
            definition="Measured requests that failed.",
            higher_is_better=False,
            compared=True,
        ),
        Total(name="requests", label="requests", unit="requests", definition="Measured requests that were sent."),
        *_SESSION_TOTALS,
    )
}


def main_figures() -> list[Figure]:
    return [figure for figure in FIGURES.values() if figure.main]


def main_totals() -> list[Total]:
    return [total for total in TOTALS.values() if total.main]


def compared_figures(*, open_loop: bool) -> list[Figure]:
    found: list[Figure] = []
    for figure in FIGURES.values():
        if figure.compared:
            found += [figure.under(open_loop=True), figure] if open_loop and figure.from_due else [figure]
    return found


def ttft_figure(*, open_loop: bool) -> Figure:
    """Return the TTFT to judge by: in an open loop from when the request was due, so that no waiting is left out."""
    return FIGURES["ttft_ms"].under(open_loop=open_loop)


def successful(observations: Iterable[Observation]) -> list[Observation]:
    return [o for o in observations if o.role == "measured" and o.ok]


def ended(observations: Iterable[Observation]) -> list[Observation]:
    return sorted((o for o in observations if o.role == "measured" and o.outcome != "cancelled"), key=begin_ns)
