"""Validity of a row: reasons why it must not be trusted, and notes for its reader. Each check
returns a sentence or "".

The numbers of an INVALID row may say more about our client, or about a proxy, than about the
target. A percentile without the client's delays must be the same up to `ERROR_SHARE` or `ERROR_MS`,
whichever is more; delays that change no figure do not matter.
"""

import numpy as np

from splitsecond.benchmark.rows.check_inputs import ERROR_SHARE, Check, CheckInputs
from splitsecond.benchmark.rows.figures import ttft_figure, wait_figure
from splitsecond.benchmark.rows.lateness import (
    dispatch_late_ns,
    exposed_lag_ns,
    first_token_range_ns,
    ordered_ms,
)
from splitsecond.benchmark.rows.stationary import from_empty, not_stationary
from splitsecond.benchmark.statistics.sessions import as_requests, critical_path, sessions_of
from splitsecond.benchmark.statistics.steady import (
    STEADY_PERCENT,
    done_ns,
    due_ns,
    ended_in,
    in_flight,
)
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import BURST_SHARE, Observation
from splitsecond.core.wire.api_format import USAGE_WORDS
from splitsecond.core.wording import counted, counted_as, listed, number, percent
from splitsecond.log.statistics.summary import (
    MIN_CLUSTERS,
    MIN_ROUNDS,
    PERCENTILES,
    Floats,
    needed,
    percentile,
)

BROKEN_SHARE = 0.1
"""Share of sessions that may break: the turns after it are those of the others only."""
UNPRIMED_SHARE, UNPRIMED_RATIO = 0.2, 3.0
"""Share of first turns that may miss a cache that was primed, and how many times that of later
turns it may be: what misses as often in later turns is the provider's cache, not the priming."""
NAMES_SHOWN = 3
ALLOWED = f"allowed: {percent(ERROR_SHARE)}"
LESS_BUSY = "Use more workers or a less busy machine."


def sessions_late(inputs: CheckInputs) -> str:
    """Return whether turns left late. It does not change TTFT, but the time of sessions."""
    if inputs.findings.session is None:
        return ""
    paths = [critical_path(session.turns) for session in sessions_of(inputs.measured)]
    late_ns = sum(dispatch_late_ns(o) or 0 for path in paths for o in path)
    length_ns = sum(done_ns(path[-1]) - due_ns(path[0]) for path in paths)
    if late_ns <= ERROR_SHARE * length_ns:
        return ""
    mean_ms = late_ns / sum(map(len, paths)) / NS_PER_MS
    return (
        f"client overloaded: turns were sent {number(mean_ms)} ms late on average, so session time "
        f"is {percent(late_ns / length_ns)} too long ({ALLOWED}). {LESS_BUSY}"
    )


def primed_badly(inputs: CheckInputs) -> str:
    session = inputs.findings.session
    if session is None or not session.primed:
        return ""
    first = len(session.unprimed) / session.primed
    later = (session.misses - len(session.unprimed)) / max(session.reusing - session.primed, 1)
    if first <= UNPRIMED_SHARE or first <= UNPRIMED_RATIO * later:
        return ""
    more = len(session.unprimed) - NAMES_SHOWN
    examples = [
        name.removeprefix(f"{inputs.asked.condition}-") for name in session.unprimed[:NAMES_SHOWN]
    ]
    names = [*examples, *([f"{more:,} more"] if more > 0 else [])]
    how = "reports no cached tokens and takes" if session.cache_by == "usage" else "takes"
    return (
        f"the cache was primed badly in {len(session.unprimed):,} of {session.primed:,} sessions "
        f"({listed(names)}): their "
        f"first turn {how} as long as a fresh prompt. Later turns missed in {percent(later)}."
    )


def sessions_broke(inputs: CheckInputs) -> str:
    session = inputs.findings.session
    ended = 0 if session is None else session.finished + session.broken
    if session is None or session.broken <= BROKEN_SHARE * ended:
        return ""
    return (
        f"{session.broken:,} of {ended:,} sessions that ended broke "
        f"({counted(inputs.findings.error_kinds)}), so later "
        "turns are those of the other sessions only."
    )


