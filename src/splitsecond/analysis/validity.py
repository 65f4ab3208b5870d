"""Why a row must not be trusted, and what a reader of it should know: two lists of checks, each a sentence or nothing.

An INVALID row is one whose numbers may say more about our client, or about a proxy, than about the target. The bounds
are for the figures that tables print, p50 and p95: the error of each must be at most a tenth of it.
"""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from splitsecond.analysis.asked import AskedCondition
from splitsecond.analysis.figures import ttft_figure
from splitsecond.analysis.findings import ConditionFindings
from splitsecond.analysis.lateness import dispatch_late_ns, exposed_lag_ns, ordered_ms
from splitsecond.analysis.spread import Floats, percentile
from splitsecond.analysis.steady import STEADY_PERCENT, Load, in_flight
from splitsecond.analysis.wording import counted_as, number, percent
from splitsecond.clock import NS_PER_S
from splitsecond.timing.observation import Observation
from splitsecond.wire.dialect import USAGE_WORDS

ERROR_SHARE = 0.1
"""How large the instrument's error may be, as a share of the figure."""

RUNQUEUE_SHARE = 0.2
"""Ready to run but waiting for a processor, as a share of the time: beyond this, a server on this machine waits too."""

BURST_SHARE = 0.02
"""An answer whose tokens all came in the last fiftieth of its time was held back, if also in few pieces."""
BURST_EVENTS_PER_ARRIVAL = 4
SEVERAL_TOKENS = 4
"""An answer shorter than this says nothing about bursts."""

STEADY_REQUESTS = 3
"""A steady window should hold so many answers in a row; in a shorter one the cut-off first and last weigh too much."""

LENGTH_SHARE = 0.05
NOTHING_CACHED = (
    "no prompt came from the provider's cache, or it does not say so, although all began alike; "
    "many providers cache from 1,024 tokens on, some models from 4,096."
)
FAILED_SHARE = 0.01


class Facts(Struct, frozen=True, kw_only=True):
    """What the checks look at. `measured` are the requests that count, `answered` those of them that came whole."""

    asked: AskedCondition
    findings: ConditionFindings
    measured: Sequence[Observation]
    answered: Sequence[Observation]
    load: Load
    cancelled: int


Check = Callable[[Facts], str]


def invalid_reasons(facts: Facts) -> list[str]:
    """Why the numbers of this row must not be trusted."""
    if not facts.measured:
        return ["nothing was measured."]
    return [reason for check in _INVALID if (reason := check(facts))]


def notes(facts: Facts) -> list[str]:
    """What a reader of this row should know."""
    return [note for check in _NOTES if (note := check(facts))]


def _read_lag_in_ttft(facts: Facts) -> str:
    lag = ordered_ms([exposed_lag_ns(o) for o in facts.answered])
    return _too_large("bytes that had arrived waited to be read", lag, facts)


def _dispatch_late(facts: Facts) -> str:
    if not facts.asked.open_loop:
        return ""
    late = ordered_ms([late for o in facts.answered if (late := dispatch_late_ns(o)) is not None])
    return _too_large("requests left later than they were due", late, facts)


def _too_large(what: str, error: Floats, facts: Facts) -> str:
    figure = ttft_figure(open_loop=facts.asked.open_loop)
    spread = getattr(facts.findings, figure.name)
    for name, q, value in (("p50", 0.5, spread.p50), ("p95", 0.95, spread.p95)):
        if value is not None and len(error) and (late := percentile(error, q)) > ERROR_SHARE * value:
            return (
                f"the client was too late: {what}, by {number(late)} ms at {name} where {figure.label} is "
                f"{number(value)} ms (allowed: {percent(ERROR_SHARE)}); use more workers or a less busy machine."
            )
    return ""


def _read_lag_in_tps(facts: Facts) -> str:
    shares = np.sort([exposed_lag_ns(o) / _span_ns(o) for o in facts.answered if o.tps is not None])
    if len(shares) and (share := percentile(shares, 0.95)) > ERROR_SHARE:
        return (
            f"the client was too late: bytes that had arrived waited to be read for {percent(share)} of the time that "
            f"TPS is taken over, at p95 (allowed: {percent(ERROR_SHARE)}); use more workers or a less busy machine."
        )
    return ""


def _concurrency_not_reached(facts: Facts) -> str:
    asked, mean = facts.asked.concurrency, facts.findings.instrument.in_flight
    if asked is None:
        return ""
    if mean is None:
        most = int(in_flight(facts.measured).level.max())
        return (
            f"concurrency {asked} was never reached: at most {counted_as(most, 'measured request was', 'were')} "
            f"under way at a time; send more requests than {asked}, or find what limits the client."
        )
    if mean * 100 < asked * STEADY_PERCENT:
        return (
            f"concurrency {asked} was not held, on average {number(mean)} requests were under way; "
            "failing requests or a slow client left places empty."
        )
    return ""


def _rate_not_reached(facts: Facts) -> str:
    planned_ns, took_ns = facts.load.steady.length_ns, facts.load.sending.length_ns
    if not facts.asked.open_loop or planned_ns * 100 >= took_ns * STEADY_PERCENT:
        return ""
    longer = f"{number(took_ns / planned_ns)} times as long" if planned_ns else "longer"
    return (
        f"the rate was not reached: the requests took {longer} to leave than planned "
        f"({number(took_ns / NS_PER_S)} s, planned {number(planned_ns / NS_PER_S)} s); "
        "use more workers, or a lower rate."
    )


