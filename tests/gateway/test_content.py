"""Policies that hold, share or keep answers, seen from outside: the same bytes, streamed or not,
and the headers."""

import asyncio
from typing import Any

from tests.cases import each_case
from tests.gateway.visitor import CHAT, STREAM, visitor

from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

DETERMINISTIC = {"temperature": 0}


def routed(text: str, **scripts: Script) -> tuple[Any, dict[str, FakeService]]:
    fakes: dict[str, FakeService] = {}

    def target(name: str) -> FakeService:
        script = scripts.get(name, Script(ttft=0.1, tokens=3))
        fakes[name] = FakeService(script=lambda call: script, target=name)
        return fakes[name]

    return build(parse(text), target), fakes


def test_cache_hit_is_the_same_streamed_or_whole_response() -> None:
    async def main() -> None:
        service, fakes = routed('cache("a")')
        first, again, whole = visitor(service), visitor(service), visitor(service)
        await first.asks(STREAM | DETERMINISTIC)
        await again.asks(STREAM | DETERMINISTIC)
        await whole.asks(CHAT | DETERMINISTIC)
        assert again.body == first.body
        assert whole.json["choices"][0]["message"]["content"] == "wordwordword"
        assert [each.headers["x-splitsecond-cache"] for each in (first, again, whole)] == [
            "miss",
            "hit",
            "hit",
        ]
        assert again.headers["x-splitsecond-attempts"] == "0"
        assert again.times[-1] == again.times[0]
        assert len(fakes["a"].calls) == 1

    run_virtual(main())


def test_shared_stream_continues_when_one_client_leaves() -> None:
    async def main() -> None:
        service, fakes = routed('cache("a")', a=Script(ttft=0.1, tokens=5, tps=10))
        first, second = visitor(service), visitor(service)
        leaving = asyncio.create_task(first.asks(STREAM | DETERMINISTIC))
        staying = asyncio.create_task(second.asks(STREAM | DETERMINISTIC))
        await asyncio.sleep(0.25)
        first.leave()
        await asyncio.wait([leaving, staying])
        assert second.body.count(b"word") == 5
        assert second.body.endswith(b"data: [DONE]\n\n")
        assert second.headers["x-splitsecond-cache"] == "shared"
        assert fakes["a"].left_open == 0

    run_virtual(main())


@each_case(
    ("text", "target", "said"),
    [
        ('cascade("cut", "a")', "a", "it ended by length; 100% of"),
        ('cascade("a", "cut")', "a", "was accepted; 0% of"),
        ('pipeline("passes", "a")', "a", "fast was not sure"),
        ('pipeline("a", "passes")', "a", "was sure"),
        ('by_complexity(simple="a", complex="cut")', "a", "simple"),
    ],
)
@each_case("stream", [True, False])
def test_client_gets_one_response_and_headers_name_its_target(
    text: str, target: str, said: str, stream: bool
) -> None:
    async def main() -> None:
        passes = Script(ttft=0.1, tokens=1, texts=("[[ESCALATE]]",))
        service, fakes = routed(
            text, cut=Script(ttft=0.1, tokens=2, finish="length"), passes=passes
        )
        client = visitor(service)
        await client.asks(STREAM if stream else CHAT)
        assert client.headers["x-splitsecond-target"] == target
        assert said in client.headers["x-splitsecond-chosen"]
        assert b"ESCALATE" not in client.body
        assert client.body.count(b"word") == 3
        assert all(fake.left_open == 0 for fake in fakes.values())

    run_virtual(main())