def few_sessions(inputs: CheckInputs) -> str:
    session = inputs.findings.session
    if session is None or inputs.findings.ttft_ms.rounds or session.sessions >= MIN_CLUSTERS:
        return ""
    return (
        f"{counted_as(session.sessions, 'session is', 'sessions are')} too few for intervals: it "
        f"takes {MIN_CLUSTERS}, or {MIN_ROUNDS} rounds."
    )


ERROR_MS = 1.0
"""Error of a percentile that is always allowed, in ms."""

SHOWN = ("p50", "p95")
RUNQUEUE_SHARE = 0.2
"""Share of the time that our process may wait for a processor without a note."""

BURST_EVENTS_PER_ARRIVAL = 4
"""A response was buffered if its tokens arrived in so few reads, in the last `BURST_SHARE` of its
time."""
SEVERAL_TOKENS = 4
LENGTH_SHARE = 0.05
NOTHING_CACHED = (
    "no prompt came from the provider's cache, or the provider does not report it, although all "
    "share a beginning. Many providers cache from 1,024 tokens on, some models from 4,096."
)
FAILED_SHARE = 0.01


def invalid_reasons(inputs: CheckInputs) -> list[str]:
    if not inputs.measured:
        return ["nothing was measured."]
    return [reason for check in _INVALID if (reason := check(inputs))]


def invalid_of_node(inputs: CheckInputs) -> list[str]:
    return [reason for check in _INVALID_OF_NODE if (reason := check(inputs))]


def notes(inputs: CheckInputs) -> list[str]:
    return [note for check in _NOTES if (note := check(inputs))]


def _read_lag_in_ttft(inputs: CheckInputs) -> str:
    figure = ttft_figure(open_loop=inputs.asked.open_loop)
    timed = [o for o in inputs.answered if figure.value(o) is not None]
    ranges = [first_token_range_ns(o) for o in timed]
    if not any(early or late for early, late in ranges):
        return ""
    values = np.array([figure.value(o) for o in timed], dtype=np.float64)
    early, late = (values + bound for bound in np.array(ranges, dtype=np.float64).T / NS_PER_MS)
    if (first_error := _first_error(values, early, late)) is None:
        return ""
    name, value, error = first_error
    return (
        f"client overloaded: first tokens were read late, so {figure.label} of {number(value)} ms "
        f"at {name} may be wrong by {number(error)} ms ({ALLOWED}, at least {ERROR_MS:g} ms). "
        f"{LESS_BUSY}"
    )


def _dispatch_late(inputs: CheckInputs) -> str:
    if not inputs.asked.open_loop:
        return ""
    figure = wait_figure(inputs.findings)
    waits = [
        (value, dispatch_late_ns(o) or 0) for o in inputs.answered if (value := figure.value(o))
    ]
    if not any(late for _, late in waits):
        return ""
    values, late_ms = (
        np.array([v for v, _ in waits]),
        np.array([late for _, late in waits]) / NS_PER_MS,
    )
    if (first_error := _first_error(values, np.maximum(values - late_ms, 0.0), values)) is None:
        return ""
    name, value, error = first_error
    return (
        "client overloaded: requests were sent later than they were due, which makes "
        f"{name} of {figure.label} up to {number(error)} ms too high: {number(value)} ms "
        f"({ALLOWED}). {LESS_BUSY}"
    )


def _first_error(values: Floats, low: Floats, high: Floats) -> tuple[str, float, float] | None:
    values, low, high = (np.sort(each) for each in (values, low, high))
    for name, q in _judged(len(values)):
        value, error = percentile(values, q), percentile(high, q) - percentile(low, q)
        if error > max(ERROR_SHARE * value, ERROR_MS):
            return name, value, error
    return None


def _judged(n: int) -> list[tuple[str, float]]:
    return [(name, q) for name, q in PERCENTILES.items() if name in SHOWN or n >= needed(q)]


