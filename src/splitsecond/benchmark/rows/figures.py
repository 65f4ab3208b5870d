"""Figures of a run: the one table that defines every metric.

`run.json`, the tables on the terminal and in the HTML report, `compare`, `--fail-if`, the data
frame and docs/reference/figures.md are all derived from `FIGURES` and `TOTALS`. To add a metric,
add one entry.
"""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from splitsecond.benchmark.rows.metric import Figure, Total
from splitsecond.benchmark.rows.row_fields import RowFields
from splitsecond.benchmark.rows.session_figures import SESSION_FIGURES, SESSION_TOTALS
from splitsecond.benchmark.statistics.steady import begin_ns, event_tokens
from splitsecond.core.catalog.price import MILLION
from splitsecond.core.observation import Observation
from splitsecond.core.timing.uses import AGENT_STEP_TOKENS, AGENT_STEPS
from splitsecond.log.statistics.summary import Floats, Summary

GROUPS = (
    "Latency", "Speed after the first token", "Sessions", "Inputs", "System", "Tokens per request",
)  # fmt: skip
MAX_TOKENS = 1 << 20
"""Tokens of an answer whose gaps are divided among its tokens. A provider can report any number."""
ONE_TOKEN_PER_EVENT = 1.05
"""Up to this many tokens per event, a stream counts as one token at a time, and ITL per token
equals ITL."""


M = TypeVar("M", Figure, Total)


def _by_name(*metrics: M) -> dict[str, M]:
    return {metric.name: metric for metric in metrics}


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


_TTFT_DUE = Figure(
    "ttft_due_ms",
    "TTFT from due",
    "ms",
    "Latency",
    "TTFT counted from the moment the schedule planned the request, so waiting in our client "
    "is included.",
    of=lambda o: o.ttft_due_ns,
)
_RESPONSE = Figure(
    "response_ms",
    "response time",
    "ms",
    "Latency",
    "E2E counted from the moment the request was due.",
    of=lambda o: o.response_ns,
    listed=("p95",),
)

_LATENCY_DUE = Figure(
    "latency_due_ms",
    "latency from due",
    "ms",
    "Inputs",
    "Latency counted from the moment the request was due.",
    of=lambda o: o.latency_due_ns,
    among=lambda o: o.inputs > 0,
)
LATENCY = Figure(
    "latency_ms",
    "latency",
    "ms",
    "Inputs",
    "Of embeddings and rankings, whose answers are no text: from the first byte of the request "
    "to the end of the answer.",
    of=lambda o: o.latency_ns,
    among=lambda o: o.inputs > 0,
    from_due=_LATENCY_DUE,
    listed=("p99",),
    compared=True,
    stated=True,
)

