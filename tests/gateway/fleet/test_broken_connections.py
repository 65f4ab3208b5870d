"""The hub, with a connection to PostgreSQL that breaks at each message, and with rows that are
broken."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.store.cutting_relay import BREAKS, Break, CuttingRelay
from tests.store.server import Server

from splitsecond.gateway.fleet.member import EVERY_S, FleetMember
from splitsecond.gateway.fleet.settings import FleetSettings, LimitedKey
from splitsecond.gateway.records.fleet_ceilings import FleetCeilings
from splitsecond.gateway.records.session_budgets import SessionCounters
from splitsecond.gateway.records.shared_counters import SharedCounters

pytestmark = pytest.mark.system
MAX_MESSAGES = 400


@pytest.fixture
def relay(server: Server) -> Iterator[CuttingRelay]:
    relay = CuttingRelay(server.socket)
    yield relay
    relay.close()


def fleet_member(url: str, said: list[str], name: str = "g") -> FleetMember:
    keys = (LimitedKey("web", 600, 5.0),)
    settings = FleetSettings(
        url=url,
        gateway=name,
        instance=name,
        counters=SharedCounters.create(1),
        ceilings=FleetCeilings.create(1),
        budgets=SessionCounters.create(1),
        workers=1,
        keys=keys,
    )
    return FleetMember(settings, said.append)


async def step(process: FleetMember) -> None:
    """Exchange now."""
    process._tried_ns -= round(EVERY_S * 1e9)
    await process.step()


@pytest.mark.parametrize("how", BREAKS)
def test_fleet_member_reconnects_after_any_broken_connection(
    server: Server, relay: CuttingRelay, how: Break
) -> None:
    async def run() -> int:
        process = fleet_member(relay.url(server.database()), [])
        for broken, messages in enumerate(range(BREAKS.index(how), MAX_MESSAGES, 9)):
            await process._database.close()
            relay.cut_after(messages, how)
            await step(process)
            was_broken = relay.broken
            relay.left = None
            await step(process)
            assert process._database._connection is not None
            if not was_broken:
                ending = asyncio.Event()
                ending.set()
                await process.run(ending)
                return broken
        raise AssertionError("there are too many messages")

    assert asyncio.run(run()) >= 4


def test_invalid_limit_row_is_reported_until_it_is_deleted(server: Server) -> None:
    """What a gateway tells about itself is only shown. A limit that cannot be read is not handed
    out."""
    url, said = server.database(), list[str]()

    async def run() -> None:
        process = fleet_member(url, said)
        ceilings = process._ceilings
        await step(process)
        await asyncio.to_thread(
            server.execute,
            url,
            "INSERT INTO splitsecond_gateways SELECT 'x', 'x', wall_s, fleet_s, '{' FROM "
            "splitsecond_clock",
        )
        await step(process)
        assert said == []
        assert ceilings.ceiling("requests", "web", 0) > 0
        await asyncio.to_thread(
            server.execute, url, "UPDATE splitsecond_limits SET holdings = '[5]'"
        )
        process._ceilings.reach(1, 1, 0)
        process._short = frozenset(process._holders)
        await step(process)
        assert "is invalid" in said[0]
        assert "Delete it" in said[0]
        await asyncio.to_thread(server.execute, url, "DELETE FROM splitsecond_limits")
        await step(process)
        assert said[-1] == "the database of the fleet answers again; limits are shared again."
        await process._database.close()

    asyncio.run(run())
