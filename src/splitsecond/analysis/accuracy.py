"""The instrument's own error: what it saw, held against when a server on the same machine says that it sent.

Both stamps are of the same clock, so their difference is the error, delivery through the kernel's loopback included.
What is compared: the arrival of the first token with the moment right before the server's write of it (the error of
TTFT), the same for every token, and the time per output token of a request with the server's own.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from splitsecond.analysis.findings import Spread
from splitsecond.analysis.spread import spread
from splitsecond.analysis.wording import percent
from splitsecond.clock import NS_PER_MS
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation

TRUSTED_TTFT_MS = 2.0
"""p99 of the error of TTFT up to which a load can be trusted: 1 % of the fastest use's limit on TTFT (200 ms)."""
TRUSTED_TPOT_SHARE = 0.02
"""p99 of the error of TPOT, relative to it, up to which a load can be trusted."""


class Accuracy(Struct, kw_only=True):
    """The instrument's error with `streams` answers under way. Errors are absolute values.

    `cpu_ms_per_1000_tokens`: what measuring cost. `in_flight`: the most answers under way at once. `trusted`: the
    load can be trusted, by the limits above; `why_not` says what spoils it.
    """

    streams: int
    requests: int
    failed: int
    tokens: int
    ttft_error_ms: Spread
    token_error_ms: Spread
    tpot_error_share: Spread
    read_lag_ms: Spread
    cpu_ms_per_1000_tokens: float | None
    in_flight: int
    trusted: bool
    why_not: str = ""


def accuracy(
    streams: int,
    observations: Sequence[Observation],
    sent_ns: Mapping[str, Sequence[int]],
    readings: Sequence[InstrumentReading],
) -> Accuracy:
    """Compares observations with what the server says: `sent_ns` maps an observation's id to when each token left.

    Warm-ups are not compared, but their tokens count for what measuring cost, as the readings cover them too. An
    observation that the server knows nothing of, or that has another number of content events than tokens were
    sent, counts as failed: it cannot be compared, so it must not be trusted.
    """
    measured = [o for o in observations if o.role == "measured"]
    comparable = [o for o in measured if o.ok and len(sent_ns.get(o.id, ())) == len(o.token_at) > 1]
    firsts, tokens, paces = [], [np.empty(0)], []
    for o in comparable:
        seen, sent = np.asarray(o.token_at), np.asarray(sent_ns[o.id])
        errors = np.abs(seen - sent) / NS_PER_MS
        firsts.append(float(errors[0]))
        tokens.append(errors)
        true_span = int(sent[-1] - sent[0])
        paces.append(abs(int(seen[-1] - seen[0]) - true_span) / true_span)
    counted = sum(len(o.token_at) for o in observations if o.role in ("measured", "warmup"))
    cpu_ns = sum(reading.cpu_ns for reading in readings)
    result = Accuracy(
        streams=streams,
        requests=len(measured),
        failed=len(measured) - len(comparable),
        tokens=counted,
        ttft_error_ms=spread(firsts),
        token_error_ms=spread(np.concatenate(tokens), independent=False),
        tpot_error_share=spread(paces),
        read_lag_ms=spread([o.lag_max_ns / NS_PER_MS for o in comparable]),
        cpu_ms_per_1000_tokens=cpu_ns / NS_PER_MS / counted * 1000 if counted and cpu_ns else None,
        in_flight=sum(reading.peak_in_flight for reading in readings),
        trusted=False,
    )
    result.why_not = _doubt(result)
    result.trusted = not result.why_not
    return result


def _doubt(result: Accuracy) -> str:
    """What spoils the trust in a load; "" where nothing does."""
    ttft, pace = result.ttft_error_ms.p99, result.tpot_error_share.p99
    if ttft is None or pace is None:
        return "nothing could be compared"
    if result.failed:
        return f"{result.failed} of {result.requests} requests failed or cannot be compared"
    if result.in_flight < result.streams:
        return f"only {result.in_flight} of {result.streams} answers were under way at once"
    if ttft > TRUSTED_TTFT_MS:
        return f"the error of TTFT is {ttft:.2f} ms at p99 (allowed: {TRUSTED_TTFT_MS:g} ms)"
    if pace > TRUSTED_TPOT_SHARE:
        return f"the error of TPOT is {percent(pace)} at p99 (allowed: {percent(TRUSTED_TPOT_SHARE)})"
    return ""
