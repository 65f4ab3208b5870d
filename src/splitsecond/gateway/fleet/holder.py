"""A gateway's side of one limit: what it reports, and the ceiling that its workers use while the
database is away."""

from typing import NamedTuple

from splitsecond.core.clock import NS_PER_S
from splitsecond.gateway.fleet.shared_limit import RAISE_S, SILENT_S, Lease, Period, Report

WANTED_S = 2.0
"""Seconds of requests that a gateway wants to hold ahead, at the rate since its last report."""
LONGEST_ANSWER_S = 3.0
"""Timeout of an exchange with the database. A later answer is not used: see `shared_limit`."""


class LimitUse(NamedTuple):
    used: int
    refused: int


class Holder:
    """This gateway's part of one limit of a key or a team: `limit` requests a minute, or billionths
    of a US dollar a day or a month.

    `client`: the name under which its use is counted.
    """

    def __init__(
        self, period: Period, limit: int, *, client: str = "", ceiling: int = 0, share: int = 0
    ) -> None:
        self.period = period
        self.client = client
        self.limit = limit
        self.ceiling = ceiling
        self.share = share
        self.others = 0
        self._begun = LimitUse(0, 0), 0
        self._reported: LimitUse | None = None
        self._reported_ns = 0

    def wants_report(self, use: LimitUse) -> bool:
        return self._reported is None or use != self._reported or use.used > 0 or self._idle_excess

    def is_short(self, use: LimitUse) -> bool:
        if self._reported is None or use.refused > self._reported.refused:
            return True
        return self.ceiling - use.used < (self.ceiling - self._reported.used) // 2

    def report(self, use: LimitUse, now_ns: int) -> Report:
        before = self._reported or use
        elapsed_s = max((now_ns - self._reported_ns) / NS_PER_S, 0.05)
        new = max(use.used - before.used, 0) + use.refused - before.refused
        demand = 0 if self._reported is None else -int(-new * max(WANTED_S / elapsed_s, 1.0) // 1)
        self._begun = use, now_ns
        return Report(
            limit=self.limit, used=use.used, ceiling=self.ceiling, share=self.share, wanted=demand
        )

    def take(self, lease: Lease) -> None:
        self._reported, self._reported_ns = self._begun
        self.ceiling, self.share, self.others = lease.ceiling, lease.share, lease.others

    def alone(self, away_s: float) -> None:
        if self.period != "minute" or away_s < SILENT_S:
            return
        self.ceiling = self.share if away_s >= RAISE_S else min(self.ceiling, self.share)

    @property
    def _idle_excess(self) -> bool:
        return self.period == "minute" and self.ceiling > self.share
