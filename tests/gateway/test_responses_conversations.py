"""Conversations over a WebSocket: what a continuation sends, where it goes, and the limits on what is kept."""

import sys
from typing import Any

from tests.gateway.over_socket import field, gateway, identity, inputs, run, service
from tests.gateway.socket_client import SocketClient
from tests.gateway.visitor import OneRoute

from splitsecond.gateway.app import Gateway
from splitsecond.gateway.responses_socket import ITEM_BYTES, MAX_ITEMS, Conversation, Conversations
from splitsecond.policies.expression import Expression, parse
from splitsecond.router.settings import ClientKey
from splitsecond.testing.fake_service import FakeService, Script


def test_a_continuation_gets_the_whole_conversation() -> None:
    async def main() -> None:
        fake = service()
        client = await SocketClient(gateway(fake)).opened()
        first = identity(await client.asks(input="Weather?", store=False))
        again = {"role": "user", "content": "And tomorrow?"}
        second = identity(await client.asks(input=[again], previous_response_id=first))
        await client.asks(input=[], previous_response_id=second)
        question = {"type": "message", "role": "user", "content": "Weather?"}
        one, two, three = inputs(fake)
        assert one == "Weather?"
        assert two[0] == question
        assert (two[1]["role"], two[1]["content"][0]["text"]) == ("assistant", "It is sunny.")
        assert "id" not in two[1]  # no provider has stored it
        assert two[2] == again
        assert three[:3] == two
        assert "id" in three[3]
        assert all("previous_response_id" not in call.call.body for call in fake.calls)
        await client.leaves()

    run(main)


def test_another_response_is_for_the_target_to_continue() -> None:
    async def main() -> None:
        fake = service()
        here = gateway(fake)
        client = await SocketClient(here).opened()
        first = identity(await client.asks())
        await client.asks()
        await client.asks(previous_response_id=first)
        assert field(fake.calls[-1], "previous_response_id") == first
        unknown = identity(await client.asks(previous_response_id="resp_unknown"))
        await client.asks(previous_response_id=unknown)  # of that conversation, only the end has been here
        assert field(fake.calls[-1], "previous_response_id") == unknown
        other = await SocketClient(here).opened()
        await other.asks(previous_response_id=unknown)
        assert "previous_response_id" in fake.calls[-1].call.body
        await client.leaves()
        await other.leaves()

    run(main)


def test_conversations_have_a_limit_together() -> None:
    def item(counted: int) -> bytes:
        return b"x" * (counted - ITEM_BYTES)

    sockets: list[Any] = ["a", "b", "c"]
    conversations = Conversations(max_bytes=1000)
    for socket in sockets:
        conversations.keep(socket, Conversation("resp_1", [item(300)]))
    conversations.keep("a", Conversation("resp_2", [item(200), item(200)]))  # type: ignore[arg-type]
    assert conversations.size == 1000
    conversations.keep("c", Conversation("resp_3", [item(301)]))  # type: ignore[arg-type]
    assert [conversations.find(socket, "resp_1") for socket in sockets] == [None, None, None]
    assert conversations.size == 701
    conversations.drop("c")  # type: ignore[arg-type]
    conversations.keep("c", Conversation("resp_4", [item(1001)]))  # type: ignore[arg-type]
    assert conversations.size == 0


def test_a_conversation_counts_at_least_the_memory_of_its_items() -> None:
    items = [b"{%d}" % number for number in range(1000)]
    taken = sys.getsizeof(items) + sum(map(sys.getsizeof, items))
    assert Conversation("resp_1", items).size >= taken


def test_a_conversation_of_too_many_items_is_refused() -> None:
    async def main() -> None:
        fake = service()
        client = await SocketClient(gateway(fake)).opened()
        first = await client.asks(input=[1] * MAX_ITEMS, generate=False)
        (event,) = await client.asks(input=[1], previous_response_id=identity(first), generate=False)
        assert (event["status"], event["error"]["code"]) == (413, "request_too_large")
        assert "20,001 items; the maximum is 20,000" in event["error"]["message"]
        (event,) = await client.asks(input=[1] * (MAX_ITEMS + 1))
        assert event["status"] == 413
        assert not fake.calls
        await client.leaves()

    run(main)


def test_a_conversation_that_is_too_long_is_refused() -> None:
    async def main() -> None:
        client = await SocketClient(gateway(service(), max_body_bytes=2000)).opened()
        first = identity(await client.asks(input="x" * 1500))
        (event,) = await client.asks(input="x" * 1500, previous_response_id=first)
        assert (event["status"], event["error"]["code"]) == (413, "request_too_large")
        await client.leaves()

    run(main)


class Two(OneRoute):
    """The route "fast" with two targets; its policy always asks the first."""

    def __init__(self) -> None:
        super().__init__(service())
        self.fakes = {name: service_at(name) for name in ("a/m", "b/m")}

    def service(self, model: str, key: ClientKey | None = None, wishes: Any = None) -> FakeService:
        return self.fakes["a/m" if model == "fast" else model]

    def expression(self, model: str) -> Expression:
        return parse('fallback("a/m", "b/m")' if model == "fast" else model)


def service_at(target: str) -> FakeService:
    return FakeService(script=lambda call: Script(tokens=2), target=target)


def test_a_continuation_stays_with_its_target() -> None:
    async def main() -> None:
        routes: Any = Two()
        client = await SocketClient(Gateway(routes)).opened()
        first = identity(await client.asks(model="b/m"))
        second = identity(await client.asks(previous_response_id=first))
        await client.asks(previous_response_id=second)
        await client.asks()
        assert [len(routes.fakes[name].calls) for name in ("a/m", "b/m")] == [1, 3]
        await client.leaves()

    run(main)
