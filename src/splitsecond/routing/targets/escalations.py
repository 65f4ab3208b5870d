"""Escalation rate of a cascade: the recent share of the small model's answers that were not
accepted.

It decides whether the cascade saves money, so it must follow the present traffic and must not jump
with each answer: a mean over about the latest hundred answers, in which those of the last minutes
count most.
"""

from splitsecond.core.clock import NS_PER_S

REMEMBERED = 100
"""Answers. Their mean has an error of about 5 percentage points."""
HALF_LIFE_NS = 600 * NS_PER_S
ENOUGH = 20
"""The fewest recent answers whose share is used."""


class EscalationRate:
    """The rate of all cascades with the same text in this process. `dearer`: they ask the large
    model alone."""

    __slots__ = ("__weakref__", "_at_ns", "_weight", "dearer", "share")

    def __init__(self) -> None:
        self.share = 0.0
        self.dearer = False
        self._weight = 0.0
        self._at_ns = 0

    def add(self, now_ns: int, *, escalated: bool) -> None:
        self._weight = min(self.weight(now_ns), REMEMBERED - 1.0) + 1
        self._at_ns = now_ns
        self.share += (escalated - self.share) / self._weight

    def weight(self, now_ns: int) -> float:
        return (
            self._weight * 2.0 ** ((self._at_ns - now_ns) / HALF_LIFE_NS) if self._weight else 0.0
        )

    def is_known(self, now_ns: int) -> bool:
        return self.weight(now_ns) >= ENOUGH

    def __repr__(self) -> str:
        return f"<EscalationRate {self.share:.0%}>"
