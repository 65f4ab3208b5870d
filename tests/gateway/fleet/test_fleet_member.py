"""Gateways that share limits through a real PostgreSQL server, which is killed, stopped and
slow."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from tests.gateway.limits import key_limits
from tests.store.server import Server
from tests.waiting import WITHIN_S

from splitsecond.core import clock
from splitsecond.core.observation import Observation
from splitsecond.gateway.fleet.member import FleetMember
from splitsecond.gateway.fleet.settings import FleetSettings
from splitsecond.gateway.process.hub_process import limited_keys
from splitsecond.gateway.records.fleet_ceilings import FleetCeilings
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.gateway.records.session_budgets import SessionCounters, SessionUse
from splitsecond.gateway.records.shared_counters import SharedCounters
from splitsecond.routing.requests.error_response import LimitReached
from splitsecond.routing.router.settings import ClientKey, Team

pytestmark = pytest.mark.system
WORKERS = 2
MARGIN_S = 8.0
Done = list[int]
"""How many requests of each gateway were admitted."""


class OneGateway:
    """The limits of one gateway's workers, and its hub in a task."""

    def __init__(self, url: str, name: str, key: ClientKey) -> None:
        self.key = key
        self.said: list[str] = []
        self.ending = asyncio.Event()
        counters, ceilings = SharedCounters.create(WORKERS), FleetCeilings.create(WORKERS)
        budgets = SessionCounters.create(WORKERS)
        settings = FleetSettings(
            url=url,
            gateway=name,
            instance=os.urandom(4).hex(),
            counters=counters,
            ceilings=ceilings,
            budgets=budgets,
            workers=WORKERS,
            keys=limited_keys([key]),
        )
        self.process = FleetMember(settings, self.said.append)
        self.sessions = [
            SessionCounters(budgets, workers=WORKERS, number=number) for number in range(WORKERS)
        ]
        self.workers = [
            key_limits(
                [key],
                lambda attempt: 0.01,
                counters=SharedCounters(counters, workers=WORKERS, number=number),
                ceilings=FleetCeilings(ceilings, workers=WORKERS, number=number),
            )
            for number in range(WORKERS)
        ]
        self.task = asyncio.create_task(self.process.run(self.ending))

    def admitted(self, number: int) -> int:
        """Make as many requests, and return how many were admitted."""
        return sum(self._admitted(self.workers[each % WORKERS]) for each in range(number))

    def _admitted(self, worker: KeyLimits) -> bool:
        try:
            worker.admit(self.key)
        except LimitReached:
            return False
        if worker.counts(self.key.name):
            worker.charge(self.key.name, Observation(id="r.1", call="r", target="a/x"))
        return True

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.process._database.close()


@asynccontextmanager
async def gateways(url: str, key: ClientKey, number: int = 3) -> AsyncIterator[list[OneGateway]]:
    made = [OneGateway(url, f"gateway {each}", key) for each in range(number)]
    try:
        for each in made:
            await until(partial(each.admitted, 1), "the gateway has not reached the database")
        yield made
    finally:
        for each in made:
            each.ending.set()
        await asyncio.wait([each.task for each in made])
        for each in made:
            if not each.task.cancelled():
                each.task.result()


async def until(condition: Callable[[], object], words: str) -> None:
    give_up_ns = clock.now_ns() + WITHIN_S * clock.NS_PER_S
    while not condition():
        assert clock.now_ns() < give_up_ns, words
        await asyncio.sleep(0.05)


async def load(
    made: list[OneGateway],
    seconds: float,
    enough: Callable[[Done], bool] = lambda done: True,
    each: int = 5,
) -> Done:
    """Ask every gateway for `each` requests every 50 ms, for `seconds` at least and until `enough`.

    A busy machine needs longer for the exchanges that share a limit.
    """
    done = [0] * len(made)
    end_ns = clock.now_ns() + round(seconds * clock.NS_PER_S)
    give_up_ns = end_ns + WITHIN_S * clock.NS_PER_S
    while clock.now_ns() < end_ns or not enough(done):
        assert clock.now_ns() < give_up_ns, done
        for place, gateway in enumerate(made):
            done[place] += gateway.admitted(each)
        await asyncio.sleep(0.05)
    return done


def allowed(limit: int, begun_ns: int) -> float:
    """Return what a sliding minute allows since `begun_ns`, if that was the end of a minute."""
    return limit * (1 + ((clock.now_ns() - begun_ns) / clock.NS_PER_S + MARGIN_S) / 60)


def limited(requests: int | None = None, usd: float | None = None) -> ClientKey:
    return ClientKey("web", b"", requests_per_minute=requests, usd_per_day=usd)


def test_gateways_together_reach_but_never_exceed_the_limit(server: Server) -> None:
    async def run() -> Done:
        async with gateways(server.database(), limited(300)) as made:
            return await load(
                made, 4, lambda done: sum(done) + 3 >= 0.9 * 300 and min(done) >= 0.5 * 100
            )

    begun_ns = clock.now_ns()
    done = asyncio.run(run())
    assert sum(done) + 3 <= allowed(300, begun_ns)


def test_busy_gateway_gets_the_limit_and_others_the_rest(server: Server) -> None:
    async def run() -> Done:
        async with gateways(server.database(), limited(300)) as made:
            first = await load(made[:1], 8, lambda done: done[0] >= 0.9 * 300)
            return [*first, *(await load(made[1:], 1))]

    begun_ns = clock.now_ns()
    done = asyncio.run(run())
    assert sum(done) + 3 <= allowed(300, begun_ns)


