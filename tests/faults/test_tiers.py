"""Speed tiers through the whole gateway: what the provider is asked for, and what client, log and
bill say."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.faults import world
from tests.faults.world import World, play, profile

from splitsecond.core.events import Usage
from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.core.wire.openai import StreamWriter


class Tiered:
    """A provider that grants the tier `granted`, whatever is asked for. `asked`: the bodies of its
    requests."""

    def __init__(self, granted: str) -> None:
        self.asked: list[dict[str, Any]] = []
        self._granted = granted

    async def __call__(self, cycle: RequestCycle) -> None:
        self.asked.append(json.loads(await cycle.body(1 << 20)))
        await self.wait()
        writer = StreamWriter("chat", "m", id="x", created=0)
        end = json.dumps({"id": "x", "choices": [], "service_tier": self._granted}).encode()
        usage = writer.usage(Usage(0, 5_000, 5_000))
        text = writer.opening() + writer.token("Hello.") + writer.finish("stop")
        cycle.begin_stream([])
        await cycle.send(text + usage + b"data: " + end + b"\n\n" + writer.done(), last=True)

    async def wait(self) -> None:
        """Wait before the answer to the last request."""


@pytest.fixture(autouse=True)
def like_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        world, "PROVIDERS", world.PROVIDERS.replace("{base_url: ", "{like: openai, base_url: ", 1)
    )


@pytest.mark.parametrize(
    ("granted", "usd"), [("flex", "0.005"), ("default", "0.01"), ("priority", "0.02")]
)
def test_a_call_costs_what_the_granted_tier_costs(granted: str, usd: str, tmp_path: Path) -> None:
    """A million tokens cost 1 dollar each way, so 10,000 cost a cent in the standard tier."""
    a = Tiered(granted)

    async def story(tiered_world: World) -> None:
        whole = await tiered_world.ask(stream=False)
        assert whole.headers["x-splitsecond-target"] == "a/gpt-5@flex"
        assert whole.headers["x-splitsecond-tier"] == granted
        assert whole.headers["x-splitsecond-cost-usd"] == usd
        streamed = await tiered_world.ask()
        assert "x-splitsecond-tier" not in streamed.headers

    tiered_world = play('"a/gpt-5@flex"', tmp_path, story, a=a, b=profile())
    assert [(body["model"], body["service_tier"]) for body in a.asked] == [("gpt-5", "flex")] * 2
    with closing(sqlite3.connect(tiered_world.database)) as log:
        logged = log.execute("SELECT target, tier FROM attempts").fetchall()
    assert logged == [("a/gpt-5@flex", granted)] * 2


def test_a_late_call_is_hedged_into_another_tier(tmp_path: Path) -> None:
    class Slow(Tiered):
        """In the standard tier it takes a second for each answer, and after 40 of them for ever."""

        async def wait(self) -> None:
            standard = sum("service_tier" not in body for body in self.asked)
            if "service_tier" not in self.asked[-1]:
                await asyncio.sleep(1 if standard <= 40 else 3600)

    targets: list[str] = []

    async def story(tiered_world: World) -> None:
        for _ in range(41):
            visitor = await tiered_world.ask()
            targets.append(visitor.headers["x-splitsecond-target"])

    play(
        'hedge("a/gpt-5", "a/gpt-5@fast", extra_load=0.1)',
        tmp_path,
        story,
        a=Slow("priority"),
        b=profile(),
    )
    assert targets[-1] == "a/gpt-5@fast"
    assert targets.count("a/gpt-5") >= 35


def test_unknown_tier_is_refused_with_the_known_tiers(tmp_path: Path) -> None:
    async def story(tiered_world: World) -> None:
        visitor = await tiered_world.ask(model="a/gpt-5@fst")
        assert visitor.status == 404
        error = visitor.json["error"]
        assert "unknown tier 'fst'; openai has fast, flex, priority" in error["message"]
        assert "Did you mean fast?" in error["message"]

    play('"a/gpt-5"', tmp_path, story, a=Tiered("default"), b=profile())
