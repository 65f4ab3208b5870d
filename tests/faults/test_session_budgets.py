"""Budgets of sessions, through the whole gateway."""

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.cases import each_case
from tests.faults.world import CLIENT_KEY, INPUT_TOKENS, PROMPT, TOKENS, World, play, profile
from tests.gateway.visitor import Visitor, visits

from splitsecond.core import clock
from splitsecond.core.events import Usage
from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.core.session import CallSession
from splitsecond.core.wire.openai import StreamWriter
from splitsecond.gateway.records.session_budgets import (
    SESSIONS,
    WAYS,
    BudgetOwner,
    SessionCounters,
    SessionUse,
)
from splitsecond.log.store.log import Past
from splitsecond.routing.router.settings import SessionBudget

USD = (INPUT_TOKENS + TOKENS) / 1000
"""What a call costs: a token costs a tenth of a cent."""
LIMIT = round(2.5 * USD, 4)
KEY = {"authorization": f"Bearer {CLIENT_KEY}"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ASKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "openai": ("/v1/chat/completions", {}),
    "anthropic": ("/v1/messages", {}),
    "responses": ("/v1/responses", {"input": PROMPT}),
}


def budget(text: str, of: str = "key") -> Callable[[str], str]:
    """Return what sets the budget `text` of each session of the key or of the route."""

    def edit(settings: str) -> str:
        dear = settings.replace("input_usd: 1, output_usd: 1", "input_usd: 1000, output_usd: 1000")
        if of == "route":
            return dear.replace("{policy: '\"a/m\"'}", f"{{policy: '\"a/m\"', {text}}}")
        return dear.replace("key: env:CLIENT_KEY", f"key: env:CLIENT_KEY, {text}")

    return edit


async def ask(world: World, session: str = "one", form: str = "openai", **fields: Any) -> Visitor:
    path, own = ASKS[form]
    headers = {**KEY, "x-session-id": session, **fields.pop("headers", {})}
    limit = "max_output_tokens" if form == "responses" else "max_tokens"
    body = {
        "model": "fast",
        "messages": [{"role": "user", "content": PROMPT}],
        limit: TOKENS,
        **own,
        **fields,
    }
    if form == "responses":
        del body["messages"]
    found = await visits(world.worker.gateway).asks(body, path=path, headers=headers)
    await asyncio.sleep(1)
    return found


