"""What a provider has stored is continued by the target that has it and by its client only, in
every worker."""

import asyncio
import hashlib
from typing import Any, cast

import pytest
from tests.cases import each_case
from tests.gateway.test_embeddings import Answering
from tests.gateway.visitor import CHAT, OneRoute, Visitor, serving, visits
from tests.upstream.scripted_client import ScriptedExchange

from splitsecond.core.service import Service
from splitsecond.core.transport.client import Client
from splitsecond.core.transport.exchange import Origin, Receiver, Request
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import connect
from splitsecond.core.wire.anthropic import StreamWriter as MessageWriter
from splitsecond.core.wire.responses import StreamWriter
from splitsecond.core.wire.sse import events_in
from splitsecond.gateway.http.app import Gateway
from splitsecond.gateway.records.response_owners import ResponseOwners
from splitsecond.routing.construction.expression import Expression, parse
from splitsecond.routing.router.settings import ClientKey
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

KEYS = tuple(ClientKey(name, hashlib.sha256(name.encode()).digest()) for name in ("alice", "bob"))


def test_workers_share_the_targets_of_stored_responses() -> None:
    memory = ResponseOwners.create()
    one, other = ResponseOwners(memory), ResponseOwners(memory)
    one.note("alice", "resp_1", "b/m")
    assert other.target("resp_1", ["a/m", "b/m"]) == "b/m"
    assert other.target("resp_1", ["a/m"]) is None
    assert other.target("resp_2", ["a/m", "b/m"]) is None
    other.note("alice", "resp_1", "a/m")
    assert one.target("resp_1", ["a/m", "b/m"]) == "a/m"


def test_an_id_stays_with_its_first_client() -> None:
    owners = ResponseOwners()
    owners.note("alice", "resp_1", "a/m")
    owners.note("bob", "resp_1", "b/m")
    assert owners.is_of_another("bob", "resp_1")
    assert not owners.is_of_another("alice", "resp_1")
    assert not owners.is_of_another("bob", "resp_2")
    assert owners.target("resp_1", ["a/m", "b/m"]) == "a/m"


def test_ids_of_clients_without_keys_have_no_owner() -> None:
    owners = ResponseOwners()
    owners.note("", "resp_1", "a/m")
    owners.note("alice", "resp_2", "a/m")
    assert not owners.is_of_another("alice", "resp_1")
    assert not owners.is_of_another("", "resp_2")


class TwoTargets:
    """Stands for `Routes`: the route "fast" with two targets; its policy always asks the first."""

    takes_credentials = False

    def __init__(self) -> None:
        self.services = {
            name: FakeService(script=lambda call: Script(tokens=2), target=name)
            for name in ("a/m", "b/m")
        }

    def serving_name(self, model: str, vendor: str, *, subscribed: bool = False) -> str:
        return model

    def service(self, model: str, key: ClientKey | None = None, preferences: Any = None) -> Service:
        return self.services["a/m" if model == "fast" else model]

    def expression(self, model: str) -> Expression:
        return parse('fallback("a/m", "b/m")')


async def asks(gateway: Gateway, key: str, path: str = "/v1/responses", **fields: Any) -> Visitor:
    """The client after a request with one of `KEYS`."""
    turns = (
        {"input": "hi"}
        if path == "/v1/responses"
        else {"messages": CHAT["messages"], "max_tokens": 9}
    )
    common = {"model": "fast", **turns}
    return await visits(gateway).asks(
        common | fields, path=path, headers={"authorization": f"Bearer {key}"}
    )


@pytest.mark.parametrize("stream", [True, False])
def test_a_continued_response_goes_to_its_target(stream: bool) -> None:
    async def main() -> None:
        routes: Any = TwoTargets()
        owners = ResponseOwners()
        gateway = serving(routes, KEYS, owners=owners)
        owners.note("alice", "resp_1", "b/m")
        for fields, target in (
            ({}, "a/m"),
            ({"previous_response_id": "resp_1"}, "b/m"),
            ({"conversation": {"id": "resp_1"}}, "b/m"),
            ({"input": [{"type": "item_reference", "id": "resp_1"}]}, "a/m"),
            ({"previous_response_id": "resp_2"}, "a/m"),
            ({"previous_response_id": 5}, "a/m"),
        ):
            client = await asks(gateway, "alice", stream=stream, **fields)
            assert client.headers["x-splitsecond-target"] == target, fields

    run_virtual(main())


def responses() -> bytes:
    """The stream of a response with the items "msg_resp_7_0" and "fc_resp_7_1"."""
    writer = StreamWriter("chat", "m", id="resp_7", created=1)
    items = writer.token("Hi.") + writer.tool_call("f", "call_1") + writer.token("{}", "tool")
    return b"".join([writer.opening(), items, writer.finish("stop"), writer.done()])


def messages() -> bytes:
    writer = MessageWriter("chat", "m", id="msg_7", created=1)
    return b"".join([writer.opening(), writer.token("Hi."), writer.finish("stop"), writer.done()])


