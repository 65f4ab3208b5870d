"""Detection of a target that has fallen silent, from the races it loses.

A target whose request is closed because another target was faster may just be slower this time: in
each race somebody loses. But a healthy target would mostly have brought its token by then, as its
own times tell, and the probabilities that it had not, race after race without a token in between,
multiply. If their product is less than one in a million, the target is suspected to be down.

So a target that is always slower than the others is never suspected, because its tokens never come
so early. Nor is a target that has never answered. The times are those from before the silence:
times learned during it would only say that the target is slow.
"""

from math import log

from splitsecond.routing.targets.estimate import SpeedEstimate

MIN_RACES = 10
"""Fewer races can be lost at one moment, in one disturbance of the network."""
UNLIKELY = log(1_000_000)
MAX_EVIDENCE = log(20)
"""Of one race, however late it ended: too few samples are known of the slowest twentieth of the
times."""
LATE = log(2)
"""Half of the target's tokens would have come by then."""


class SilenceDetector:
    __slots__ = ("_evidence", "_times", "races")

    def __init__(self, estimate: SpeedEstimate) -> None:
        self._times = estimate.expected_times()
        self._evidence = 0.0
        self.races = 0
        """Lost races that are evidence of silence."""

    def record_loss(self, waited_ns: int, input_tokens: int) -> bool:
        share = self._times.waiting(waited_ns, input_tokens)
        evidence = MAX_EVIDENCE if share <= 1 / 20 else -log(share)
        if evidence:
            self.races += 1
            self._evidence += evidence
        return evidence >= LATE and self.races >= MIN_RACES and self._evidence >= UNLIKELY