@pytest.mark.parametrize("of", ["key", "route"])
def test_a_session_that_has_spent_its_budget_is_stopped(tmp_path: Path, of: str) -> None:
    async def story(world: World) -> None:
        statuses = [(await ask(world)).status for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        stopped = await ask(world, form="anthropic")
        assert stopped.status == 429
        assert stopped.json["type"] == "error"
        assert (
            f"the session has used {3 * USD:.4g} of {LIMIT:g} USD that the {of} "
            in stopped.json["error"]["message"]
        )
        assert stopped.headers["x-should-retry"] == "false"
        assert "retry-after" not in stopped.headers
        assert (await ask(world, "another")).status == 200

    play(
        '"a/m"',
        tmp_path,
        story,
        edit=budget(f"usd_per_session: {LIMIT}", of),
        a=profile(),
        b=profile(),
    )


def test_a_header_warns_from_80_percent_on(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        found = [(await ask(world)).headers.get("x-splitsecond-session-budget") for _ in range(5)]
        assert found == [None, None, None, "4 of 5 turns", "5 of 5 turns"]

    play('"a/m"', tmp_path, story, edit=budget("turns_per_session: 5"), a=profile(), b=profile())


@each_case("stream", [False, True])
@each_case("form", ASKS)
def test_ask_answers_with_what_was_used_and_how_to_go_on(
    tmp_path: Path, form: str, stream: bool
) -> None:
    async def story(world: World) -> None:
        assert (await ask(world, form=form, stream=stream)).headers["x-splitsecond-target"] == "a/m"
        answer = await ask(world, form=form, stream=stream)
        assert answer.status == 200
        assert answer.headers["x-splitsecond-target"] == "splitsecond"
        assert answer.answer.complete
        text = answer.body.decode()
        assert "the session has used 1 of 1 turn that the key 'web' allows" in text
        assert "`splitsecond sessions " in text
        allowed = await ask(
            world, form=form, stream=stream, headers={"x-splitsecond-allow": "session"}
        )
        assert allowed.headers["x-splitsecond-target"] == "a/m"
        assert (await ask(world, form=form)).headers["x-splitsecond-target"] == "splitsecond"

    edit = budget("turns_per_session: 1, at_limit: ask")
    world = play('"a/m"', tmp_path, story, edit=edit, a=profile(), b=profile())
    assert len(world.requests("a")) == 2


def test_only_the_operator_lets_a_stopped_session_go_on(tmp_path: Path) -> None:
    async def allow(world: World, session: str, **headers: str) -> int:
        gateway = visits(world.worker.gateway)
        return (
            await gateway.asks({}, path=f"/sessions/allow?session={session}", headers=headers)
        ).status

    async def story(world: World) -> None:
        await ask(world)
        stopped = await ask(world, headers={"x-splitsecond-allow": "session"})
        assert stopped.status == 429
        session = stopped.json["error"]["message"].partition("splitsecond sessions ")[2][:16]
        assert await allow(world, "0" * 16, **KEY) == 404
        assert await allow(world, session, **{"x-forwarded-for": "192.0.2.1"}) == 401
        assert await allow(world, session, **KEY, **{"content-type": "text/plain"}) == 415
        assert (await ask(world)).status == 429
        assert await allow(world, session, **KEY) == 200
        assert (await ask(world)).status == 200
        assert (await ask(world)).status == 429

    edit = budget("turns_per_session: 1")
    play('"a/m"', tmp_path, story, edit=edit, a=profile(), b=profile())


def test_calls_in_flight_reserve_what_they_may_cost(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        both = await asyncio.gather(*(ask(world) for _ in range(3)))
        assert sorted(each.status for each in both) == [200, 429, 429]
        assert {each.headers.get("retry-after") for each in both} == {None, "1"}

    play(
        '"a/m"',
        tmp_path,
        story,
        edit=budget(f"usd_per_session: {USD / 2}"),
        a=profile(),
        b=profile(),
    )


class Long:
    """A provider whose answers are longer than the request allows."""

    async def __call__(self, cycle: RequestCycle) -> None:
        await cycle.body(1 << 20)
        writer = StreamWriter("chat", "m", id="x", created=0)
        cycle.begin_stream([])
        await cycle.send(writer.opening())
        for _ in range(100):
            await cycle.send(b"".join(writer.token("word ") for _ in range(100)))
            await asyncio.sleep(0.1)
        await cycle.send(writer.end("stop", Usage(0, 5, 10_000)), last=True)


def test_an_answer_longer_than_its_limit_ends_with_the_budget(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        answer = await ask(world, stream=True, max_tokens=1)
        assert "nothing left of the 0.5 USD that the key 'web' allows" in answer.body.decode()

    play('"a/m"', tmp_path, story, edit=budget("usd_per_session: 0.5"), a=Long(), b=profile())


def test_a_session_of_another_client_has_its_own_budget(tmp_path: Path) -> None:
    key = "another-key-of-a-client-0123456789"

    def edit(text: str) -> str:
        (tmp_path / "other").write_text(key)
        own = ", {name: other, key: 'file:other', turns_per_session: 1}]"
        return budget("turns_per_session: 1")(text).replace("}]\nproviders", f"}}{own}\nproviders")

    async def story(world: World) -> None:
        other = {"authorization": f"Bearer {key}"}
        assert [(await ask(world)).status, (await ask(world, headers=other)).status] == [200, 200]
        assert [(await ask(world)).status, (await ask(world, headers=other)).status] == [429, 429]

    play('"a/m"', tmp_path, story, edit=edit, a=profile(), b=profile())


def tool_calls(form: str, *arguments: str) -> dict[str, Any]:
    """Return the fields of a request whose conversation has these calls of the tool "look"."""
    parsed = [json.loads(each) for each in arguments]
    user: dict[str, Any] = {"role": "user", "content": PROMPT}
    if form == "responses":
        calls = [
            item
            for number, each in enumerate(arguments)
            for item in (
                {
                    "type": "function_call",
                    "call_id": str(number),
                    "name": "look",
                    "arguments": each,
                },
                {"type": "function_call_output", "call_id": str(number), "output": "none"},
            )
        ]
        return {
            "input": [user, *calls],
            "tools": [{"type": "function", "name": "look", "parameters": {}}],
        }
    turns: list[dict[str, Any]] = [user]
    for number, (text, value) in enumerate(zip(arguments, parsed, strict=True)):
        if form == "openai":
            function = {"name": "look", "arguments": text}
            turns.append(
                {
                    "role": "assistant",
                    "tool_calls": [{"id": str(number), "type": "function", "function": function}],
                }
            )
            turns.append({"role": "tool", "tool_call_id": str(number), "content": "none"})
        else:
            use = {"type": "tool_use", "id": f"t{number}", "name": "look", "input": value}
            turns.append({"role": "assistant", "content": [use]})
            result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "none"}
            turns.append({"role": "user", "content": [result]})
    schema = {"name": "look", "input_schema": {"type": "object"}}
    return {
        "messages": turns,
        "tools": [
            {"type": "function", "function": {"name": "look"}} if form == "openai" else schema
        ],
    }


@each_case(
    ("arguments", "loop"),
    [
        (['{"at": 1}'] * 3, "look x 3"),
        (['{"at": 2}', *['{"at": 1}'] * 4], "look x 4"),
        (['{"at": 1}'] * 2, None),
        (['{"at": 1}', '{"at": 1}', '{"at": 2}', '{"at": 1}'], None),
    ],
)
@each_case("form", ASKS)
def test_repeated_tool_calls_are_named_in_a_header(
    tmp_path: Path, form: str, arguments: list[str], loop: str | None
) -> None:
    async def story(world: World) -> None:
        for _ in range(2):  # a loop has more turns than that
            assert "x-splitsecond-loop" not in (await ask(world, form=form)).headers
        answer = await ask(world, form=form, **tool_calls(form, *arguments))
        assert answer.status == 200
        assert answer.headers.get("x-splitsecond-loop") == loop

    world = play('"a/m"', tmp_path, story, a=profile(), b=profile())
    calls = Past.open(f"sqlite:///{world.database}").calls(EPOCH, EPOCH + timedelta(days=100_000))
    logged = [call.session.repeated for _, call in calls if call.session]
    assert logged == [0, 0, int(loop.split()[-1]) if loop else 0]


def test_workers_add_up_what_a_session_uses() -> None:
    memory = SessionCounters.create(2)
    one, two = (SessionCounters(memory, workers=2, number=number) for number in range(2))
    one.add(7, usd=1.5, turns=2)
    two.add(7, usd=0.5, reserved_usd=2.0, turns=1)
    two.add(7 + SESSIONS, turns=9)  # in the next place
    assert one.use(7) == two.use(7) == SessionUse(2.0, 2.0, 3, 0)
    SessionCounters(memory, workers=2, number=1).forfeit()
    assert one.use(7) == SessionUse(4.0, 0.0, 3, 0)


def test_what_other_gateways_count_adds_to_a_session() -> None:
    memory = SessionCounters.create(2)
    workers = [SessionCounters(memory, workers=2, number=number) for number in range(2)]
    hub = SessionCounters(memory, workers=2, number=None)
    with clock.using(lambda: 100, lambda: 0):
        workers[0].add(7, usd=1.5, turns=2)
        workers[1].add(7, reserved_usd=0.5)
        workers[1].add(8, turns=1)
    with clock.using(lambda: 200, lambda: 0):
        workers[1].add(7, turns=1)
        hub.set_others(7, SessionUse(4.0, 0.25, 5, 1))
    assert hub.used_since(150) == {7: SessionUse(1.5, 0.5, 3, 0)}, "not what others count"
    assert set(hub.used_since(0)) == {7, 8}
    assert workers[0].use(7) == SessionUse(5.5, 0.75, 8, 1)
    workers[0].forfeit()
    assert workers[0].use(7) == SessionUse(5.5, 0.75, 8, 1)


def test_a_new_session_replaces_the_oldest_of_its_neighbours() -> None:
    counters = SessionCounters()
    sessions = [7 + number * SESSIONS for number in range(WAYS + 1)]
    for session in sessions[:-1]:
        counters.add(session, turns=1)
    counters.add(sessions[0], turns=1)
    counters.add(sessions[-1], turns=1)
    assert [counters.use(each).turns for each in sessions] == [2, 0, *[1] * (WAYS - 1)]


def test_a_key_and_a_route_count_a_session_apart() -> None:
    session = CallSession(id="00000000000000ff", source="x-session-id")
    owner = BudgetOwner("the key", SessionBudget(turns=1))
    routes = [structs.replace(owner, route=name) for name in ("a", "b")]
    assert len({each.number(session) for each in (owner, *routes)}) == 3
