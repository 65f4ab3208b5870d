"""What agents meet in the field, through the whole gateway: their sessions, and where their next
turn goes."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.faults.world import CLIENT_KEY, World, play, profile
from tests.gateway.visitor import Visitor, visits

from splitsecond.core.catalog.price import MILLION, Price
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import KEY_REFUSED
from splitsecond.log.production.sessions import ReportedSession, moved, reported
from splitsecond.log.store.log import Past
from splitsecond.routing.targets.credit import KEY_RETRY_NS
from splitsecond.simulator.content.faults import InjectedFault

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PRICES = {"a/m": Price(input_usd=1, output_usd=1), "b/m": Price(input_usd=2, output_usd=2)}
LONG = "The agent reads this file again and again. " * 400
KEY = {"authorization": f"Bearer {CLIENT_KEY}"}


def conversation(turn: int, text: str = LONG) -> list[dict[str, str]]:
    """Return the messages of a turn, which begin with those of the turn before."""
    said = [{"role": "user", "content": text}]
    for number in range(1, turn):
        said += [{"role": "assistant", "content": f"I run command {number}."}]
        said += [{"role": "user", "content": f"Command {number} says no. " * 40}]
    return said


async def ask(
    world: World, turn: int, *, worker: int = 0, session: str = "one", **fields: Any
) -> Visitor:
    headers = {**KEY, "x-session-id": session, **fields.pop("headers", {})}
    body = {"model": "fast", "messages": conversation(turn), "stream": True, **fields}
    return await visits(world.workers[worker].gateway).asks(body, headers=headers)


def logged(world: World) -> list[ReportedSession]:
    """Return the sessions of the log, after the world has ended."""
    past, until = Past.open(f"sqlite:///{world.database}"), EPOCH + timedelta(days=100_000)
    found = [
        list(past.calls(EPOCH, until, session=each.id)) for each in past.sessions(EPOCH, until)
    ]
    return [reported(calls, PRICES.get) for calls in found]


def test_another_worker_knows_where_a_session_is_cached(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        assert (await ask(world, 1)).headers["x-splitsecond-target"] == "b/m"
        for turn, worker in ((2, 1), (3, 0), (4, 1)):
            answer = await ask(world, turn, worker=worker)
            assert answer.headers["x-splitsecond-target"] == "b/m", (turn, worker)
            assert "stays at b/m" in answer.headers["x-splitsecond-chosen"]

    once = InjectedFault(kind="http", status=503, first=1)
    play('fallback("a/m", "b/m")', tmp_path, story, workers=2, a=profile(once), b=profile())


def test_a_target_at_another_host_has_no_session_in_its_cache(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        targets = [(await ask(world, turn)).headers["x-splitsecond-target"] for turn in (1, 2, 3)]
        assert targets == ["b/m", "b/m", "b/m"]
        world.renew(lambda text: text.replace("127.0.0.1:2", "127.0.0.1:3"))
        assert (await ask(world, 4)).headers["x-splitsecond-target"] == "a/m"

    once = InjectedFault(kind="http", status=503, first=1)
    play('fallback("a/m", "b/m")', tmp_path, story, a=profile(once), b=profile(), c=profile())


def test_after_a_401_a_session_stays_at_the_second_provider(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for turn, target, left in ((1, "a/m", None), (2, "b/m", "a/m"), (3, "b/m", None)):
            answer = await ask(world, turn)
            assert (answer.status, answer.headers["x-splitsecond-target"]) == (200, target)
            assert answer.headers.get("x-splitsecond-left") == left
            await asyncio.sleep(KEY_RETRY_NS / 2 / NS_PER_S)
        await asyncio.sleep(1)
        assert world.worker.router.states.available("a/m"), "its key may be tried again"
        assert (await ask(world, 4)).headers["x-splitsecond-target"] == "b/m"

    refused = InjectedFault(kind="http", status=401, every=2)
    world = play('fallback("a/m", "b/m")', tmp_path, story, a=profile(refused), b=profile())
    (session,) = logged(world)
    assert moved(session.turns[1]).startswith("moved from a/m after ")
    assert session.turns[1].left_after == KEY_REFUSED
    assert session.errors == 0
    assert session.causes.total_s == pytest.approx(session.wall_s)


def test_a_session_whose_model_changes_has_the_cost_of_each(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for turn, model in ((1, "a/m"), (2, "b/m"), (3, "a/m")):
            answer = await ask(world, turn, model=model)
            assert answer.headers["x-splitsecond-target"] == model
            await asyncio.sleep(10)

    (session,) = logged(play('"a/m"', tmp_path, story, a=profile(), b=profile()))
    assert [(turn.turn, turn.target, turn.left) for turn in session.turns] == [
        (1, "a/m", ""),
        (2, "b/m", "a/m"),
        (3, "a/m", "b/m"),
    ]
    for turn in session.turns:
        tokens = (turn.input_tokens or 0) + (turn.output_tokens or 0)
        assert turn.usd == pytest.approx(tokens * PRICES[turn.target].input_usd / MILLION)
    assert session.usd == pytest.approx(sum(turn.usd or 0 for turn in session.turns))
    assert session.turns[1].missed_tokens > 1_000, "the other model has read the prompt again"
    assert session.causes.tool_s == pytest.approx(20, abs=0.1)
    assert session.causes.total_s == pytest.approx(session.wall_s)
