"""What agents meet in the field, through the whole gateway: their sessions, and where their next turn goes."""

from pathlib import Path
from typing import Any

from tests.faults.world import CLIENT_KEY, World, play, profile
from tests.gateway.visitor import Visitor, visits

from splitsecond.simulator.content.faults import InjectedFault

LONG = "The agent reads this file again and again. " * 400
KEY = {"authorization": f"Bearer {CLIENT_KEY}"}


def conversation(turn: int, text: str = LONG) -> list[dict[str, str]]:
    """Return the messages of a turn, which begin with those of the turn before."""
    said = [{"role": "user", "content": text}]
    for number in range(1, turn):
        said += [{"role": "assistant", "content": f"I run command {number}."}]
        said += [{"role": "user", "content": f"Command {number} says no. " * 40}]
    return said


async def ask(world: World, turn: int, *, worker: int = 0, session: str = "one", **fields: Any) -> Visitor:
    headers = {**KEY, "x-session-id": session, **fields.pop("headers", {})}
    body = {"model": "fast", "messages": conversation(turn), "stream": True, **fields}
    return await visits(world.workers[worker].gateway).asks(body, headers=headers)


def test_another_worker_knows_where_a_session_is_cached(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        assert (await ask(world, 1)).headers["x-splitsecond-target"] == "b/m"
        for turn, worker in ((2, 1), (3, 0), (4, 1)):
            answer = await ask(world, turn, worker=worker)
            assert answer.headers["x-splitsecond-target"] == "b/m", (turn, worker)
            assert "stays at b/m" in answer.headers["x-splitsecond-chosen"]

    once = InjectedFault(kind="http", status=503, first=1)
    play('fallback("a/m", "b/m")', tmp_path, story, workers=2, a=profile(once), b=profile())