class OneByOne(Answering):
    """A transport whose requests are answered by one event a second."""

    async def send(
        self, origin: Origin, request: Request, receiver: Receiver, *, connect_deadline_ns: int
    ) -> ScriptedExchange:
        self.sent.append(request)
        exchange = ScriptedExchange(receiver)
        exchange.head()
        loop = asyncio.get_running_loop()
        events = events_in(self.parts[0])
        for second, event in enumerate(events):
            loop.call_later(second, exchange.body, event)
        loop.call_later(len(events), exchange.end)
        return exchange


def answered(
    api_format: str, answer: bytes, *keys: ClientKey, **quirks: Any
) -> tuple[Gateway, Answering]:
    """A gateway with one target that always gives `answer`, and its transport."""
    transport = OneByOne(answer)
    spec = TargetSpec(
        name="fake/model",
        base_url="http://x.test/v1",
        model="m",
        api_format=api_format,
        quirks=quirks,
    )
    target = connect(
        spec, lambda attempt: None, environment={}, client=cast(Client, transport), raw=True
    )
    routes: Any = OneRoute(target)
    return serving(routes, keys), transport


@each_case("stream", [True, False])
@each_case(
    ("fields", "code"),
    [
        ({"previous_response_id": "resp_7"}, "previous_response_not_found"),
        ({"conversation": "resp_7"}, "conversation_not_found"),
        ({"conversation": {"id": "resp_7"}}, "conversation_not_found"),
        ({"input": [{"type": "item_reference", "id": "msg_resp_7_0"}]}, "item_not_found"),
        (
            {"input": [{"id": "fc_resp_7_1"}, {"role": "user", "content": "And now?"}]},
            "item_not_found",
        ),
    ],
)
def test_another_clients_response_is_not_continued(
    fields: dict[str, Any], code: str, stream: bool
) -> None:
    async def main() -> None:
        gateway, transport = answered("responses", responses(), *KEYS)
        assert (await asks(gateway, "alice", stream=stream)).status == 200
        sent = len(transport.sent)
        refused = await asks(gateway, "bob", **fields)
        assert (refused.status, refused.json["error"]["code"]) == (404, code)
        assert refused.json["error"]["param"] == next(iter(fields))
        assert len(transport.sent) == sent
        assert (await asks(gateway, "alice", **fields)).status == 200
        # which passes unknown fields on
        in_a_chat = await asks(gateway, "bob", "/v1/chat/completions", **fields)
        assert (in_a_chat.status, in_a_chat.json["error"]["code"]) == (404, code)
        assert (await asks(gateway, "bob", previous_response_id="resp_unknown")).status == 200

    run_virtual(main())


@pytest.mark.parametrize("stream", [True, False])
def test_another_clients_thread_is_not_continued(stream: bool) -> None:
    async def main() -> None:
        gateway, transport = answered("anthropic", messages(), *KEYS, threads=True)
        going_on = {"thread": {"type": "continue", "previous_message_id": "msg_7"}}
        first = await asks(
            gateway, "alice", "/v1/messages", stream=stream, thread={"type": "create"}
        )
        assert first.status == 200
        sent = len(transport.sent)
        refused = await asks(gateway, "bob", "/v1/messages", **going_on)
        assert (refused.status, refused.json["error"]["type"]) == (404, "not_found_error")
        assert refused.json["error"]["details"] == {"error_code": "thread_not_found"}
        assert len(transport.sent) == sent
        assert (await asks(gateway, "alice", "/v1/messages", **going_on)).status == 200

    run_virtual(main())


def test_id_echoed_from_a_request_is_not_claimed() -> None:
    """Providers repeat fields of a request in the answer."""

    async def main() -> None:
        echoing = responses().replace(b'"metadata":{}', b'"metadata":{"id":"resp_9"}')
        gateway, _ = answered("responses", echoing, *KEYS)
        assert (await asks(gateway, "bob", stream=True)).status == 200
        assert (await asks(gateway, "alice", previous_response_id="resp_7")).status == 404
        assert (await asks(gateway, "alice", previous_response_id="resp_9")).status == 200

    run_virtual(main())


@pytest.mark.parametrize("stream", [True, False])
def test_continued_response_goes_to_the_target_of_the_first(stream: bool) -> None:
    async def main() -> None:
        transport = cast(Client, Answering(responses()))

        class Alternating(TwoTargets):
            """Its policy asks the second target first, and the first one afterwards."""

            def __init__(self) -> None:
                self.calls = 0

            def service(
                self, model: str, key: ClientKey | None = None, preferences: Any = None
            ) -> Service:
                self.calls += 1
                name = model if model != "fast" else "b/m" if self.calls == 1 else "a/m"
                spec = TargetSpec(
                    name=name, base_url="http://x.test/v1", model="m", api_format="responses"
                )
                return connect(
                    spec, lambda attempt: None, environment={}, client=transport, raw=True
                )

        routes: Any = Alternating()
        gateway = serving(routes)
        chosen: list[str] = []
        for previous in ({}, {"previous_response_id": "resp_7"}, {}):
            body = {"model": "fast", "input": "hi", "stream": stream, **previous}
            client = await visits(gateway).asks(body, path="/v1/responses")
            assert client.status == 200
            chosen.append(client.headers["x-splitsecond-target"])
        assert chosen == ["b/m", "b/m", "a/m"]

    run_virtual(main())