FIGURES = _by_name(
    Figure(
        "ttft_ms",
        "TTFT",
        "ms",
        "Latency",
        "Time to first token: from the first byte of the request on a ready connection to "
        "the arrival of the first token.",
        of=lambda o: o.ttft_ns,
        from_due=_TTFT_DUE,
        main=True,
        listed=("p99",),
        compared=True,
        stated=True,
    ),
    Figure(
        "ttft_sent_ms",
        "TTFT after sending",
        "ms",
        "Latency",
        "Time to first token, from when the kernel had taken the last byte of the request. It is "
        "shorter than TTFT where the kernel did not take all bytes at once, as of a long prompt.",
        of=lambda o: o.ttft_sent_ns,
        listed=(),
    ),
    Figure(
        "ttft_cold_ms",
        "TTFT cold",
        "ms",
        "Latency",
        "TTFT plus the time for DNS, TCP and TLS, which is 0 on a reused connection.",
        of=lambda o: o.ttft_cold_ns,
    ),
    _TTFT_DUE,
    Figure(
        "first_answer_ms",
        "time to first answer",
        "ms",
        "Latency",
        "From the first byte of the request to the first token that is not reasoning.",
        of=lambda o: o.first_answer_after_ns,
    ),
    Figure(
        "tps",
        "TPS",
        "tokens/s",
        "Speed after the first token",
        "Tokens per second of one request after its first token: (N − n1) / (last token − "
        "first token), with N the output tokens and n1 those that arrived with the first "
        "one. Not known below two tokens, or if most arrived at once. p95 is the slow "
        "tail: 95% of requests were at least this fast.",
        of=lambda o: o.tps,
        higher_is_better=True,
        counts_tokens=True,
        main=True,
        listed=(),
        compared=True,
        stated=True,
    ),
    Figure(
        "tpot_ms",
        "TPOT",
        "ms",
        "Speed after the first token",
        "Time per output token: 1/TPS.",
        of=lambda o: o.tpot_ns,
        counts_tokens=True,
    ),
    Figure(
        "itl_ms",
        "ITL",
        "ms",
        "Speed after the first token",
        "Inter-token latency: the gaps between events that carry content, of all requests "
        "together. The gaps of one answer depend on each other, so ITL has no confidence "
        "interval. Answers that were read sparsely are left out.",
        of=_gaps,
        per_request=False,
        listed=("p50", "p95", "p99"),
    ),
    Figure(
        "itl_per_token_ms",
        "ITL per token",
        "ms",
        "Speed after the first token",
        "ITL with each gap divided by the tokens of the event that ended it: k tokens "
        "count as k gaps, each 1/k as long. k comes from the provider's running count, "
        "otherwise from the event's share of the characters, otherwise it is 1.",
        of=_gaps_per_token,
        per_request=False,
        listed=("p50", "p95"),
        applies=lambda row: (row.tokens_per_event or 1.0) > ONE_TOKEN_PER_EVENT,
    ),
    Figure(
        "e2e_ms",
        "E2E",
        "ms",
        "Latency",
        "End to end: from the first byte of the request to the last token.",
        of=lambda o: o.e2e_ns,
        from_due=_RESPONSE,
        listed=("p50", "p95"),
        compared=True,
        stated=True,
    ),
    _RESPONSE,
    LATENCY,
    _LATENCY_DUE,
    Figure(
        "agent_ms",
        "agent time",
        "ms",
        "Latency",
        f"Time of an agent that makes {AGENT_STEPS} calls in sequence, each of "
        f"{AGENT_STEP_TOKENS} output tokens: {AGENT_STEPS} × (TTFT + {AGENT_STEP_TOKENS} ÷ "
        "TPS) of one request. The time of its tools comes on top.",
        of=_agent_ns,
        counts_tokens=True,
    ),
    Figure(
        "total_tps",
        "total TPS",
        "tokens/s",
        "Speed after the first token",
        "Output tokens divided by the whole time from the arrival of the call to its end, "
        "connecting and waiting included; successful requests only.",
        of=lambda o: o.total_tps,
        higher_is_better=True,
        answered_only=True,
        counts_tokens=True,
        compared=True,
    ),
    *SESSION_FIGURES,
)


def _ttft(row: RowFields) -> Summary:
    return (LATENCY if row.inputs else FIGURES["ttft_ms"]).summary(row)


