"""Live estimate of the speed of one target, streamed or not, from its observations.

Time to first token counts from the beginning of connecting (`ttft_cold_ns`), because a request that
needs a connection waits for it. It grows with the prompt if the samples show that
(`samples.slope`). Requests that are waiting for their token now are censored samples already, so a
target that has fallen silent looks slow before the first of them fails.

Time per output token and the length of answers come from answers that ended well. Before the first
of them, an answer that was closed early has a time per token, too.
"""

import math
from collections.abc import Mapping, Sequence, Sized
from random import Random
from typing import NamedTuple

from splitsecond.core import clock
from splitsecond.core.observation import Observation
from splitsecond.core.timing.survival import SurvivalCurve
from splitsecond.routing.targets.samples import Sample, Samples, Weighted

MIN_SPREAD = 0.1
"""The uncertainty of the logarithm of a time that remains with any number of samples."""
SURE = 1.28
"""Standard errors beyond which a limit is broken: by chance one time in ten."""
MAX_TIMES_MEDIAN = 10
"""The longest time that counts for a mean, in medians: one timeout must not decide where the next
100 calls go."""


class SpeedEstimate:
    def __init__(self, waiting: Mapping[str, int] | None = None, in_flight: Sized = ()) -> None:
        """`waiting`: since when each request waits for its token; `in_flight`: all requests to the
        target."""
        self._in_flight = in_flight
        self._ttft = Samples(waiting)
        self._tpot = Samples()
        self._tokens = Samples()

    def observe(self, observation: Observation, load: int | None = None) -> None:
        """Add an attempt. `load`: how many other requests were in flight when it was sent."""
        at_ns = observation.end_ns
        first = first_token(observation, observation.first_token_ns or at_ns, load)
        if first is not None:
            self._ttft.add(first)
        ok = observation.outcome == "ok"
        if ok or (observation.outcome == "cancelled" and not len(self._tpot)):
            tpot_ns = observation.tpot_ns
            if tpot_ns is not None:
                self._tpot.add(Sample(at_ns, tpot_ns))
        # asks for one token
        if ok and observation.output_tokens is not None and observation.role != "calibration":
            self._tokens.add(Sample(at_ns, observation.output_tokens))

    def record_first_token(self, ns: int, now_ns: int) -> None:
        self._ttft.stop_waiting(ns, now_ns)

    def seed(self, observations: Sequence[tuple[int, Observation]]) -> None:
        firsts = [first_token(observation, at_ns) for at_ns, observation in observations]
        self._ttft.seed(first for first in firsts if first is not None)
        whole = [
            (at_ns, observation)
            for at_ns, observation in observations
            if observation.outcome == "ok"
        ]
        self._tpot.seed(Sample(at_ns, o.tpot_ns) for at_ns, o in whole if o.tpot_ns is not None)
        self._tokens.seed(
            Sample(at_ns, o.output_tokens) for at_ns, o in whole if o.output_tokens is not None
        )

    def weighted(self) -> tuple[list[Weighted], list[Weighted], list[Weighted]]:
        now_ns = clock.now_ns()
        return (
            self._ttft.weighted(now_ns),
            self._tpot.weighted(now_ns),
            self._tokens.weighted(now_ns),
        )

    def receive(
        self, ttft: Sequence[Weighted], tpot: Sequence[Weighted], tokens: Sequence[Weighted]
    ) -> None:
        self._ttft.receive(ttft)
        self._tpot.receive(tpot)
        self._tokens.receive(tokens)

    def ttft_ns(self, at: float | None = 0.5, *, input_tokens: int | None = None) -> float | None:
        """Return the quantile `at` of the time to first token in ns; with `at` None its mean."""
        curve = self._ttft.curve(clock.now_ns())
        if curve is None:
            return None
        base_ns = _figure(curve, at)
        longer = (
            0.0
            if input_tokens is None
            else self._ttft.slope * (input_tokens - self._ttft.typical_size)
        )
        return max(base_ns + longer, curve.least / 2) if longer else base_ns

    def keeps(self, limit_ns: float, at: float, *, input_tokens: int | None = None) -> bool | None:
        """Return whether TTFT keeps a limit, None if nothing is known.

        The quantile `at` is within the limit, or the share beyond it exceeds 1 − `at` by less than
        `SURE` standard errors: near the limit, one slow request among the latest must not decide.
        """
        curve = self._ttft.curve(clock.now_ns())
        if curve is None:
            return None
        longer = (
            0.0
            if input_tokens is None
            else self._ttft.slope * (input_tokens - self._ttft.typical_size)
        )
        if curve.quantile(at) + longer <= limit_ns:
            return True
        error = math.sqrt(at * (1 - at) / curve.weight)
        return curve.waiting(limit_ns - longer) <= 1 - at + SURE * error

    def own_load_factor(self) -> float:
        """Return by how much TTFT differs from the estimate, because more or fewer requests are in
        flight than usual.

        1 unless the samples show that TTFT grows with our own requests.
        """
        return self._ttft.load_factor(len(self._in_flight))

    @property
    def grows_with_prompt(self) -> bool:
        return self._ttft.slope != 0

    def ttft_is_bound(self, at: float = 0.5) -> bool:
        curve = self._ttft.curve(clock.now_ns())
        return curve is not None and curve.is_lower_bound(at)

    def expected_times(self) -> "ExpectedTimes":
        return ExpectedTimes(
            self._ttft.curve(clock.now_ns()), self._ttft.slope, self._ttft.typical_size
        )

    def tpot_ns(self, at: float | None = 0.5) -> float | None:
        curve = self._tpot.curve(clock.now_ns())
        return None if curve is None else _figure(curve, at)

    def output_tokens(self) -> float | None:
        return self._tokens.mean(clock.now_ns())

    def expected_ns(
        self, input_tokens: int | None, output_tokens: float, at: float = 0.5
    ) -> float | None:
        """Return the expected time to the end of an answer of `output_tokens`: TTFT, plus TPOT for
        each token.

        An unknown TPOT counts as 0, so that a target is tried rather than never measured.
        """
        ttft_ns = self.ttft_ns(at, input_tokens=input_tokens)
        return None if ttft_ns is None else ttft_ns + output_tokens * (self.tpot_ns(at) or 0.0)

    @property
    def samples(self) -> float:
        curve = self._ttft.curve(clock.now_ns())
        return 0.0 if curve is None else curve.weight

    @property
    def fresh_samples(self) -> float:
        return self._ttft.fresh(clock.now_ns())

    @property
    def age_ns(self) -> int:
        return clock.now_ns() - self._ttft.latest_ns if len(self._ttft) else 0

    def draw(self, random: Random) -> float:
        """Draw a factor by which the true time may differ from the estimate, given its uncertainty.

        For Thompson sampling: multiply each target's expected time by its factor and take the
        least. The logarithm is normal; its deviation is that of the samples divided by the square
        root of their number.
        """
        curve = self._ttft.curve(clock.now_ns())
        if curve is None:
            return math.exp(random.gauss(0.0, 1.0))
        middle = max(curve.quantile(0.5), 1.0)
        spread = max(math.log(max(curve.quantile(0.84), middle) / middle), MIN_SPREAD)
        return math.exp(random.gauss(0.0, min(spread / math.sqrt(max(curve.weight, 0.1)), 1.0)))


