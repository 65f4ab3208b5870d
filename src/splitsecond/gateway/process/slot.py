"""What a worker gets from the supervisor beside its settings: descriptors of shared memory and
files. The supervisor does not load the worker itself."""

from datetime import datetime
from typing import Self

from msgspec import Struct, field
from msgspec.structs import astuple

from splitsecond.core import clock
from splitsecond.gateway.records.fleet_ceilings import FleetCeilings
from splitsecond.gateway.records.response_owners import ResponseOwners
from splitsecond.gateway.records.session_budgets import SessionCounters
from splitsecond.gateway.records.shared_counters import SharedCounters


class SharedTables(Struct, frozen=True):
    counters: int
    ceilings: int
    owners: int
    budgets: int

    @classmethod
    def create(cls, workers: int) -> Self:
        return cls(
            SharedCounters.create(workers),
            FleetCeilings.create(workers),
            ResponseOwners.create(),
            SessionCounters.create(workers),
        )


class WorkerSlot(Struct, frozen=True, kw_only=True):
    """The number of a worker among the workers of a gateway.

    `folder`: a temporary folder that all of them may write to, and `shared`: tables of all of them;
    None: there is only one worker. `sessions`: the descriptor of their table of sessions; None:
    this worker has its own, with a secret of its own. `journal`: the descriptor of the slot's
    journal, or None without one. `hub`: the socket of the hub, or None without one. `began`: when
    the gateway started.
    """

    number: int = 0
    workers: int = 1
    folder: str | None = None
    shared: SharedTables | None = None
    sessions: int | None = None
    journal: int | None = None
    hub: str | None = None
    began: datetime = field(default_factory=clock.wall_time)

    @property
    def descriptors(self) -> tuple[int, ...]:
        shared = () if self.shared is None else astuple(self.shared)
        return (*shared, *(each for each in (self.sessions, self.journal) if each is not None))