def _burst(facts: Facts) -> str:
    long, held_back = _held_back(facts)
    if held_back * 2 <= long:
        return ""
    return (
        f"the answer came in one burst in {held_back} of {long} requests: TPS and ITL say nothing; "
        "a proxy may buffer the stream, or the server does not stream."
    )


def _collections(facts: Facts) -> str:
    ran = facts.findings.instrument.collections
    times = counted_as(ran, "time", "times")
    return f"Python's garbage collection ran {times} inside the measurement, expected 0." if ran else ""


def _runqueue(facts: Facts) -> str:
    share = facts.findings.instrument.runqueue_wait_share
    if share is None or share <= RUNQUEUE_SHARE:
        return ""
    return (
        f"the client waited for a processor {percent(share)} of the time (allowed: {percent(RUNQUEUE_SHARE)}), "
        "and a server on this machine may have been starved by it; free the machine."
    )


def _counted_by_events(facts: Facts) -> str:
    if not any(o.token_source == "events" for o in facts.answered):
        return ""
    note = "no token counts were reported, so each event counts as one token; TPS may be too low."
    expected = USAGE_WORDS.get(facts.asked.usage)
    return f"{note} The provider is known to send them {expected}: see what lies between." if expected else note


def _cached(facts: Facts) -> str:
    hits = sum(1 for o in facts.answered if o.cached_tokens)
    if facts.asked.cache_reuse:
        return "" if hits or not facts.answered else NOTHING_CACHED
    if not hits:
        return ""
    return f"{hits} of {len(facts.answered)} prompts came partly from the provider's cache, although each was new."


def _length(facts: Facts) -> str:
    asked = facts.asked.output_tokens
    lengths = [o.output_tokens for o in facts.answered if o.output_tokens is not None]
    if not asked or not lengths or abs((got := float(np.median(lengths))) - asked) <= LENGTH_SHARE * asked:
        return ""
    return f"answers had {number(got)} tokens (median), asked for were {asked}."


def _some_bursts(facts: Facts) -> str:
    long, held_back = _held_back(facts)
    if not 0 < held_back * 2 <= long:
        return ""
    return f"{held_back} of {long} answers came in one burst."


def _lag_in_itl(facts: Facts) -> str:
    gap = facts.findings.itl_ms.p50
    lag = ordered_ms([exposed_lag_ns(o) for o in facts.answered])
    if gap is None or not len(lag) or (late := percentile(lag, 0.5)) <= gap:
        return ""
    return f"in half of the requests reads were up to {number(late)} ms late; shorter ITL is blurred."


def _short_window(facts: Facts) -> str:
    windows, steady_s, e2e_ms = len(facts.load.steady.begin), facts.findings.steady_s, facts.findings.e2e_ms.p50
    if facts.asked.open_loop or steady_s is None or e2e_ms is None:
        return ""
    each_s = steady_s / windows
    if each_s * 1000 >= STEADY_REQUESTS * e2e_ms:
        return ""
    return "short steady window: system tokens/s may be some percent too high; send more requests."


def _failed(facts: Facts) -> str:
    if facts.findings.errors <= FAILED_SHARE * facts.findings.requests:
        return ""
    return "percentiles are of the answered requests only; a p99 of all would be a failure."


def _cancelled(facts: Facts) -> str:
    requests = counted_as(facts.cancelled, "request", "requests")
    return f"cancelled before the end, and counted nowhere: {requests}." if facts.cancelled else ""


def _resent(facts: Facts) -> str:
    again = sum(o.resent for o in facts.measured)
    requests = counted_as(again, "request", "requests")
    return f"sent again, as the kept connection turned out closed: {requests}." if again else ""


_INVALID: tuple[Check, ...] = (
    _read_lag_in_ttft,
    _read_lag_in_tps,
    _dispatch_late,
    _concurrency_not_reached,
    _rate_not_reached,
    _burst,
    _collections,
    _runqueue,
)
_NOTES: tuple[Check, ...] = (
    _counted_by_events,
    _cached,
    _length,
    _some_bursts,
    _lag_in_itl,
    _short_window,
    _failed,
    _cancelled,
    _resent,
)


def _held_back(facts: Facts) -> tuple[int, int]:
    """How many answers were long enough to tell, and how many of those came all at once."""
    long = [o for o in facts.answered if (o.streamed_tokens or len(o.token_at)) >= SEVERAL_TOKENS and o.token_at]
    return len(long), sum(came_at_once(o) for o in long)


def came_at_once(o: Observation) -> bool:
    """Whether the content of `o`, which has some, came in one burst: too fast for our lag to tell its tokens apart, or
    at the very end of a long wait and in few pieces. A fast model behind a long queue comes late too, but in many."""
    span, e2e = _span_ns(o), o.e2e_ns or 0
    arrivals = len(set(o.token_at))
    few = arrivals == 1 or arrivals * BURST_EVENTS_PER_ARRIVAL <= len(o.token_at)
    return span < 2 * exposed_lag_ns(o) or (few and span <= BURST_SHARE * e2e)


def _span_ns(o: Observation) -> int:
    return (o.last_token_ns or 0) - (o.first_token_ns or 0)