class ExpectedTimes(NamedTuple):
    curve: SurvivalCurve | None
    slope: float
    typical_size: float

    def waiting(self, ns: int, input_tokens: int) -> float:
        return 1.0 if self.curve is None else self.curve.waiting(ns - self._longer(input_tokens))

    def longest_ns(self, input_tokens: int) -> float | None:
        base_ns = None if self.curve is None else self.curve.quantile_of_ended(0.95)
        return None if base_ns is None else base_ns + self._longer(input_tokens)

    def _longer(self, input_tokens: int) -> float:
        return self.slope * (input_tokens - self.typical_size)


def _figure(curve: SurvivalCurve, at: float | None) -> float:
    return curve.mean(MAX_TIMES_MEDIAN * curve.quantile(0.5)) if at is None else curve.quantile(at)


def first_token(observation: Observation, at_ns: int, load: int | None = None) -> Sample | None:
    """Return the sample of the time to first token in `observation`, or None.

    A request that failed before its token for another reason than time shows that a target is down,
    not slow.
    """
    if observation.sent_ns is None:
        return None
    ttft_ns = observation.ttft_cold_ns
    if ttft_ns is not None:
        return Sample(at_ns, ttft_ns, False, observation.input_tokens, load)
    if observation.closed_by_us:
        connecting_ns = observation.dns_ns + observation.tcp_ns + observation.tls_ns
        return Sample(
            at_ns, observation.end_ns - observation.sent_ns + connecting_ns, True, load=load
        )
    return None
