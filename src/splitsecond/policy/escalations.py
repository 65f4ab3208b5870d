"""How often a cascade escalates: the share of the small model's answers that were not accepted lately.

It decides whether the cascade saves money, so it must follow what is asked today and must not jump with each answer: a
mean in which the latest hundred answers or so count, and of those the ones of the last minutes most.
"""

from splitsecond.clock import NS_PER_S

REMEMBERED = 100
"""Answers. The mean of so many is right to within some 5 in 100."""
HALF_LIFE_NS = 600 * NS_PER_S
ENOUGH = 20
"""Fresh answers. Of fewer the share says too little to act on it."""


class Escalations:
    """Of all cascades that are written alike, in this process. `dearer`: they ask the large model alone for it."""

    __slots__ = ("__weakref__", "_at_ns", "_weight", "dearer", "share")

    def __init__(self) -> None:
        self.share = 0.0
        self.dearer = False
        self._weight = 0.0
        self._at_ns = 0

    def add(self, now_ns: int, *, escalated: bool) -> None:
        """An answer of the small model was accepted, or the call has `escalated`."""
        self._weight = min(self.weight(now_ns), REMEMBERED - 1.0) + 1
        self._at_ns = now_ns
        self.share += (escalated - self.share) / self._weight

    def weight(self, now_ns: int) -> float:
        """How many fresh answers what is known is worth."""
        return self._weight * 2.0 ** ((self._at_ns - now_ns) / HALF_LIFE_NS) if self._weight else 0.0

    def known(self, now_ns: int) -> bool:
        """Whether that is enough to act on the share."""
        return self.weight(now_ns) >= ENOUGH

    def __repr__(self) -> str:
        return f"<Escalations {self.share:.0%}>"
