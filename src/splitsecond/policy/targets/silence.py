"""Whether a target that is closed because another was faster is only slower this time, or has fallen silent.

One lost race says little, as somebody loses each. But a target that is well would mostly have brought its token by
then, as its own times tell; and the chances that it had not, race after race without a token in between, multiply.
Where their product is less than one in a million it is not chance.

So who is always slower than the others is never suspected, as none of its tokens ever came so early, and neither is who
has never answered yet. Its times are those before the silence: what is learned in it is that it is slow.
"""

from math import log

from splitsecond.policy.targets.estimate import Estimate

LEAST_RACES = 10
"""Fewer may be lost at one moment, in one hitch of the network."""
UNLIKELY = log(1_000_000)
MOST_TOLD = log(20)
"""By one race, however late it ended: of the twentieth part of times that are the longest too few samples are known."""
LATE = log(2)
"""Half of its tokens would have come."""


class Silence:
    """Of one target, from its first lost race on until it brings a token."""

    __slots__ = ("_against", "_times", "races")

    def __init__(self, estimate: Estimate) -> None:
        self._times = estimate.times()
        self._against = 0.0
        self.races = 0
        """Those that tell something against it."""

    def lost(self, waited_ns: int, input_tokens: int) -> bool:
        """It was closed after `waited_ns`. Whether it is suspect, and was late this time too."""
        share = self._times.waiting(waited_ns, input_tokens)
        told = MOST_TOLD if share <= 1 / 20 else -log(share)
        if told:
            self.races += 1
            self._against += told
        return told >= LATE and self.races >= LEAST_RACES and self._against >= UNLIKELY
