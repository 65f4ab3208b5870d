"""Reports and turns of gateways in a real PostgreSQL server."""

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import pytest
from tests.store.server import Server

from splitsecond.gateway.fleet.database import MAX_REPORTS, About, FleetDatabase
from splitsecond.gateway.fleet.learned import MAX_BYTES

pytestmark = pytest.mark.system
Play = Callable[[FleetDatabase, FleetDatabase], Awaitable[None]]


def play(server: Server, main: Play) -> str:
    """Run `main` with two gateways in a new database. Return its URL."""
    url = server.database()

    async def run() -> None:
        made = [FleetDatabase(url, name, f"run of {name}") for name in ("one", "two")]
        try:
            for each in made:
                await each.exchange({}, {}, About(version="1", workers=2))
            await main(*made)
        finally:
            for each in made:
                await each.close()

    asyncio.run(run())
    return url


def test_a_gateway_reads_the_reports_of_the_others(server: Server) -> None:
    async def main(one: FleetDatabase, two: FleetDatabase) -> None:
        assert (await one.learn("first", [])).reports == []
        ((name, age_s, text),) = (await two.learn("second", [])).reports
        assert (name, text) == ("one", "first")
        assert 0 <= age_s < 60
        assert [each[2] for each in (await one.learn("third", [])).reports] == ["second"]
        await two.exchange({}, {}, About(), end=True)
        assert (await one.learn("fourth", [])).reports == []

    play(server, main)


def test_one_gateway_holds_a_turn_until_it_returns_it(server: Server) -> None:
    async def main(one: FleetDatabase, two: FleetDatabase) -> None:
        assert (await one.learn("", ["a/x"])).turns == {"a/x"}
        assert (await two.learn("", ["a/x", "b/x"])).turns == {"b/x"}
        assert (await one.learn("", ["a/x", "b/x"])).turns == {"a/x"}
        assert (await one.learn("", [])).turns == set()
        assert (await two.learn("", ["a/x"])).turns == {"a/x"}
        assert (await one.learn("", ["b/x"])).turns == {"b/x"}
        await two.exchange({}, {}, About(), end=True)
        assert (await one.learn("", ["a/x", "b/x"])).turns == {"a/x", "b/x"}

    play(server, main)


def test_turn_ends_in_fleet_time_and_forged_turns_are_ignored(server: Server) -> None:
    async def main(one: FleetDatabase, two: FleetDatabase) -> None:
        async def change(statement: str) -> None:
            async with await psycopg.AsyncConnection.connect(
                one._url, autocommit=True
            ) as connection:
                await connection.execute(statement.encode())

        await one.learn("", ["a/x"])
        await change("UPDATE splitsecond_clock SET fleet_s = fleet_s + 14")
        assert (await two.learn("", ["a/x"])).turns == set()
        await change("UPDATE splitsecond_clock SET fleet_s = fleet_s + 2")
        assert (await two.learn("", ["a/x"])).turns == {"a/x"}
        for forged in ("'infinity'", "'NaN'", "1e12", "-1e12"):
            await change(f"UPDATE splitsecond_turns SET holder = 'nobody', until_s = {forged}")
            assert (await one.learn("", ["a/x"])).turns == {"a/x"}, forged

    play(server, main)


def test_rows_that_no_gateway_writes_are_not_read(server: Server) -> None:
    async def main(one: FleetDatabase, two: FleetDatabase) -> None:
        await two.learn("a report", [])
        async with await psycopg.AsyncConnection.connect(one._url, autocommit=True) as connection:
            add = (
                "INSERT INTO splitsecond_learned SELECT %s || n, 0, fleet_s + %s, %s FROM "
                "splitsecond_clock, "
            )
            await connection.execute(
                add + "generate_series(1, 1) n", ("long ", 0, "x" * (MAX_BYTES + 1))
            )
            await connection.execute(add + "generate_series(1, 1) n", ("early ", 1e9, "x"))
            await connection.execute(add + "generate_series(1, 1) n", ("never ", float("nan"), "x"))
            names = {name for name, _, _ in (await one.learn("", [])).reports}
            assert names == {"two"}
            await connection.execute(add + "generate_series(1, 1000) n", ("many ", -1, "x"))
            found = (await one.learn("", [])).reports
            assert len(found) == MAX_REPORTS
            assert found[0][0] == "two"

    play(server, main)


def test_many_gateways_take_turns_at_once_without_a_deadlock(server: Server) -> None:
    url, targets = server.database(), [f"p/{number}" for number in range(40)]

    async def main() -> list[set[str]]:
        made = [FleetDatabase(url, str(number), f"run {number}") for number in range(6)]
        try:
            for each in made:
                await each.exchange({}, {}, About())
            for turn in range(15):
                wanted = [targets[(number + turn) % 7 :: 2] for number in range(6)]
                got = [
                    found.turns
                    for found in await asyncio.gather(
                        *map(FleetDatabase.learn, made, [""] * 6, wanted)
                    )
                ]
                assert sum(map(len, got)) == len(set().union(*got))
            return got
        finally:
            for each in made:
                await each.close()

    assert set().union(*asyncio.run(main())) <= set(targets)
