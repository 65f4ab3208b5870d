"""How many extra requests a policy may send: a share of its calls, and never more.

A rule such as "hedge what is slower than usual" or "retry twice" is cheap on a good day and doubles or triples the
load on a bad one, when the provider can bear it least. So every call deposits its share of an extra request, every
extra request withdraws a whole one, and nothing is sent on credit. The cap keeps a quiet night from paying for a storm
in the morning. Counted in millionths, as integers: a budget that is exceeded by a rounding error is exceeded.
"""

_WHOLE = 1_000_000
MOST_SAVED = 10
"""Extra requests. gRPC's retry throttle and Finagle's retry budget save as much."""


class Budget:
    """Of `n` calls at most ``share × n + reserve`` may be followed by an extra request, and `MOST_SAVED` in a row."""

    def __init__(self, share: float, *, reserve: int = 0) -> None:
        self._deposit = int(share * _WHOLE)
        self._saved = min(reserve, MOST_SAVED) * _WHOLE

    def deposit(self) -> None:
        """A call came in."""
        self._saved = min(self._saved + self._deposit, MOST_SAVED * _WHOLE)

    def withdraw(self) -> bool:
        """Whether an extra request may be sent; if so it is paid for."""
        if self._saved < _WHOLE:
            return False
        self._saved -= _WHOLE
        return True

    def __repr__(self) -> str:
        return f"<Budget {self._saved / _WHOLE:.2f} of {MOST_SAVED}, {self._deposit / _WHOLE:.1%} of calls>"
