"""Requests that continue a stored response go to the target that has it, in every worker and for its client only."""

import hashlib
from typing import Any, cast

import pytest
from tests.gateway.test_embeddings import Answering
from tests.gateway.visitor import visits

from splitsecond.gateway.app import Gateway
from splitsecond.gateway.records.response_owners import ResponseOwners
from splitsecond.policies.expression import Expression, parse
from splitsecond.router.settings import ClientKey
from splitsecond.service import Service
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual
from splitsecond.transport.client import Client
from splitsecond.upstream.spec import TargetSpec
from splitsecond.upstream.target import connect
from splitsecond.wire.responses import StreamWriter

ANSWER = b'data: {"type":"response.created","response":{"id":"resp_1","output":[]}}\n\n'


def test_workers_share_owners() -> None:
    memory = ResponseOwners.create()
    one, other = ResponseOwners(memory), ResponseOwners(memory)
    one.note("web", ANSWER, "b/m")
    targets = ["a/m", "b/m"]
    assert other.owner("web", "resp_1", targets) == "b/m"
    assert other.owner("app", "resp_1", targets) is None
    assert other.owner("web", "resp_2", targets) is None
    assert other.owner("web", "resp_1", ["a/m"]) is None
    other.note("web", ANSWER, "a/m")
    assert one.owner("web", "resp_1", targets) == "a/m"


@pytest.mark.parametrize("answer", [b"", b'{"id":"msg_1"}', b'{"id":5}', b'{"id":"resp_' + b"x" * 300])
def test_an_answer_without_an_id_is_not_noted(answer: bytes) -> None:
    owners = ResponseOwners()
    owners.note("web", answer, "a/m")
    assert owners.owner("web", "resp_1", ["a/m"]) is None


class TwoTargets:
    """Stands for `Routes`: the route "fast" with two targets; its policy always asks the first."""

    def __init__(self) -> None:
        self.services = {
            name: FakeService(script=lambda call: Script(tokens=2), target=name) for name in ("a/m", "b/m")
        }

    def service(self, model: str, key: ClientKey | None = None, preferences: Any = None) -> Service:
        return self.services["a/m" if model == "fast" else model]

    def expression(self, model: str) -> Expression:
        return parse('fallback("a/m", "b/m")')


@pytest.mark.parametrize("stream", [True, False])
def test_a_continued_response_goes_to_its_target(stream: bool) -> None:
    async def main() -> None:
        routes: Any = TwoTargets()
        owners = ResponseOwners()
        keys = tuple(ClientKey(name, hashlib.sha256(name.encode()).digest()) for name in ("web", "app"))
        gateway = Gateway(routes, keys, owners=owners)
        owners.note("web", ANSWER, "b/m")

        async def asks(key: str, **fields: Any) -> str:
            client = await visits(gateway).asks(
                {"model": "fast", "input": "hi", "stream": stream, **fields},
                path="/v1/responses",
                headers={"authorization": f"Bearer {key}"},
            )
            return client.headers["x-splitsecond-target"]

        assert await asks("web") == "a/m"
        assert await asks("web", previous_response_id="resp_1") == "b/m"
        assert await asks("app", previous_response_id="resp_1") == "a/m"
        assert await asks("web", previous_response_id="resp_2") == "a/m"
        assert await asks("web", previous_response_id=5) == "a/m"

    run_virtual(main())


@pytest.mark.parametrize("stream", [True, False])
def test_an_answered_response_is_continued_where_it_began(stream: bool) -> None:
    async def main() -> None:
        writer = StreamWriter("chat", "m", id="resp_7", created=1)
        answer = b"".join([writer.opening(), writer.token("Hi."), writer.finish("stop"), writer.done()])
        transport = cast(Client, Answering(answer))

        class Alternating(TwoTargets):
            """Its policy asks the second target first, and the first one afterwards."""

            def __init__(self) -> None:
                self.calls = 0

            def service(self, model: str, key: ClientKey | None = None, preferences: Any = None) -> Service:
                self.calls += 1
                name = model if model != "fast" else "b/m" if self.calls == 1 else "a/m"
                spec = TargetSpec(name=name, base_url="http://x.test/v1", model="m", dialect="responses")
                return connect(spec, lambda attempt: None, environment={}, client=transport, raw=True)

        routes: Any = Alternating()
        gateway = Gateway(routes)
        told: list[str] = []
        for previous in ({}, {"previous_response_id": "resp_7"}, {}):
            body = {"model": "fast", "input": "hi", "stream": stream, **previous}
            client = await visits(gateway).asks(body, path="/v1/responses")
            assert client.status == 200
            told.append(client.headers["x-splitsecond-target"])
        assert told == ["b/m", "b/m", "a/m"]

    run_virtual(main())
