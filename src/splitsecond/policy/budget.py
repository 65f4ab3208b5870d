"""How many extra requests a policy may send: a share of its calls, and never more.

A rule such as "hedge what is slower than usual" or "retry twice" is cheap on a good day and doubles or triples the
load on a bad one, when the provider can bear it least. So every call deposits its share of an extra request, every
extra request withdraws a whole one, and nothing is sent on credit. The cap keeps a quiet night from paying for a storm
in the morning. Counted in millionths, as integers: a budget that is exceeded by a rounding error is exceeded.

Several such rules in one expression multiply: a hedge inside a retry inside a fallback sends up to eight requests for
a call. So all of them also draw on one budget of the whole (`Counted`), whose share is the largest that any of them
has: each keeps its own, and together they send no more than the most generous may alone.
"""

from collections.abc import Coroutine
from typing import Any

from splitsecond.service import Call, Reply, Service

_WHOLE = 1_000_000
MOST_SAVED = 10
"""Extra requests. gRPC's retry throttle and Finagle's retry budget save as much."""
_FULL = MOST_SAVED * _WHOLE


class Budget:
    """Of `n` calls at most ``share × n + reserve`` may be followed by an extra request, and `MOST_SAVED` in a row.

    `within`: another budget that an extra request must be paid from too.
    """

    def __init__(self, share: float, *, reserve: int = 0, within: "Budget | None" = None) -> None:
        self._deposit = int(share * _WHOLE)
        self._saved = min(reserve, MOST_SAVED) * _WHOLE
        self._within = within

    def deposit(self) -> None:
        """A call came in."""
        if self._saved < _FULL:
            self._saved = min(self._saved + self._deposit, _FULL)

    def withdraw(self) -> bool:
        """Whether an extra request may be sent; if so it is paid for."""
        if self._saved < _WHOLE or (self._within is not None and not self._within.withdraw()):
            return False
        self._saved -= _WHOLE
        return True

    def __repr__(self) -> str:
        return f"<Budget {self._saved / _WHOLE:.2f} of {MOST_SAVED}, {self._deposit / _WHOLE:.1%} of calls>"


class Counted:
    """`service`, whose calls are deposited in `budget`: the whole of an expression, and what its parts draw on."""

    def __init__(self, service: Service, budget: Budget) -> None:
        self._service = service
        self._budget = budget

    def __repr__(self) -> str:
        return repr(self._service)

    def __call__(self, call: Call) -> Coroutine[Any, Any, Reply]:
        self._budget.deposit()
        return self._service(call)
