"""Pauses before the answers to wrong keys, in virtual time."""

import asyncio
import hashlib

import pytest
from tests.cases import each_case
from tests.gateway.test_app import fake
from tests.gateway.visitor import CHAT, Visitor, visitor, visits
from tests.serving.fake_client import Transport

from splitsecond.core import clock
from splitsecond.gateway.http.app import Gateway
from splitsecond.gateway.http.wrong_keys import (
    FORGET_NS,
    FREE,
    LONGEST_S,
    MAX_ADDRESSES,
    MAX_WAITING,
    WrongKeys,
    pause_s,
)
from splitsecond.routing.router.settings import ClientKey
from splitsecond.testing.virtual_time import run_virtual

VALID = "a-key-of-a-client-of-ours"
WRONG = {"authorization": "Bearer wrong"}
MANY = FREE + 10
"""Wrong keys after which the pause does not grow any more."""


def guarded() -> Gateway:
    key = ClientKey(name="web", digest=hashlib.sha256(VALID.encode()).digest(), routes=("*",))
    return visitor(fake(), key).gateway


def client_of(gateway: Gateway, peer: str) -> Visitor:
    client = visits(gateway)
    client.transport = Transport(peer)
    return client


async def asked(
    gateway: Gateway, headers: dict[str, str], peer: str = "192.0.2.1"
) -> tuple[int, float]:
    """Return the status and the seconds until the answer."""
    started_ns = clock.now_ns()
    client = await client_of(gateway, peer).asks(CHAT, headers=headers)
    return client.status, (client.times[0] - started_ns) / clock.NS_PER_S


@pytest.mark.parametrize(
    "header", [{"authorization": "Bearer wrong"}, {"authorization": "x"}, {"x-api-key": "wrong"}]
)
def test_the_pause_grows_with_each_wrong_key(header: dict[str, str]) -> None:
    async def main() -> None:
        gateway = guarded()
        waits = []
        for _ in range(MANY):
            status, waited_s = await asked(gateway, header)
            assert status == 401
            waits.append(waited_s)
        assert waits == [pytest.approx(pause_s(wrong)) for wrong in range(1, MANY + 1)]
        assert waits[:FREE] == [0] * FREE
        assert waits == sorted(waits)
        assert waits[-1] == pytest.approx(LONGEST_S)

    run_virtual(main())


def test_pauses_apply_only_to_wrong_keys_of_the_same_address() -> None:
    async def main() -> None:
        gateway = guarded()
        for _ in range(MANY):
            await asked(gateway, WRONG)
        _, never_paused_s = await asked(guarded(), {"authorization": f"Bearer {VALID}"})
        guesses = [asyncio.create_task(asked(gateway, WRONG)) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert await asked(gateway, WRONG, "192.0.2.2") == (401, 0)
        assert await asked(gateway, {}) == (401, 0)
        assert await asked(gateway, {"authorization": f"Bearer {VALID}"}) == (200, never_paused_s)
        assert not any(each.done() for each in guesses)
        assert {waited_s for _, waited_s in await asyncio.gather(*guesses)} == {LONGEST_S}

    run_virtual(main())


def test_a_valid_key_does_not_end_the_pauses() -> None:
    async def main() -> None:
        gateway = guarded()
        for _ in range(MANY):
            await asked(gateway, WRONG)
        await asked(gateway, {"authorization": f"Bearer {VALID}"})
        assert await asked(gateway, WRONG) == (401, LONGEST_S)

    run_virtual(main())


def test_wrong_keys_beyond_the_maximum_waiting_get_429() -> None:
    async def main() -> None:
        gateway = guarded()
        for _ in range(MANY):
            await asked(gateway, WRONG)
        clients = [client_of(gateway, "192.0.2.1") for _ in range(3 * MAX_WAITING)]
        await asyncio.gather(*(each.asks(CHAT, headers=WRONG) for each in clients))
        assert (
            sorted(each.status for each in clients) == [401] * MAX_WAITING + [429] * 2 * MAX_WAITING
        )
        assert all(
            (each.headers.get("connection") == "close") is (each.status == 429) for each in clients
        )
        assert await asked(gateway, WRONG) == (401, LONGEST_S)

    run_virtual(main())


def test_cancelled_pauses_are_not_counted_as_waiting() -> None:
    async def main() -> None:
        wrong_keys = WrongKeys()
        for _ in range(FREE):
            await wrong_keys.pause("192.0.2.1")
        for _ in range(3):
            waiting = [
                asyncio.create_task(wrong_keys.pause("192.0.2.1")) for _ in range(MAX_WAITING)
            ]
            await asyncio.sleep(0.01)
            assert not await wrong_keys.pause("192.0.2.1")
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)

    run_virtual(main())


@each_case(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "192.0.2.2", False),
        ("", "192.0.2.2", False),
    ],
)
def test_addresses_of_one_ipv6_network_count_as_one(one: str, other: str, same: bool) -> None:
    async def main() -> None:
        wrong_keys = WrongKeys()
        await wrong_keys.pause(one)
        await wrong_keys.pause(other)
        assert len(wrong_keys) == (1 if same else 2)

    run_virtual(main())


def test_an_address_is_forgotten_after_a_while() -> None:
    async def main() -> None:
        gateway = guarded()
        for _ in range(MANY):
            await asked(gateway, WRONG)
        await asyncio.sleep(FORGET_NS / clock.NS_PER_S + 1)
        assert await asked(gateway, WRONG) == (401, 0)

    run_virtual(main())


def test_the_table_of_addresses_is_bounded() -> None:
    async def main() -> None:
        wrong_keys = WrongKeys()
        for number in range(MAX_ADDRESSES + 10):
            await wrong_keys.pause(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        assert len(wrong_keys) == MAX_ADDRESSES

    run_virtual(main())
