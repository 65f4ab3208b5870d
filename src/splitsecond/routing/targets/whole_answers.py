"""Decision whether the answer to a call that is not streamed is requested whole or as a stream.

Answers that the client wants whole are usually requested as streams too: only a stream shows the
first token, and a target that falls silent. That costs several times the processor time. So a short
answer is requested whole if the client's limit on output tokens and the speed of the target bound
its length and time, and nothing waits for its first token. A share of them is still streamed, as a
sample of the speed, but at most one each quarter of a second: more would teach nothing new, and a
stream costs several times as much. All are streamed while the speed is not known well, so a target
with few requests is always asked for streams. Whole answers themselves teach nothing about the
speed.

`fallback` limits the wait for a branch's first token by what is usual. An answer is requested whole
only if three times its expected time fits into that limit.
"""

from random import Random

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.service import Call
from splitsecond.core.wire.output_limit import output_limit
from splitsecond.routing.targets import samples
from splitsecond.routing.targets.estimate import SpeedEstimate

SAMPLED = 0.05
"""The share of calls that are streamed although they could be requested whole."""
MIN_GAP_NS = samples.REFRESH_NS
"""The least time between two of these, of one target: the figures are not computed more often."""
LONGEST_NS = 20 * NS_PER_S
"""A longer answer is streamed, because connections without traffic are cut on the way."""
PATIENCE = 3
"""How long a whole answer may take after the longest allowed wait for a first token, in multiples
of its expected time."""
MIN_SAMPLES = 10.0
OLDEST_NS = 60 * NS_PER_S
"""The age of the latest streamed answer at which the speed is no longer known well."""
REFRESH_NS = NS_PER_S
_AT = 0.95
_NEVER_NS = -(1 << 62)


class WholeAnswers:
    """Decides for one target. Its figures are refreshed every `REFRESH_NS`."""

    __slots__ = ("_refreshed_ns", "_sampled_ns", "_times")

    def __init__(self) -> None:
        self._refreshed_ns = self._sampled_ns = _NEVER_NS
        self._times: tuple[float, float] | None = None  # TTFT and time per output token, ns

    def allowed_ns(
        self, call: Call, estimate: SpeedEstimate, random: Random, now_ns: int
    ) -> int | None:
        """Return how long a whole answer to `call` may take beyond the wait for a first token;
        None: stream it.

        `estimate`: the speed of streamed answers.
        """
        most = output_limit(call.body)
        if most is None:
            return None
        if now_ns - self._refreshed_ns >= REFRESH_NS:
            self._refreshed_ns = now_ns
            self._times = _times(estimate)
        if self._times is None:
            return None
        ttft_ns, tpot_ns = self._times
        expected_ns = ttft_ns + most * tpot_ns
        patience_ns = round(PATIENCE * expected_ns)
        if expected_ns > LONGEST_NS or (
            call.token_due_ns is not None and now_ns + patience_ns > call.token_due_ns
        ):
            return None
        if random.random() < SAMPLED and now_ns - self._sampled_ns >= MIN_GAP_NS:
            self._sampled_ns = now_ns
            return None
        return patience_ns


def _times(estimate: SpeedEstimate) -> tuple[float, float] | None:
    """Return a long TTFT and time per output token; None if they are not known well."""
    if estimate.fresh_samples < MIN_SAMPLES or estimate.age_ns > OLDEST_NS:
        return None
    ttft_ns, tpot_ns = estimate.ttft_ns(_AT), estimate.tpot_ns(_AT)
    return None if ttft_ns is None or tpot_ns is None else (ttft_ns, tpot_ns)
