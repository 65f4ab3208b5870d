"""An answer that breaks in the middle, through the whole gateway: its client gets all of it, once,
as if from one."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case, sampled_cases
from tests.faults.world import TEXT, TOKENS, World, play, profile
from tests.gateway.visitor import Visitor

from splitsecond.simulator.content.faults import InjectedFault

BREAKS: dict[str, InjectedFault] = {
    "cut": InjectedFault(kind="cut", after=3),
    "cut at the end": InjectedFault(kind="cut", after=TOKENS),
    "malformed": InjectedFault(kind="malformed", after=3),
    "error_event": InjectedFault(kind="error_event", after=5),
    "stall": InjectedFault(kind="stall", after=4, seconds=600),
}
POLICIES = [
    'fallback("a/m", "b/m", resume="replay", stall="2s")',
    'resume("a/m", "b/m", stall="2s")',
    'deadline(fallback("a/m", "b/m", ttft="2s", resume="replay", stall="2s"), total="20s")',
    # said by the route
    """deadline(fallback("a/m", "b/m"), total="20s")', resume: 'replay', stall: '2s""",
]


def parsed_stream(visitor: Visitor) -> tuple[str, list[str], list[Any], set[str]]:
    """The text of a stream, why it ended, its counts, and the ids of its chunks."""
    events = [event.removeprefix(b"data: ") for event in visitor.body.split(b"\n\n") if event]
    assert events.count(b"[DONE]") == 1
    assert events[-1] == b"[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return (
        "".join(choice["delta"].get("content") or "" for choice in choices),
        [choice["finish_reason"] for choice in choices if choice["finish_reason"]],
        [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk.get("usage")],
        {chunk["id"] for chunk in chunks},
    )


@sampled_cases(2)
@each_case("fault", BREAKS)
@each_case("policy", POLICIES)
def test_a_client_sees_one_whole_answer(policy: str, fault: str, tmp_path: Path) -> None:
    async def story(world: World) -> None:
        visitor = await world.ask()
        text, reasons, usage, ids = parsed_stream(visitor)
        assert (text, reasons, usage) == (TEXT, ["stop"], [TOKENS])
        assert len(ids) == 1
        assert visitor.headers["x-splitsecond-target"] == "a/m"
        whole = await world.ask(stream=False)
        assert whole.status == 200
        assert whole.json["choices"][0]["message"]["content"] == TEXT
        await world.settled()

    world = play(policy, tmp_path, story, a=profile(BREAKS[fault]), b=profile())
    assert [record.fault for record in world.requests("a")] == [BREAKS[fault].kind] * 2
    assert len(world.requests("b")) == 2


@pytest.mark.parametrize("stream", [True, False])
def test_log_shows_the_broken_and_the_continuing_target(stream: bool, tmp_path: Path) -> None:
    async def story(world: World) -> None:
        visitor = await world.ask(stream=stream)
        assert visitor.status == 200
        await world.settled()

    cut = InjectedFault(kind="cut", after=9)
    world = play(POLICIES[0], tmp_path, story, a=profile(cut), b=profile())
    log = sqlite3.connect(world.database)
    try:
        calls = log.execute("SELECT outcome, fault, status, target FROM calls").fetchall()
        attempts = log.execute(
            "SELECT target, role, outcome, fault FROM attempts ORDER BY n"
        ).fetchall()
    finally:
        log.close()
    # whose headers a stream had been given
    assert calls == [("ok", "", 200, "a/m" if stream else "b/m")]
    assert attempts == [("a/m", "loser", "failed", "truncated"), ("b/m", "winner", "ok", "")]


def test_different_second_response_is_not_delivered(tmp_path: Path) -> None:
    """A target that ends sooner gives another text; the client gets the error of the break, and no
    end."""

    async def story(world: World) -> None:
        visitor = await world.ask()
        *said, last, after = visitor.body.split(b"\n\n")
        assert after == b""
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "truncated"
        assert not any(b'"finish_reason":"' in event or b"[DONE]" in event for event in said)
        whole = await world.ask(stream=False)
        assert whole.status == 200  # nothing of the first was shown, so this one is as good

    play(
        POLICIES[0],
        tmp_path,
        story,
        a=profile(InjectedFault(kind="cut", after=9)),
        b=profile(tokens=5),
    )


def test_failing_second_target_keeps_the_first_error(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        visitor = await world.ask()
        assert b"[DONE]" not in visitor.body
        assert (
            json.loads(visitor.body.split(b"\n\n")[-2].removeprefix(b"data: "))["error"]["code"]
            == "truncated"
        )

    down = InjectedFault(kind="http", status=503)
    play(
        POLICIES[0], tmp_path, story, a=profile(InjectedFault(kind="cut", after=9)), b=profile(down)
    )