def _read_lag_in_tps(inputs: CheckInputs) -> str:
    ranges = [(o, *first_token_range_ns(o)) for o in inputs.answered]
    errors = [(o, late - early + o.last_merged_ns) for o, early, late in ranges]
    timed = [(o.tps, error_ns / _span_ns(o), error_ns) for o, error_ns in errors if o.tps]
    if not any(error_ns > ERROR_MS * NS_PER_MS for _, _, error_ns in timed):
        return ""
    values = np.array([tps for tps, _, _ in timed])
    shares = np.array(
        [share if error_ns > ERROR_MS * NS_PER_MS else 0.0 for _, share, error_ns in timed]
    )
    with_delays, without = np.sort(values), np.sort(values / (1 + shares))
    for name, q in _judged(len(timed)):
        value = percentile(with_delays, 1 - q)
        # 2% is not more than 2%
        if (error := round(value / percentile(without, 1 - q) - 1, 9)) > ERROR_SHARE:
            sparse = any(o.last_merged_ns for o in inputs.answered)
            return (
                f"client overloaded: tokens were read late, so {name} of TPS may be wrong by "
                f"{percent(error)} ({ALLOWED}). Use "
                f"{'`--itl exact`' if sparse else 'more workers'} or a less busy machine."
            )
    return ""


def _stood_still(inputs: CheckInputs) -> str:
    frozen = sorted({span for reading in inputs.readings for span in reading.frozen})
    if not frozen:
        return ""
    touched = sum(
        any(o.start_ns < end and o.end_ns > begin for begin, end in frozen) for o in inputs.measured
    )
    seconds = sum(end - begin for begin, end in frozen) / NS_PER_S
    window_s = inputs.load.whole.length_ns / NS_PER_S
    if touched <= FAILED_SHARE * len(inputs.measured) and seconds <= ERROR_SHARE * window_s:
        return ""
    return (
        f"the client stood still for {number(seconds)} s (the process or its machine was paused) "
        f"while {touched:,} of {len(inputs.measured):,} requests were in flight."
    )


def _concurrency_not_reached(inputs: CheckInputs) -> str:
    slots, mean = inputs.asked.concurrency, inputs.findings.instrument.in_flight
    what = "request" if inputs.findings.session is None else "session"
    if slots is None:
        return ""
    if mean is None:
        measured = (
            inputs.measured if inputs.findings.session is None else as_requests(inputs.measured)
        )
        most = int(in_flight(measured, open_loop=False).level.max())
        return (
            f"concurrency {slots} was never reached: at most "
            f"{counted_as(most, f'{what} was', f'{what}s were')} in "
            f"flight. Send more {what}s than {slots}, or find what limits the client."
        )
    if mean * 100 < slots * STEADY_PERCENT:
        return (
            f"concurrency {slots} was not kept: on average {number(mean)} {what}s were in flight. "
            f"{what.capitalize()}s failed, or the client was slow."
        )
    return ""


def _rate_not_reached(inputs: CheckInputs) -> str:
    planned_ns, took_ns = inputs.load.steady.length_ns, inputs.load.sending.length_ns
    if not inputs.asked.open_loop or planned_ns * 100 >= took_ns * STEADY_PERCENT:
        return ""
    longer = f"{number(took_ns / planned_ns)} times as long" if planned_ns else "longer"
    return (
        f"the rate was not reached: sending the requests took {longer} than planned "
        f"({number(took_ns / NS_PER_S)} s, planned {number(planned_ns / NS_PER_S)} s). "
        "Use more workers, or a lower rate."
    )


def _clocks_of_nodes(inputs: CheckInputs) -> str:
    readings = [reading for reading in inputs.readings if reading.node]
    windows = inputs.load.steady
    if len({reading.node for reading in readings}) < 2 or not windows.length_ns:
        return ""
    error_ns = max(reading.clock_error_ns for reading in readings)
    share = 2 * error_ns * len(windows.begin) / windows.length_ns  # both ends of each window
    if share <= ERROR_SHARE:
        return ""
    return (
        f"the clocks of the nodes are known to ±{number(error_ns / NS_PER_MS)} ms only, so "
        f"throughput may be wrong by {percent(share)} ({ALLOWED}). Use longer rounds, or a faster "
        "network to the nodes."
    )


