"""Failover, scenario by scenario, under the simplest and the recommended configuration: the table
of docs/reference/failover.md."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tests.cases import each_case, sampled_cases
from tests.faults.world import TEXT, TOKENS, World, play, profile
from tests.gateway.visitor import Visitor
from tests.golden import Golden

from splitsecond.core import clock
from splitsecond.core.errors import NetworkFault, TimedOut
from splitsecond.core.events import Usage
from splitsecond.core.serving.request_cycle import Application, RequestCycle
from splitsecond.core.wire.openai import StreamWriter
from splitsecond.simulator.content.faults import InjectedFault
from splitsecond.simulator.content.tokens import token_text
from splitsecond.simulator.profile import Profile

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "failover.md"
SHORTER_PAGE = Path(__file__).parents[2] / "docs" / "failover.md"
SIMPLEST = 'fallback("a/m", "b/m")'
RECOMMENDED = 'fallback(retry("a/m", times=1, wait="2s"), "b/m", ttft="10s", stall="10s")'
CONFIGURATIONS = {"simplest": SIMPLEST, "recommended": RECOMMENDED}
STALL = "30s"
"""The default of a provider; `World` sets its own."""
EVER_S = 86_400.0
WORDS = [token_text(number) for number in range(TOKENS)]
Answer = Callable[[RequestCycle], Awaitable[None]]


class Result(Struct):
    """What came of a scenario: in words, and whether the client is well served."""

    words: str
    good: bool


ScenarioSteps = Callable[[World], Coroutine[Any, Any, Result]]


class Scenario(Struct, kw_only=True):
    """What target "a" does, and `b`; `story` plays the client, by default one call that is streamed
    or not."""

    title: str
    a: Profile | Application
    b: Profile | Application = profile()
    stream: bool = True
    story: ScenarioSteps | None = None


def fault(kind: Any, **settings: Any) -> Profile:
    return profile(InjectedFault(kind=kind, **settings))


class OddTarget:
    """A provider that answers as `act` does."""

    def __init__(self, act: Answer) -> None:
        self._act = act

    async def __call__(self, cycle: RequestCycle) -> None:
        await cycle.body(1 << 20)
        await self._act(cycle)


def pieces(*, upto: int = TOKENS, words: list[str] = WORDS) -> bytes:
    """The beginning of a streamed answer."""
    writer = StreamWriter("chat", "m", id="x", created=0)
    return writer.opening() + b"".join(writer.token(word) for word in words[:upto])


def one_more(number: int) -> bytes:
    """The token `number` of a streamed answer."""
    return StreamWriter("chat", "m", id="x", created=0).token(WORDS[number])


def end() -> bytes:
    writer = StreamWriter("chat", "m", id="x", created=0)
    return writer.finish("stop") + writer.usage(Usage(0, 9, TOKENS)) + writer.done()


async def drop(cycle: RequestCycle) -> None:
    """Break the connection."""
    cycle._break_off()
    cycle._connection.transport.abort()


async def open_end(cycle: RequestCycle) -> None:
    """All of an answer, but neither its end mark nor the end of its body."""
    cycle.begin_stream([])
    await cycle.send(pieces() + StreamWriter("chat", "m", id="x", created=0).finish("stop"))
    await asyncio.sleep(EVER_S)


async def half_a_tool_call(cycle: RequestCycle) -> None:
    cycle.begin_stream([])
    delta = {
        "tool_calls": [
            {"index": 0, "id": "c", "function": {"name": "pay", "arguments": '{"usd": 1'}}
        ]
    }
    chunk = {
        "id": "x",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta}],
    }
    await cycle.send(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    await asyncio.sleep(0.1)
    await drop(cycle)


async def dribbled(cycle: RequestCycle) -> None:
    cycle.begin_stream([])
    for byte in pieces() + end():
        await cycle.send(bytes([byte]))
        await asyncio.sleep(0.002)
    await cycle.send(b"", last=True)


async def slow(cycle: RequestCycle) -> None:
    cycle.begin_stream([])
    for number in range(TOKENS):
        await cycle.send(pieces(upto=1) if number == 0 else one_more(number))
        await asyncio.sleep(4)
    await cycle.send(end(), last=True)


async def web_page(cycle: RequestCycle) -> None:
    await cycle.answer(200, b"<html>We are updating our service.</html>", kind=b"text/html")


async def empty(cycle: RequestCycle) -> None:
    cycle.begin_stream([])
    await cycle.send(end(), last=True)


def asks_to_wait(value: Callable[[], str]) -> Answer:
    async def act(cycle: RequestCycle) -> None:
        await cycle.answer(
            429, b'{"error":{"message":"slow down"}}', [(b"retry-after", value().encode())]
        )

    return act


async def another_answer(cycle: RequestCycle) -> None:
    cycle.begin_stream([])
    await cycle.send(pieces(words=["Something ", "else ", "altogether."]) + end(), last=True)


async def fails_in_tls(deadline_ns: int | None) -> None:
    raise NetworkFault("the connection broke in the TLS handshake", kind="tls", phase="tls")


async def never_connects(deadline_ns: int | None) -> None:
    assert deadline_ns is not None
    waited_ns = deadline_ns - clock.now_ns()
    await asyncio.sleep(waited_ns / clock.NS_PER_S)
    raise TimedOut("no connection in time", phase="connect", after_ns=waited_ns)


async def one_call(world: World, *, stream: bool) -> Result:
    began_ns = clock.now_ns()
    visitor = await world.ask(stream=stream)
    seconds = (clock.now_ns() - began_ns) / clock.NS_PER_S
    when = "at once" if seconds < 1.5 else f"after {seconds:.0f} s"
    if visitor.status != 200:
        wait = visitor.headers.get("retry-after")
        return Result(f"{visitor.status} {when}" + (f", Retry-After {wait}" if wait else ""), False)
    text, whole = heard(visitor, stream=stream)
    assert not whole or text == TEXT, "a part of an answer looks like a whole one"
    if whole:
        first, others = visitor.headers["x-splitsecond-target"], len(world.requests("b"))
        by = f"{first}, continued by b/m" if first == "a/m" and others else first
        return Result(f"response of {by}, {when}", True)
    return Result(f"an error in the stream, {when}", False)


def heard(visitor: Visitor, *, stream: bool) -> tuple[str, bool]:
    """The text of an answer, and whether it looks whole."""
    if not stream:
        return visitor.json["choices"][0]["message"]["content"], True
    events = [event.removeprefix(b"data: ") for event in visitor.body.split(b"\n\n") if event]
    whole = events[-1] == b"[DONE]"
    chunks = [json.loads(event) for event in events if event != b"[DONE]"]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices), whole


def after_connecting(act: Callable[[int | None], Coroutine[Any, Any, None]]) -> ScenarioSteps:
    async def story(world: World) -> Result:
        world.connecting["a"] = act
        return await one_call(world, stream=True)

    return story


OUTAGE_S = 60


class Down:
    """A provider that fails at once until a minute has passed."""

    def __init__(self) -> None:
        self._until_ns = 0

    async def __call__(self, cycle: RequestCycle) -> None:
        await cycle.body(1 << 20)
        self._until_ns = self._until_ns or clock.now_ns() + OUTAGE_S * clock.NS_PER_S
        if clock.now_ns() < self._until_ns:
            await cycle.answer(503, b'{"error":{"message":"down"}}')
            return
        cycle.begin_stream([])
        await cycle.send(pieces() + end(), last=True)


async def outage(world: World) -> Result:
    """A call a second. Well served: none fails, and "a" responds again within 20 s of its
    return."""
    failed, answered = 0, list[float]()
    began_ns = clock.now_ns()
    for _ in range(120):
        visitor = await world.ask()
        failed += b"[DONE]" not in visitor.body
        if visitor.headers.get("x-splitsecond-target") == "a/m":
            answered.append((clock.now_ns() - began_ns) / clock.NS_PER_S - OUTAGE_S)
        await asyncio.sleep(1)
    back_s = min(answered, default=EVER_S)
    return Result(
        f"{failed} calls fail; a/m responds again {back_s:.0f} s after its return",
        not failed and back_s <= 20,
    )


async def all_down(world: World) -> Result:
    seen = [await world.ask(stream=number % 2 == 0) for number in range(12)]
    statuses = sorted({visitor.status for visitor in seen})
    waits = all("retry-after" in visitor.headers for visitor in seen)
    return Result(
        f"{' or '.join(map(str, statuses))} at once, with Retry-After", statuses == [503] and waits
    )


class Restarted:
    """A provider that restarts: its connections from before break when they are used."""

    def __init__(self) -> None:
        # not their ids: a new connection can have the id of a freed one
        self.old: set[object] = set()
        self.restarted = False
        self.broken = 0

    async def __call__(self, cycle: RequestCycle) -> None:
        await cycle.body(1 << 20)
        if self.restarted and cycle._connection in self.old:
            self.broken += 1
            await drop(cycle)
            return
        if not self.restarted:
            self.old.add(cycle._connection)
            await asyncio.sleep(0.1)
        cycle.begin_stream([])
        await cycle.send(pieces() + end(), last=True)


async def stale_connections(world: World) -> Result:
    app = world.simulated["a"]._application
    assert isinstance(app, Restarted)
    await asyncio.gather(*(world.ask() for _ in range(8)))
    app.restarted = True
    seen = [await world.ask(), *await asyncio.gather(*(world.ask() for _ in range(7)))]
    good = all(heard(visitor, stream=True) == (TEXT, True) for visitor in seen)
    # One, mostly. The kernel can deliver the end of a second connection before the pool has closed
    # it.
    return Result("responses of a/m, at once; 1 of 8 requests sent twice", good and app.broken <= 2)


def soon() -> str:
    """An HTTP date."""
    return format_datetime(clock.wall_time() + timedelta(seconds=30), usegmt=True)


def scenarios() -> list[Scenario]:
    """All scenarios. Made anew for each run, because some providers remember."""
    return [
        Scenario(title="429 with Retry-After", a=fault("http", status=429, retry_after=2)),
        Scenario(title="503", a=fault("http", status=503)),
        Scenario(title="500, not streamed", a=fault("http", status=500), stream=False),
        Scenario(title="connection refused", a=fault("refused")),
        Scenario(title="connection broken before the headers", a=fault("reset")),
        Scenario(title="no headers for ever", a=fault("slow_head", seconds=EVER_S)),
        Scenario(
            title="headers, and no token for ever", a=fault("slow_first_token", seconds=EVER_S)
        ),
        Scenario(title="stream cut in the middle", a=fault("cut", after=5)),
        Scenario(title="cut in the middle, not streamed", a=fault("cut", after=5), stream=False),
        Scenario(
            title="silence in the middle, not streamed",
            a=fault("stall", after=5, seconds=EVER_S),
            stream=False,
        ),
        Scenario(title="an error inside a 200", a=fault("error_event", after=0)),
        Scenario(
            title="an error in the middle, not streamed",
            a=fault("error_event", after=5),
            stream=False,
        ),
        Scenario(
            title="a malformed event, not streamed", a=fault("malformed", after=5), stream=False
        ),
        Scenario(title="the end mark is missing", a=fault("no_done")),
        Scenario(title="an outage of a minute", a=Down(), story=outage),
        Scenario(
            title="all targets down",
            a=fault("http", status=500),
            b=fault("refused"),
            story=all_down,
        ),
        Scenario(title="finish reason, and the body stays open", a=OddTarget(open_end)),
        Scenario(title="half a tool call, then cut", a=OddTarget(half_a_tool_call)),
        Scenario(title="one byte at a time", a=OddTarget(dribbled)),
        Scenario(title="TLS handshake broken", a=profile(), story=after_connecting(fails_in_tls)),
        Scenario(
            title="no connection (SYN dropped)", a=profile(), story=after_connecting(never_connects)
        ),
        Scenario(title="Retry-After that is no time", a=OddTarget(asks_to_wait(lambda: "soon"))),
        Scenario(title="Retry-After as a date, without Date", a=OddTarget(asks_to_wait(soon))),
        Scenario(title="stale connections after a restart", a=Restarted(), story=stale_connections),
        Scenario(title="a response without a token", a=OddTarget(empty)),
        Scenario(title="a web page with status 200", a=OddTarget(web_page)),
        Scenario(title="the gateway's key rejected (401)", a=fault("http", status=401)),
        Scenario(title="a token every 4 s", a=OddTarget(slow)),
        Scenario(
            title="cut, and b/m says something else",
            a=fault("cut", after=5),
            b=OddTarget(another_answer),
        ),
    ]


TITLES = [scenario.title for scenario in scenarios()]
NOT_RESCUED = {"half a tool call, then cut", "cut, and b/m says something else"}
"""Here the client has seen a part that cannot be continued. It gets an error, and no end that looks
well."""


def played(policy: str, number: int, folder: Path) -> Result:
    found: list[Result] = []
    scenario = scenarios()[number]

    async def story(world: World) -> None:
        act = scenario.story
        found.append(
            await (act(world) if act is not None else one_call(world, stream=scenario.stream))
        )

    play(policy, folder, story, stall=STALL, a=scenario.a, b=scenario.b)
    return found[0]


@sampled_cases(4)
@each_case("name", CONFIGURATIONS)
@each_case("number", range(len(TITLES)), ids=TITLES)
def test_client_gets_a_good_response_in_each_scenario(
    number: int, name: str, tmp_path: Path
) -> None:
    result = played(CONFIGURATIONS[name], number, tmp_path)
    assert result.good == (TITLES[number] not in NOT_RESCUED), result.words


class LimitedOnce:
    """A provider that asks the first request to wait for two seconds."""

    def __init__(self) -> None:
        self._requests = 0

    async def __call__(self, cycle: RequestCycle) -> None:
        await cycle.body(1 << 20)
        self._requests += 1
        if self._requests == 1:
            await asks_to_wait(lambda: "2")(cycle)
            return
        cycle.begin_stream([])
        await cycle.send(pieces() + end(), last=True)


@pytest.mark.parametrize(
    ("name", "words"),
    [("simplest", "response of b/m, at once"), ("recommended", "response of a/m, after 2 s")],
)
def test_configuration_decides_to_wait_or_switch_after_429(
    name: str, words: str, tmp_path: Path
) -> None:
    found: list[str] = []

    async def story(world: World) -> None:
        found.append((await one_call(world, stream=True)).words)

    play(CONFIGURATIONS[name], tmp_path, story, a=LimitedOnce(), b=profile())
    assert found == [words]


def test_a_floor_replaces_a_target_that_is_slow(tmp_path: Path) -> None:
    found: list[str] = []

    async def story(world: World) -> None:
        found.append((await one_call(world, stream=True)).words)

    policy = RECOMMENDED.replace('stall="10s"', 'stall="10s", floor="8tok/s", over="20s"')
    play(policy, tmp_path, story, a=OddTarget(slow), b=profile())
    assert found == ["response of a/m, continued by b/m, after 20 s"]


@pytest.mark.system
def test_page_shows_the_measured_results(golden: Golden, tmp_path: Path) -> None:
    lines = ["| what a/m does | simplest | recommended |", "|---|---|---|"]
    for number, title in enumerate(TITLES):
        cells = []
        for name, policy in CONFIGURATIONS.items():
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            cells.append(played(policy, number, folder).words)
        lines.append(f"| {title} | {' | '.join(cells)} |")
    before, rest = PAGE.read_text(encoding="utf-8").split("<!-- table -->\n")
    _, after = rest.split("<!-- end -->\n")
    page = (
        f"{before}<!-- table -->\n"
        + "".join(f"{line}\n" for line in lines)
        + f"<!-- end -->\n{after}"
    )
    if golden.update:
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, (
        "docs/reference/failover.md is not current: run with --update-golden"
    )


def test_shorter_page_repeats_rows_of_the_table() -> None:
    rows = [re.findall(r"(?m)^\| .+$", page.read_text("utf-8")) for page in (SHORTER_PAGE, PAGE)]
    assert len(rows[0]) > 5
    assert set(rows[0]) <= set(rows[1])
