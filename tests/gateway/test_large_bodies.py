"""Work on large bodies is done in threads, one at a time for each client."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import each_case
from tests.gateway.visitor import CHAT, STREAM, visitor
from tests.policies.branches import ask

from splitsecond.core.large_bodies import LARGE_BYTES, off_loop
from splitsecond.core.service import Call, Notes
from splitsecond.gateway.http import calls
from splitsecond.gateway.records import reservation
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.machinery import prompt
from splitsecond.routing.requests import parsed_request
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

LARGE = CHAT | {"user": "x" * LARGE_BYTES}


@each_case(
    ("path", "body"),
    [
        ("/v1/chat/completions", LARGE),
        ("/v1/chat/completions", STREAM | LARGE),
        ("/v1/messages", LARGE | {"max_tokens": 9}),
        ("/v1/responses", {"model": "fast", "input": "x" * LARGE_BYTES}),
        ("/api/chat", CHAT | {"keep_alive": "x" * LARGE_BYTES}),
        (
            "/v1beta/models/fast:generateContent",
            {"contents": [{"parts": [{"text": "x" * LARGE_BYTES}]}]},
        ),
    ],
)
def test_a_large_body_is_answered(path: str, body: dict[str, Any]) -> None:
    async def main() -> None:
        client = visitor(FakeService(script=lambda call: Script()))
        await client.asks(body, path=path, parts=40)
        assert client.status == 200, client.body

    run_virtual(main())


def test_only_a_large_body_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, list[threading.Thread]] = {}

    def noted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def works(*arguments: Any, **settings: Any) -> Any:
            threads.setdefault(name, []).append(threading.current_thread())
            return work(*arguments, **settings)

        return works

    monkeypatch.setattr(parsed_request, "read", noted("read", parsed_request.read))
    monkeypatch.setattr(calls, "estimated", noted("estimated", reservation.estimated))

    async def main() -> None:
        for body in (CHAT, LARGE):
            client = visitor(
                FakeService(script=lambda call: Script(ttft=0, tokens=0)),
            )
            await client.asks(body)
            assert client.status == 200

    asyncio.run(main())
    own = threading.current_thread()
    assert [thread is own for thread in threads["read"]] == [True, False]
    assert [thread is own for thread in threads["estimated"]] == [False]


@pytest.mark.parametrize(
    ("policy", "work"),
    [
        ('sticky("a", "b")', "conversation"),
        ('pipeline("a", "b")', "_with_marker"),
        ('by_complexity(simple="a", complex="b")', "complexity"),
        ('cap("a", max_tokens=5)', "_capped"),
    ],
)
def test_policies_examine_a_large_request_in_a_thread(
    policy: str, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    async def noted(client: str, work: Callable[..., Any], *arguments: Any) -> Any:
        names.append(work.__name__)
        return work(*arguments)

    monkeypatch.setattr(prompt, "off_loop", noted)

    async def main() -> None:
        fakes = {name: FakeService(script=lambda call: Script()) for name in "ab"}
        service = build(parse(policy), fakes.__getitem__)
        for large in (False, True):
            assert names == []
            await ask(service, Call(id="call", body={}, notes=Notes(large=large)))

    run_virtual(main())
    assert names == [work]


def test_bodies_wait_only_for_those_of_the_same_client() -> None:
    may_end, order = threading.Event(), list[str]()

    def waits() -> None:
        may_end.wait()
        order.append("first of alice")

    async def main() -> None:
        first = asyncio.create_task(off_loop("alice", waits))
        second = asyncio.create_task(off_loop("alice", order.append, "second of alice"))
        await off_loop("bob", order.append, "bob")
        await off_loop("carol", order.append, "carol")
        may_end.set()
        await asyncio.gather(first, second)

    asyncio.run(main())
    assert order == ["bob", "carol", "first of alice", "second of alice"]
