"""How fast one target is, in one streaming mode: learned live from its observations, asked before each choice.

Time to first token counts from the beginning of connecting (`ttft_cold_ns`), since a request that needs a connection
waits for it. It grows with the prompt where the samples show that (`samples.slope`). Requests that wait for their token
at this moment are censored samples already: a target that has fallen silent looks slow before the first of them fails.

Time per output token and the length of answers come from answers that ended well.
"""

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from splitsecond import clock
from splitsecond.policy.targets.samples import Curve, Sample, Samples
from splitsecond.timing.observation import Observation

LEAST_SPREAD = 0.1
"""Of the logarithm of a time: what no number of samples makes certain."""


class Estimate:
    """What is known of the speed of one target. Figures are None while nothing is."""

    def __init__(self, waiting: Mapping[str, int] | None = None) -> None:
        """`waiting`: since when (ns) each request waits for its first token, the first to begin first."""
        self._ttft = Samples(waiting)
        self._tpot = Samples()
        self._tokens = Samples()

    def observe(self, observation: Observation) -> None:
        """An attempt has ended, just now."""
        at_ns = observation.end_ns
        first = first_token(observation, observation.first_token_ns or at_ns)
        if first is not None:
            self._ttft.add(first)
        if observation.outcome == "ok":
            whole = observation.first_token_ns == observation.last_token_ns  # then it has no pace
            if not whole and (tpot_ns := observation.tpot_ns) is not None:
                self._tpot.add(Sample(at_ns, tpot_ns))
            if observation.output_tokens is not None:
                self._tokens.add(Sample(at_ns, observation.output_tokens))

    def waited(self, ns: int, now_ns: int) -> None:
        """A request got its first token just now, after `ns`."""
        self._ttft.waited(ns, now_ns)

    def seed(self, observations: Sequence[tuple[int, Observation]]) -> None:
        """Observations from elsewhere, each with the moment (ns, perhaps negative) at which it ended."""
        firsts = [first_token(observation, at_ns) for at_ns, observation in observations]
        self._ttft.seed(first for first in firsts if first is not None)
        whole = [(at_ns, observation) for at_ns, observation in observations if observation.outcome == "ok"]
        self._tpot.seed(Sample(at_ns, o.tpot_ns) for at_ns, o in whole if o.tpot_ns is not None)
        self._tokens.seed(Sample(at_ns, o.output_tokens) for at_ns, o in whole if o.output_tokens is not None)

    def ttft_ns(self, at: float = 0.5, *, input_tokens: int | None = None) -> float | None:
        """The time to first token that the share `at` of requests need at most, for a prompt of `input_tokens`.

        Without `input_tokens`: of the usual length.
        """
        curve = self._ttft.curve(clock.now_ns())
        if curve is None:
            return None
        found = curve.quantile(at)
        longer = 0.0 if input_tokens is None else self._ttft.slope * (input_tokens - self._ttft.usual_size)
        return max(found + longer, curve.least / 2) if longer else found

    def times(self) -> "Times":
        """The times to first token as they are known at this moment."""
        return Times(self._ttft.curve(clock.now_ns()), self._ttft.slope, self._ttft.usual_size)

    def tpot_ns(self, at: float = 0.5) -> float | None:
        """The time for each output token after the first, that the share `at` of answers need at most."""
        curve = self._tpot.curve(clock.now_ns())
        return None if curve is None else curve.quantile(at)

    def output_tokens(self) -> float | None:
        """How long an answer is lately, on average."""
        return self._tokens.mean(clock.now_ns())

    def expected_ns(self, input_tokens: int | None, output_tokens: float, at: float = 0.5) -> float | None:
        """The time to the end of an answer of `output_tokens`: TTFT, and TPOT for each token.

        While TPOT is not known it counts as none, so that a target is tried rather than never known.
        """
        ttft_ns = self.ttft_ns(at, input_tokens=input_tokens)
        return None if ttft_ns is None else ttft_ns + output_tokens * (self.tpot_ns(at) or 0.0)

    @property
    def samples(self) -> float:
        """How many fresh samples those of the time to first token are worth."""
        curve = self._ttft.curve(clock.now_ns())
        return 0.0 if curve is None else curve.weight

    @property
    def age_ns(self) -> int:
        """How old the latest sample is; 0 where there is none."""
        return clock.now_ns() - self._ttft.latest_ns if len(self._ttft) else 0

    def draw(self, chance: Random) -> float:
        """A factor by which the true speed may differ from the estimate, drawn by how uncertain that is.

        For Thompson sampling: who multiplies each target's expected time by its factor and takes the least asks the
        probably fastest one mostly, and another the more often, the less is known of it. The logarithm is normal; its
        deviation is that of the samples divided by the root of their number.
        """
        curve = self._ttft.curve(clock.now_ns())
        if curve is None:
            return math.exp(chance.gauss(0.0, 1.0))
        middle = max(curve.quantile(0.5), 1.0)
        spread = max(math.log(max(curve.quantile(0.84), middle) / middle), LEAST_SPREAD)
        return math.exp(chance.gauss(0.0, min(spread / math.sqrt(max(curve.weight, 0.1)), 1.0)))


class Times(NamedTuple):
    """Times to first token: those of a prompt of the usual size, and what each token more or less of it makes."""

    curve: Curve | None
    slope: float
    usual_size: float

    def waiting(self, ns: int, input_tokens: int) -> float:
        """The share of requests with such a prompt that still wait for their token after `ns`."""
        return 1.0 if self.curve is None else self.curve.waiting(ns - self._longer(input_tokens))

    def longest_ns(self, input_tokens: int) -> float | None:
        """What nearly all that brought one took, with such a prompt. None: none has."""
        found = None if self.curve is None else self.curve.quantile_of_ended(0.95)
        return None if found is None else found + self._longer(input_tokens)

    def _longer(self, input_tokens: int) -> float:
        return self.slope * (input_tokens - self.usual_size)


def first_token(observation: Observation, at_ns: int) -> Sample | None:
    """The sample of the time to first token that `observation` is; None: it tells nothing of it.

    What failed before its token for another reason than time tells how ill a target is, not how slow.
    """
    if observation.sent_ns is None:
        return None
    ttft_ns = observation.ttft_cold_ns
    if ttft_ns is not None:
        return Sample(at_ns, ttft_ns, False, observation.input_tokens)
    fault = observation.fault
    if observation.outcome == "cancelled" or (fault is not None and fault.type == "TimedOut"):
        connecting_ns = observation.dns_ns + observation.tcp_ns + observation.tls_ns
        return Sample(at_ns, observation.end_ns - observation.sent_ns + connecting_ns, True)
    return None
