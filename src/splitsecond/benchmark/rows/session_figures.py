from collections.abc import Callable

from splitsecond.benchmark.rows.metric import Figure, Total
from splitsecond.benchmark.rows.row_fields import Estimated, RowFields, SessionFindings
from splitsecond.core.observation import Observation


def _of_sessions(row: RowFields) -> bool:
    return row.session is not None


def _begins(o: Observation) -> bool:
    return o.turn is not None and o.turn.turn == 1


def _goes_on(o: Observation) -> bool:
    return o.turn is not None and o.turn.turn > 1


SESSION_FIGURES = (
    Figure(
        "ttft_first_turn_ms",
        "TTFT of first turns",
        "ms",
        "Sessions",
        ("TTFT of the first turns of sessions and of their sub-agents: most of the prompt is new."),
        of=lambda o: o.ttft_ns,
        among=_begins,
        listed=("p50", "p95"),
        applies=_of_sessions,
        compared=True,
    ),
    Figure(
        "ttft_later_turns_ms",
        "TTFT of later turns",
        "ms",
        "Sessions",
        ("TTFT of all later turns, whose prompt begins with the turn before and its answer."),
        of=lambda o: o.ttft_ns,
        among=_goes_on,
        listed=("p50", "p95"),
        applies=_of_sessions,
        compared=True,
    ),
)


def _session_total(
    name: str,
    label: str,
    unit: str,
    definition: str,
    of: Callable[[SessionFindings], Estimated | float],
    *,
    higher_is_better: bool | None = None,
    compared: bool = False,
) -> Total:
    def estimated(row: RowFields) -> Estimated:
        estimate = Estimated() if row.session is None else of(row.session)
        return estimate if isinstance(estimate, Estimated) else Estimated(estimate)

    return Total(
        name,
        label,
        unit,
        "Sessions",
        definition,
        of=lambda row: estimated(row).value,
        higher_is_better=higher_is_better,
        compared=compared,
        tested=compared,
        ci95_of=lambda row: estimated(row).ci95,
        by_round=lambda row: row.session.by_round.get(name, {}) if row.session else {},
    )


SESSION_TOTALS = (
    _session_total(
        "sessions", "sessions", "", "Sessions that were measured.", lambda s: s.sessions
    ),
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
        "Mean time of a session, its tools included: the time of all sessions in flight during the "
        "rounds ÷ the sessions that were finished in them.",
        lambda s: s.session_s,
        higher_is_better=False,
        compared=True,
    ),
    _session_total(
        "session_waiting_s",
        "waiting in a session",
        "s",
        "Mean time of a session until first tokens, along the critical path: the turns without "
        "which the session would have gone on sooner.",
        lambda s: s.waiting_s,
        higher_is_better=False,
        compared=True,
    ),
    _session_total(
        "session_waiting_share",
        "waiting for first tokens",
        "share",
        "Share of the time of sessions until first tokens, along the critical path.",
        lambda s: s.waiting_share,
        higher_is_better=False,
    ),
    _session_total(
        "session_generating_share",
        "generating",
        "share",
        "Share of the time of sessions from first tokens to the ends of answers, along the "
        "critical path.",
        lambda s: s.generating_share,
    ),
    _session_total(
        "session_tools_share",
        "tools",
        "share",
        "The rest of the time of sessions: from the end of an answer on the critical path to the "
        "next turn.",
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
        compared=True,
    ),
    _session_total(
        "prefill_tokens_per_s",
        "prefill speed",
        "tokens/s",
        "New input tokens that the server reads per second, by a robust fit of TTFT = fixed part + "
        "new tokens ÷ prefill speed + cached tokens × their cost.",
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
        "Turns that found less than half of their ideal in the prompt cache, of those whose ideal "
        "is 1,024 tokens or more. Where the provider reports no cached tokens, TTFT decides.",
        lambda s: s.miss_share,
        higher_is_better=False,
    ),
    _session_total(
        "cache_miss_s",
        "cost of a cache miss",
        "s",
        "Mean time that a cache miss adds to TTFT: its missing tokens × (time of a new token − "
        "that of a cached one).",
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
        "Cost of the turns during the rounds ÷ the sessions that were finished in them.",
        lambda s: s.usd,
        higher_is_better=False,
        compared=True,
    ),
    _session_total(
        "usd_per_session_uncached",
        "cost without a cache",
        "USD",
        "Cost of a session if all of its input had the price of new input.",
        lambda s: s.usd_uncached,
    ),
)
