"""The bytes of request bodies that are held are bounded, for each key and together."""

import asyncio
import hashlib

import pytest
from tests.gateway.visitor import CHAT, OneRoute, Visitor, head, serving, visits
from tests.serving.fake_client import ReceivedResponse

from splitsecond.core.serving.request_cycle import MAX_UNREAD_REQUEST_BYTES
from splitsecond.gateway.http import held_bodies
from splitsecond.gateway.http.app import Gateway
from splitsecond.routing.router.settings import ClientKey
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

MIB = 1 << 20
KEYS = {name: f"the-secret-of-{name}-0123456789" for name in ("alice", "bob", "carol")}


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_bodies, "MAX_BYTES", 4 * MIB)
    monkeypatch.setattr(held_bodies, "MAX_OF_CLIENT", 2 * MIB)


def gateway(*, keys: bool = True, ttft: float = 0.2) -> Gateway:
    routes = OneRoute(FakeService(script=lambda call: Script(ttft=ttft)))
    digests = {name: hashlib.sha256(secret.encode()).digest() for name, secret in KEYS.items()}
    own = (
        tuple(ClientKey(name=name, digest=digest) for name, digest in digests.items())
        if keys
        else ()
    )
    return serving(routes, own)


async def sent(
    gateway: Gateway,
    client: str,
    declared: int | None,
    data: bytes = b"",
    *,
    path: str = "/v1/chat/completions",
) -> Visitor:
    """Send the headers of a request whose body has `declared` bytes (None: chunks), and `data` of
    it."""
    visitor = visits(gateway)
    length = (
        {"transfer-encoding": "chunked"} if declared is None else {"content-length": str(declared)}
    )
    headers = {
        "host": "x",
        "content-type": "application/json",
        "authorization": f"Bearer {KEYS.get(client, '')}",
    }
    connection = visitor.connect()
    connection.data_received(head("POST", path, headers | length))
    for at in range(0, len(data), 1 << 16):
        part = data[at : at + (1 << 16)]
        connection.data_received(b"%x\r\n%b\r\n" % (len(part), part) if declared is None else part)
        await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    return visitor


def status(visitor: Visitor) -> int:
    return visitor.status if visitor.transport.written else 0


def test_unfinished_bodies_are_bounded_per_key() -> None:
    async def main() -> None:
        served = gateway()
        first = [await sent(served, "alice", MIB) for _ in range(3)]
        assert [status(each) for each in first] == [0, 0, 429]
        refusal = ReceivedResponse(first[2].transport.written)
        assert refusal.headers["retry-after"] == "1"
        assert b"the bodies of this key's requests" in refusal.body
        assert status(await sent(served, "bob", MIB)) == 0
        first[0].leave()
        await asyncio.sleep(0.001)
        assert status(await sent(served, "alice", MIB)) == 0

    run_virtual(main())


@pytest.mark.parametrize("keys", [True, False])
def test_all_bodies_together_are_bounded(keys: bool) -> None:
    async def main() -> None:
        served = gateway(keys=keys)
        names = ["alice", "alice", "bob", "bob", "carol"]
        visitors = [await sent(served, name, MIB) for name in names]
        assert [status(each) for each in visitors] == [0, 0, 0, 0, 503]
        last = await sent(served, "carol", MIB, path="/v1/messages")
        assert (last.status, last.json["error"]["type"]) == (529, "overloaded_error")

    run_virtual(main())


def test_chunked_bodies_are_counted_as_they_arrive() -> None:
    async def main() -> None:
        served = gateway()
        few = await sent(served, "alice", None, b"x" * MAX_UNREAD_REQUEST_BYTES)
        assert status(few) == 0
        many = [await sent(served, "alice", None, b"x" * (MIB // 2 + 1)) for _ in range(4)]
        assert [status(each) for each in many] == [0, 0, 0, 429]

    run_virtual(main())


def test_a_body_is_held_until_its_call_has_ended() -> None:
    async def main() -> None:
        served = gateway(ttft=10)
        padding = " " * (MIB - 200)
        tasks = [asyncio.create_task(asked(served, padding)) for _ in range(3)]
        await asyncio.sleep(1)
        assert sum(task.done() for task in tasks) == 1
        assert sorted([(await task).status for task in tasks]) == [200, 200, 429]
        assert (await asked(served, padding)).status == 200

    run_virtual(main())


async def asked(gateway: Gateway, padding: str) -> Visitor:
    return await visits(gateway).asks(
        CHAT | {"user": padding}, headers={"authorization": f"Bearer {KEYS['alice']}"}, parts=20
    )


def test_small_bodies_are_not_counted() -> None:
    async def main() -> None:
        served = gateway()
        visitors = [await sent(served, "alice", MAX_UNREAD_REQUEST_BYTES) for _ in range(100)]
        assert {status(each) for each in visitors} == {0}

    run_virtual(main())