def _lost(inputs: CheckInputs) -> str:
    losses = dict.fromkeys(reading.lost for reading in inputs.readings if reading.lost)
    return (
        f"lost during a block: {'; '.join(losses)}. What it had finished is kept." if losses else ""
    )


def _burst(inputs: CheckInputs) -> str:
    long, held_back = _held_back(inputs)
    if held_back * 2 <= long:
        return ""
    return (
        f"the response arrived in one burst in {held_back:,} of {long:,} requests, so TPS and ITL "
        "mean nothing. A proxy may buffer the stream, or the server does not stream."
    )


def _collections(inputs: CheckInputs) -> str:
    ran = inputs.findings.instrument.collections
    times = counted_as(ran, "time")
    return (
        f"Python's garbage collection ran {times} during the measurement, expected 0."
        if ran
        else ""
    )


def _runqueue(inputs: CheckInputs) -> str:
    share = inputs.findings.instrument.runqueue_wait_share
    if share is None or share <= RUNQUEUE_SHARE:
        return ""
    return (
        f"the client waited for a processor {percent(share)} of the time. That is not part of the "
        "figures, but a server on this machine may have waited, too."
    )


def _counted_by_events(inputs: CheckInputs) -> str:
    if not any(o.token_source == "events" and not o.inputs for o in inputs.answered):
        return ""
    note = (
        "no final token counts were reported, so each event counts as one token and TPS may be "
        "too low."
    )
    expected = USAGE_WORDS.get(inputs.asked.usage)
    return (
        f"{note} The provider is known to send them {expected}: check for a proxy."
        if expected
        else note
    )


def _implausible_counts(inputs: CheckInputs) -> str:
    estimated = sum(o.token_source == "estimate" for o in inputs.answered)
    if not estimated:
        return ""
    return (
        f"{estimated:,} of {len(inputs.answered):,} responses report token counts that cannot be "
        "true, so each of their events counts as one token and TPS may be too low."
    )


def _cached(inputs: CheckInputs) -> str:
    if inputs.findings.session is not None:
        return ""
    hits = sum(1 for o in inputs.answered if o.cached_tokens)
    if inputs.asked.cache_reuse:
        return "" if hits or not inputs.answered else NOTHING_CACHED
    if not hits or inputs.asked.shared_blocks:
        return ""
    return (
        f"{hits:,} of {len(inputs.answered):,} prompts came partly from the provider's cache, "
        "although each was new."
    )


def _length(inputs: CheckInputs) -> str:
    requested = inputs.asked.output_tokens
    lengths = [o.output_tokens for o in inputs.answered if o.output_tokens is not None]
    if (
        not requested
        or not lengths
        or abs((got := float(np.median(lengths))) - requested) <= LENGTH_SHARE * requested
    ):
        return ""
    return f"responses had {number(got)} tokens (median) instead of the requested {requested:,}."


def _merged_first_tokens(inputs: CheckInputs) -> str:
    reads = inputs.findings.instrument
    if not reads.first_tokens_merged:
        return ""
    return (
        f"{counted_as(reads.first_tokens_merged, 'first token was', 'first tokens were')} read "
        "together with later "
        f"ones, and dated back by at most {number(reads.first_merged_max_ms)} ms."
    )


def _some_bursts(inputs: CheckInputs) -> str:
    long, held_back = _held_back(inputs)
    if not 0 < held_back * 2 <= long:
        return ""
    return f"{held_back:,} of {long:,} responses arrived in one burst."


def _sparse(inputs: CheckInputs) -> str:
    reads = inputs.findings.instrument
    if not reads.sparse:
        return ""
    merged = reads.last_tokens_merged and (
        f" {counted_as(reads.last_tokens_merged, 'last token')} may have come up to "
        f"{number(reads.last_merged_max_ms)} ms earlier."
    )
    return (
        f"ITL was not measured in {reads.sparse:,} of {len(inputs.measured):,} requests, which "
        f"were read seldom to save processor time. `--itl exact` measures it.{merged or ''}"
    )


