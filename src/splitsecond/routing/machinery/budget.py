"""A budget for the extra requests of a policy: a share of its calls, and never more.

A rule such as "hedge what is slower than usual" or "retry twice" costs little on a good day, and
doubles or triples the load on a bad one, when the provider is already overloaded. So every call
deposits its share of an extra request, every extra request withdraws a whole one, and there is no
credit.

Several such rules in one expression multiply: a hedge inside a retry inside a fallback sends up to
eight requests for one call. So all of them also withdraw from one budget of the whole expression
(`BudgetedService`), whose share is the largest of theirs: each keeps its own, and together they
send no more than the most generous one may alone.
"""

from collections.abc import Coroutine
from typing import Any

from splitsecond.core.service import Call, Reply, Service

_WHOLE = 1_000_000
MAX_SAVED = 10
"""The largest balance, in extra requests. It is that of gRPC's retry throttle and of Finagle's
retry budget."""
_FULL = MAX_SAVED * _WHOLE


class ExtraRequestBudget:
    """Allows ``share × n + reserve`` extra requests for `n` calls, and at most `MAX_SAVED` in a
    row.

    `within`: another budget, from which each extra request is withdrawn too.
    """

    def __init__(
        self, share: float, *, reserve: int = 0, within: "ExtraRequestBudget | None" = None
    ) -> None:
        self._deposit = int(share * _WHOLE)
        self._saved = min(reserve, MAX_SAVED) * _WHOLE
        self._within = within

    def deposit(self) -> None:
        if self._saved < _FULL:
            self._saved = min(self._saved + self._deposit, _FULL)

    def withdraw(self) -> bool:
        if self._saved < _WHOLE or (self._within is not None and not self._within.withdraw()):
            return False
        self._saved -= _WHOLE
        return True

    def __repr__(self) -> str:
        return (
            f"<ExtraRequestBudget {self._saved / _WHOLE:.2f} of {MAX_SAVED}, "
            f"{self._deposit / _WHOLE:.1%} of calls>"
        )


class BudgetedService:
    def __init__(self, service: Service, budget: ExtraRequestBudget) -> None:
        self._service = service
        self._budget = budget

    def __repr__(self) -> str:
        return repr(self._service)

    def __call__(self, call: Call) -> Coroutine[Any, Any, Reply]:
        self._budget.deposit()
        return self._service(call)