def _divided(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


TOTALS = _by_name(
    Total(
        "output_tokens_per_s",
        "system tokens/s",
        "tokens/s",
        "",
        "Output tokens of all requests together that arrived in the steady window (while "
        "the concurrency was at its target), divided by its length.",
        higher_is_better=True,
        main=True,
        compared=True,
        tested=True,
        ci95_of=lambda row: row.output_tokens_per_s_ci95,
    ),
    Total(
        "output_tokens_per_s_whole",
        "system tokens/s, whole blocks",
        "tokens/s",
        "System",
        "System tokens/s from the first measured request of each block to its last "
        "token. Pauses between blocks do not count.",
        higher_is_better=True,
    ),
    Total(
        "requests_per_s",
        "requests/s",
        "requests/s",
        "System",
        "Successful requests per second while the load was at its target. In a "
        "closed loop: requests in flight ÷ mean time of a request; otherwise those that ended "
        "in the steady window ÷ its length.",
        higher_is_better=True,
        compared=True,
    ),
    Total(
        "inputs_per_s",
        "inputs/s",
        "inputs/s",
        "Inputs",
        "Texts embedded or documents ranked per second: requests/s times the inputs of a request.",
        of=lambda row: (
            row.inputs * row.requests_per_s if row.inputs and row.requests_per_s else None
        ),
        higher_is_better=True,
        compared=True,
    ),
    Total(
        "input_tokens_per_s",
        "input tokens/s",
        "tokens/s",
        "Inputs",
        "Of embeddings and rankings: requests/s times the mean input tokens of a request.",
        of=lambda row: (
            row.input_tokens * row.requests_per_s
            if row.inputs and row.input_tokens and row.requests_per_s
            else None
        ),
        higher_is_better=True,
    ),
    Total(
        "usd_per_1000_inputs",
        "cost per 1,000 inputs",
        "USD",
        "Inputs",
        "Of embeddings and rankings: cost per request ÷ its inputs × 1,000.",
        of=lambda row: (
            row.usd_per_request / row.inputs * 1000
            if row.inputs and row.usd_per_request is not None
            else None
        ),
        higher_is_better=False,
    ),
    Total(
        "steady_s",
        "steady window, s",
        "s",
        "System",
        "Length of the steady window: the time during which the load was at its target.",
    ),
    Total(
        "batching_efficiency",
        "batching efficiency",
        "",
        "System",
        "System tokens/s at this concurrency divided by that at concurrency 1.",
        higher_is_better=True,
    ),
    Total(
        "consistency",
        "consistency",
        "",
        "System",
        "TTFT p95 ÷ TTFT p50. 1 is a target that always answers alike.",
        of=lambda row: _divided(_ttft(row).p95, _ttft(row).p50),
        higher_is_better=False,
    ),
    Total(
        "ttft_share",
        "TTFT ÷ E2E",
        "share",
        "System",
        "TTFT p50 ÷ E2E p50: the share of the time of a response after which a reader of a "
        "stream has its first token.",
        of=lambda row: _divided(_ttft(row).p50, FIGURES["e2e_ms"].summary(row).p50),
        higher_is_better=False,
    ),
    Total(
        "goodput_share",
        "goodput",
        "share",
        "System",
        "Requests that met every limit, of all requests sent; errors miss.",
        of=lambda row: row.goodput.fraction if row.goodput else None,
        higher_is_better=True,
        ci95_of=lambda row: row.goodput.ci95 if row.goodput else (None, None),
    ),
    Total(
        "valid_share",
        "valid answers",
        "share",
        "System",
        "Answers of the schema, with a right call of a tool, or as expected, of all "
        "that were checked.",
        higher_is_better=True,
        compared=True,
        ci95_of=lambda row: row.valid_share_ci95,
    ),
    Total(
        "rounds",
        "rounds",
        "",
        "System",
        "Rounds of the run, spread over time, whose scatter the intervals include. 0: "
        "fewer than five; then the intervals describe the measured seconds only.",
        of=lambda row: _ttft(row).rounds,
    ),
    Total(
        "n_effective",
        "effective n",
        "",
        "System",
        "Number of independent requests that the row's requests are worth for the median "
        "of TTFT: fewer than were sent if some rounds were slower than others.",
        of=lambda row: _ttft(row).n_effective,
    ),
    Total(
        "autocorrelation",
        "autocorrelation",
        "",
        "System",
        "Correlation of the mean TTFT of a round with that of the round before (lag 1); "
        "without correlation, about −1 divided by the number of rounds. If it is high, the "
        "rounds lie too close together.",
        of=lambda row: _ttft(row).autocorrelation,
    ),
    Total(
        "tokens_per_event",
        "tokens per event",
        "",
        "Speed after the first token",
        "Streamed output tokens per event that carries content.",
    ),
    Total(
        "input_tokens",
        "input",
        "tokens",
        "Tokens per request",
        "Mean input tokens of a successful request.",
    ),
    Total(
        "cached_tokens",
        "cached input",
        "tokens",
        "Tokens per request",
        "Mean input tokens that came from the provider's prompt cache, as the "
        "provider reports them.",
    ),
    Total(
        "output_tokens",
        "output",
        "tokens",
        "Tokens per request",
        "Mean output tokens of a successful request, reasoning included.",
    ),
    Total(
        "reasoning_tokens",
        "reasoning",
        "tokens",
        "Tokens per request",
        "Mean output tokens that were reasoning, as the provider reports them.",
    ),
    Total(
        "cost_usd",
        "cost of the row",
        "USD",
        "",
        "Cost of everything that was sent for the row: warm-ups, failures and "
        "losers of races included.",
        higher_is_better=False,
    ),
    Total(
        "usd_per_request",
        "cost per request",
        "USD",
        "",
        "Cost of the measured requests, failed ones included, divided by the successful ones.",
        higher_is_better=False,
    ),
    Total(
        "usd_per_million",
        "cost per million tokens",
        "USD",
        "",
        "Cost of the measured requests per million of their tokens, input and "
        "output in their own mix.",
        higher_is_better=False,
        compared=True,
    ),
    Total(
        "usd_per_million_output",
        "cost per million output tokens",
        "USD",
        "",
        "Cost of the measured requests per million output tokens.",
        higher_is_better=False,
    ),
    Total(
        "tokens_per_usd",
        "tokens per dollar",
        "tokens",
        "",
        "Output tokens for one US dollar, input included: 1,000,000 ÷ cost per "
        "million output tokens.",
        of=lambda row: _divided(MILLION, row.usd_per_million_output),
        higher_is_better=True,
    ),
    Total(
        "cost_adjusted_tps",
        "cost-adjusted TPS",
        "tokens/s per USD",
        "",
        "TPS p50 of one request ÷ cost per million tokens in US dollars.",
        of=lambda row: _divided(FIGURES["tps"].summary(row).p50, row.usd_per_million),
        higher_is_better=True,
    ),
    Total(
        "errors",
        "errors",
        "requests",
        "",
        "Measured requests that failed.",
        higher_is_better=False,
        compared=True,
    ),
    Total("requests", "requests", "requests", "", "Measured requests that were sent."),
    *SESSION_TOTALS,
)


def main_figures(*, inputs: bool = False) -> list[Figure]:
    """Return the figures of the first table. `inputs`: of requests whose answers are no text."""
    return [LATENCY] if inputs else [figure for figure in FIGURES.values() if figure.main]


def main_totals(*, inputs: bool = False) -> list[Total]:
    if inputs:
        names = ("inputs_per_s", "input_tokens_per_s", "usd_per_1000_inputs")
        return [TOTALS[name] for name in names]
    return [total for total in TOTALS.values() if total.main]


def compared_figures(*, open_loop: bool) -> list[Figure]:
    figures: list[Figure] = []
    for figure in FIGURES.values():
        if figure.compared:
            figures += (
                [figure.under(open_loop=True), figure]
                if open_loop and figure.from_due
                else [figure]
            )
    return figures


def ttft_figure(*, open_loop: bool) -> Figure:
    """Return the TTFT to judge by: in an open loop from when the request was due, so that no
    waiting is left out."""
    return FIGURES["ttft_ms"].under(open_loop=open_loop)


def wait_figure(row: RowFields) -> Figure:
    """Return the wait to judge a row by: its TTFT, or its latency if the answers are no text."""
    figure = LATENCY if row.inputs else FIGURES["ttft_ms"]
    return figure.under(open_loop=row.concurrency is None)


def successful(observations: Iterable[Observation]) -> list[Observation]:
    return [o for o in observations if o.role == "measured" and o.ok]


def ended(observations: Iterable[Observation]) -> list[Observation]:
    return sorted(
        (o for o in observations if o.role == "measured" and o.outcome != "cancelled"), key=begin_ns
    )
