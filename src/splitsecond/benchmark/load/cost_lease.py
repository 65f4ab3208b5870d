"""Leases of a run's cost limit, so that the limit is never exceeded.

A worker gets a lease for each block, and counts each request as the most that it can cost before it
sends it. When the next request could exceed the lease, the block ends.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from splitsecond.benchmark.load.block import NotPaid, RequestBlock
from splitsecond.core.catalog.price import Price
from splitsecond.core.money.cost import cost_usd
from splitsecond.core.observation import Observation

ROUNDING_USD = 1e-12
"""Sums of floats may be off by so much."""


class CostLease(Struct, frozen=True, kw_only=True):
    """At most `usd` for a block. `request_usd`: the most that one of its requests can cost.
    `input_tokens`: the length of a prompt whose tokens nobody has counted."""

    usd: float
    request_usd: float
    input_tokens: int
    prices: dict[str, Price]


class LeaseAccount:
    """What is left of a lease while its block is sent. `spent`: a request was refused."""

    def __init__(self, lease: CostLease) -> None:
        self.spent = False
        self._lease = lease
        self._left_usd = lease.usd
        self._most_usd = lease.request_usd
        self._in_flight: dict[str, float] = {}

    def reserve(self, call: str) -> None:
        """Count a request before it is sent. Raises `NotPaid` if it could exceed the lease."""
        if self._left_usd + ROUNDING_USD < self._most_usd:
            self.spent = True
            raise NotPaid("the cost limit was reached", kind="cost_reached", phase="queue")
        self._left_usd -= self._most_usd
        self._in_flight[call] = self._most_usd

    def observed(self, o: Observation) -> None:
        """Replace the most that a request could have cost by what it did cost. A request that cost
        more raises the bound of those that follow."""
        cost = spent_usd(o, self._lease.prices.get(o.target), self._lease.input_tokens)
        self._left_usd += self._in_flight.pop(o.call, 0.0) - cost
        self._most_usd = max(self._most_usd, cost)


class Budget(Protocol):
    """Gives leases for blocks. Its methods are called in the event loop of the run."""

    def begin(self, lanes: Sequence[Sequence[str]]) -> None:
        """Take the targets of each lane, when all are calibrated."""

    def lease(self, block: RequestBlock) -> CostLease | None:
        """Return the lease of a block; None if it costs nothing by the token. Raises the `Fault`
        that ends the run if not even one request can be paid for."""

    def ended(self, block: RequestBlock, *, spent: bool) -> None:
        """Take back the lease of a block. Raises the `Fault` that ends the run if it was spent."""

    def lane_ended(self, targets: Sequence[str]) -> None:
        """Lease nothing more to the lane of these targets."""


def spent_usd(o: Observation, price: Price | None, input_tokens: int) -> float:
    """Return what an attempt cost by the token; without counts, of the tokens that arrived and a
    prompt of `input_tokens`."""
    if price is None or not price.by_token:
        return 0.0
    cost = cost_usd(o, price)
    if cost is None:
        cost = price.cost_usd(
            input_tokens=o.input_tokens or input_tokens,
            output_tokens=o.output_tokens or 0,
            tier=o.tier,
        )
    return cost
