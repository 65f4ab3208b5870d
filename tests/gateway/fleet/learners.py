"""A fleet in virtual time: gateways whose workers route calls, and a database in memory between
them."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
from tests.policies.world import World

from splitsecond.core import clock
from splitsecond.gateway.fleet.database import About, Learned, Neighbour
from splitsecond.gateway.fleet.learning import Learning
from splitsecond.gateway.fleet.turns import LEASE_S
from splitsecond.gateway.fleet.view import FleetView
from splitsecond.gateway.fleet.worker_exchange import WorkerExchange


def now_s() -> float:
    return clock.now_ns() / clock.NS_PER_S


@dataclass
class Database:
    """What the database does with reports and turns."""

    away: bool = False
    rows: dict[str, tuple[float, str]] = field(default_factory=dict)
    turns: dict[str, tuple[str, float]] = field(default_factory=dict)


class Connection:
    """The database, as one gateway uses it."""

    def __init__(self, database: Database, name: str) -> None:
        self.database, self.name = database, name
        self.away = False

    async def learn(self, report: str, turns: list[str]) -> Learned:
        await asyncio.sleep(0.01)
        if self.away or self.database.away:
            raise psycopg.OperationalError("away")
        held = self.database.turns
        for target, (holder, until_s) in list(held.items()):
            if (holder == self.name and target not in turns) or until_s < now_s():
                del held[target]
        for target in turns:
            if held.get(target, (self.name, 0))[0] == self.name:
                held[target] = self.name, now_s() + LEASE_S
        self.database.rows[self.name] = now_s(), report
        others = [(name, now_s() - at_s, text) for name, (at_s, text) in self.database.rows.items()]
        mine = {target for target, (holder, _) in held.items() if holder == self.name}
        return Learned([each for each in others if each[0] != self.name], mine)


class Gateway:
    """A gateway: `workers` that route calls by `policy`, and the part of its hub that is tested."""

    def __init__(
        self, database: Database, name: str, policy: str, workers: int, scripts: dict[str, Any]
    ) -> None:
        self.said: list[str] = []
        self.connection = Connection(database, name)
        self.learning = Learning(workers, self.said.append, self._publish)
        self.workers = [World(policy, **scripts) for _ in range(workers)]
        self.exchanges = [
            WorkerExchange(each.states, partial(self.learning.reports.__setitem__, number))
            for number, each in enumerate(self.workers)
        ]
        for exchange in self.exchanges:
            exchange.use(("a/x", "b/x"), lambda target: "the provider's key")
        self._answered_ns = 0

    def _publish(self, worker: int, view: FleetView) -> None:
        if worker < len(self.exchanges):  # a test may have removed them
            self.exchanges[worker].received(view)

    async def run(self) -> None:
        """Exchange until cancelled: the hub once a second, each worker twice."""
        async with asyncio.TaskGroup() as group:
            for exchange in self.exchanges:
                group.create_task(exchange.run())
            while True:
                self.learning.collect(clock.now_ns())
                try:
                    await self.learning.exchange(self.connection)  # type: ignore[arg-type]
                    self._answered_ns = clock.now_ns()
                except psycopg.OperationalError:
                    pass
                me = Neighbour(
                    name=self.connection.name, instance="1", silent_s=0.0, about=About(version="1")
                )
                self.learning.publish(self.connection.name, (me,), self._answered_ns)
                await asyncio.sleep(1.0)
