"""Money that comes in by the hour, and what may be spent of it: the account of a policy that pays for speed."""

from splitsecond.clock import NS_PER_S

SAVED_S = 600
"""So many seconds' worth is saved at most: a quiet night must not pay for a storm in the morning."""


class Account:
    """In any `t` seconds no more than ``(t + SAVED_S) × usd_per_s`` is spent. It begins with all it may save."""

    def __init__(self, usd_per_s: float) -> None:
        self._usd_per_ns = usd_per_s / NS_PER_S
        self._most = self._saved = SAVED_S * usd_per_s
        self._at_ns: int | None = None

    def withdraw(self, usd: float, now_ns: int) -> bool:
        """Whether there is so much; if so it is spent. What costs nothing always is."""
        passed_ns = 0 if self._at_ns is None else now_ns - self._at_ns
        self._at_ns = now_ns
        self._saved = min(self._saved + passed_ns * self._usd_per_ns, self._most)
        if usd > self._saved:
            return False
        self._saved -= usd
        return True

    def __repr__(self) -> str:
        return f"<Account {self._saved:.4f} of {self._most:.4f} USD>"