def _lag_in_itl(inputs: CheckInputs) -> str:
    gap = inputs.findings.itl_ms.p50
    lag = ordered_ms([exposed_lag_ns(o) for o in inputs.answered])
    if gap is None or not len(lag) or (late := percentile(lag, 0.5)) <= gap:
        return ""
    return (
        f"in half of the requests, reads were up to {number(late)} ms late: shorter ITL is blurred."
    )


def _few_rounds(inputs: CheckInputs) -> str:
    rounds = len({o.round for o in inputs.measured if o.round})
    if not 0 < rounds < MIN_ROUNDS:
        return ""
    return (
        f"measured in {counted_as(rounds, 'round')}: the intervals describe this short "
        f"time only. {MIN_ROUNDS} rounds or more also show the scatter between them."
    )


def _load_fell(inputs: CheckInputs) -> str:
    windows = inputs.load.steady
    if inputs.asked.open_loop or not windows.length_ns:
        return ""
    outside = len(inputs.measured) - ended_in(inputs.measured, windows)
    if outside <= FAILED_SHARE * len(inputs.measured):
        return ""
    return (
        f"{outside:,} of {len(inputs.measured):,} requests ended when the load had begun to "
        "fall, and may be too fast."
    )


def _failed(inputs: CheckInputs) -> str:
    if inputs.findings.errors <= FAILED_SHARE * inputs.findings.requests:
        return ""
    share = inputs.findings.errors / inputs.findings.requests
    beyond = listed([name for name, place in PERCENTILES.items() if share > 1 - place])
    return f"failed requests count as slower than all others, so {beyond} cannot be stated."


def _cancelled(inputs: CheckInputs) -> str:
    requests = counted_as(inputs.cancelled, "request was", "requests were")
    return f"{requests} cancelled before the end, and not counted." if inputs.cancelled else ""


def _resent(inputs: CheckInputs) -> str:
    again = sum(o.resent for o in inputs.measured)
    requests = counted_as(again, "request")
    return f"{requests} resent: the server had closed the idle connection." if again else ""


_INVALID: tuple[Check, ...] = (
    _read_lag_in_ttft,
    _read_lag_in_tps,
    _dispatch_late,
    _concurrency_not_reached,
    _rate_not_reached,
    _burst,
    _collections,
    _stood_still,
    sessions_late,
    primed_badly,
    sessions_broke,
    not_stationary,
    _clocks_of_nodes,
)
_INVALID_OF_NODE: tuple[Check, ...] = (
    _lost,
    _read_lag_in_ttft,
    _read_lag_in_tps,
    _dispatch_late,
    _stood_still,
)
_NOTES: tuple[Check, ...] = (
    _counted_by_events,
    _implausible_counts,
    _cached,
    _length,
    _merged_first_tokens,
    _some_bursts,
    _sparse,
    _lag_in_itl,
    _few_rounds,
    few_sessions,
    _load_fell,
    from_empty,
    _runqueue,
    _failed,
    _cancelled,
    _resent,
)


def _held_back(inputs: CheckInputs) -> tuple[int, int]:
    long = [
        o
        for o in inputs.answered
        if (o.streamed_tokens or len(o.token_at)) >= SEVERAL_TOKENS and o.token_at
    ]
    return len(long), sum(came_at_once(o) for o in long)


def came_at_once(o: Observation) -> bool:
    """Return whether the content of `o`, which must have some, arrived in one burst.

    That is: too fast for our lag to separate its tokens, or at the very end of a long wait in few
    reads. A fast model behind a long queue arrives in many reads.
    """
    span, e2e = _span_ns(o), o.e2e_ns or 0
    arrivals = len(set(o.token_at))
    few = not o.sparse and (arrivals == 1 or arrivals * BURST_EVENTS_PER_ARRIVAL <= len(o.token_at))
    return span < 2 * exposed_lag_ns(o) or (few and span <= BURST_SHARE * e2e)


def _span_ns(o: Observation) -> int:
    return (o.last_token_ns or 0) - (o.first_token_ns or 0)
