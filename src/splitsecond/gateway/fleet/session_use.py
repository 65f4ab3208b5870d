"""What the sessions of clients use at all gateways of a fleet: this gateway's counts to its
database, theirs back."""

from splitsecond.core import clock
from splitsecond.gateway.fleet.database import FleetDatabase
from splitsecond.gateway.records.session_budgets import SessionCounters

AGAIN_NS = clock.NS_PER_S
"""Counts that changed so long before the last exchange are sent again: a worker may have been about
to write them."""


class SharedSessions:
    def __init__(self, counters: SessionCounters) -> None:
        self._counters = counters
        self._sent_ns = 0
        self._read_s = 0.0  # in fleet time

    async def exchange(self, database: FleetDatabase) -> None:
        """Raises `psycopg.Error` and `OSError`, and then the next exchange sends the same again."""
        begin_ns = clock.now_ns()
        used = self._counters.used_since(self._sent_ns - AGAIN_NS)
        read_s, others = await database.share_sessions(used, self._read_s)
        self._sent_ns, self._read_s = begin_ns, read_s
        for session, use in others.items():
            self._counters.set_others(session, use)