def test_spending_of_all_gateways_stays_below_the_limit(server: Server) -> None:
    async def run() -> Done:
        async with gateways(server.database(), limited(usd=2.0)) as made:
            return await load(made, 5, lambda done: sum(done) + 3 >= 0.9 * 200)

    begun = clock.wall_time().date()
    done = asyncio.run(run())
    days = (clock.wall_time().date() - begun).days + 1  # at midnight the limit begins anew
    assert sum(done) + 3 <= days * (200 + 3 * WORKERS)  # the last call of each worker


def test_gateways_share_the_month_of_a_team(server: Server) -> None:
    key = ClientKey("web", b"", team=Team("research", usd_per_month=2.0))

    async def run() -> Done:
        async with gateways(server.database(), key) as made:
            return await load(made, 5, lambda done: sum(done) + 3 >= 0.9 * 200)

    begun = clock.wall_time()
    done = asyncio.run(run())
    months = 1 if clock.wall_time().month == begun.month else 2
    assert sum(done) + 3 <= months * (200 + 3 * WORKERS)


def test_limit_holds_while_the_database_is_killed_or_stopped(server: Server) -> None:
    async def run() -> tuple[int, list[OneGateway]]:
        async with gateways(server.database(), limited(600)) as made:

            def messages(count: int) -> Callable[[Done], bool]:
                return lambda done: all(len(each.said) == count for each in made)

            done = sum(await load(made, 1))
            server.stop()
            away = sum(await load(made, 5, messages(1)))
            assert away > 0
            server.start()
            done += away + sum(await load(made, 4, messages(2)))
            server.signal(signal.SIGSTOP)
            done += sum(await load(made, 5, messages(3)))
            server.signal(signal.SIGCONT)
            done += sum(await load(made, 4, messages(4)))
            return done, made

    begun_ns = clock.now_ns()
    done, made = asyncio.run(run())
    assert 0.8 * 600 <= done + 3 <= allowed(600, begun_ns)
    for each in made:
        assert [words.split(",")[0].split(";")[0] for words in each.said] == [
            "the database of the fleet does not answer",
            "the database of the fleet answers again",
            "the database of the fleet does not answer",
            "the database of the fleet answers again",
        ]


def test_restarted_gateway_replaces_the_killed_one_by_name(server: Server) -> None:
    async def run() -> int:
        url = server.database()
        async with gateways(url, limited(300), 2) as made:
            done = sum(await load(made, 2))
            await made[0].kill()
            again = OneGateway(url, "gateway 0", made[0].key)
            done += sum(await load([again, made[1]], 6, lambda done: again.process._registered))
            again.ending.set()
            await again.task
            rows = server.execute(url, "SELECT name FROM splitsecond_gateways")
            assert rows == [("gateway 1",)]
            return done

    begun_ns = clock.now_ns()
    assert asyncio.run(run()) + 2 <= allowed(300, begun_ns)


def test_second_gateway_of_the_same_name_gets_a_new_name(server: Server) -> None:
    async def run() -> list[str]:
        url = server.database()
        async with gateways(url, limited(300), 1):
            other = OneGateway(url, "gateway 0", limited(300))
            await until(lambda: other.admitted(1), "it has no part of the limit")
            other.ending.set()
            await other.task
            return other.said

    assert [
        "another gateway of the fleet is named gateway 0" in words for words in asyncio.run(run())
    ] == [True]


def test_gateway_replaced_while_it_was_stopped_gets_a_new_name(server: Server) -> None:
    async def run() -> int:
        url = server.database()
        async with gateways(url, limited(300), 1) as made:
            (first,) = made
            await first.kill()
            again = OneGateway(url, "gateway 0", first.key)
            done = sum(await load([first, again], 4, lambda done: again.process._registered))
            first.task = asyncio.create_task(first.process.run(first.ending))
            done += sum(
                await load(
                    [first, again],
                    6,
                    lambda done: any("a longer name" in each for each in first.said),
                )
            )
            again.ending.set()
            await again.task
            return done

    begun_ns = clock.now_ns()
    assert asyncio.run(run()) + 1 <= allowed(300, begun_ns)


def test_gateways_add_up_what_a_session_uses(server: Server) -> None:
    async def run() -> None:
        url = server.database()
        async with gateways(url, limited(300), 2) as (one, two):
            one.sessions[0].add(7, usd=1.5, reserved_usd=0.25, turns=1)
            one.sessions[1].add(7, turns=1)
            two.sessions[0].add(7, usd=0.5, turns=1, allowed=1)
            for gateway in (one, two):
                await until(
                    partial(knows, gateway, SessionUse(2.0, 0.25, 3, 1)), "the use is not shared"
                )
            await one.kill()  # with a call in flight
            server.execute(
                url, "UPDATE splitsecond_gateways SET fleet_s = 0 WHERE name = 'gateway 0'"
            )
            await until(
                partial(knows, two, SessionUse(2.25, 0.0, 3, 1)), "what was reserved is not charged"
            )

    def knows(gateway: OneGateway, use: SessionUse) -> bool:
        return all(worker.use(7) == use for worker in gateway.sessions)

    asyncio.run(run())
