"""Reading an answer's bytes as they came: what is kept, what holds the provider back, what breaks
it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.upstream.scripted_client import ScriptedClient, ScriptedExchange

from splitsecond.core import clock
from splitsecond.core.errors import NetworkFault, ProviderFault, TimedOut
from splitsecond.core.events import Broken, Done, Finish, Quiet, Token
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.upstream.attempt import Attempt
from splitsecond.core.upstream.pending_bytes import FULL_BYTES, HELD_BYTES
from splitsecond.core.upstream.spec import TargetSpec, Timeouts
from splitsecond.core.upstream.target import connect
from splitsecond.testing.virtual_time import run_virtual

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"one"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def play(
    act: Callable[["asyncio.Task[Attempt]", ScriptedExchange], Awaitable[None]],
    *,
    watched: bool = False,
    stream: bool = True,
    whole_ns: int | None = None,
) -> list[Observation]:
    seen: list[Observation] = []

    async def main() -> None:
        client = ScriptedClient()
        spec = TargetSpec(
            name="x/m", base_url="http://x.test/v1", model="m", timeouts=Timeouts(stall_ms=1000)
        )
        target = connect(spec, seen.append, environment={}, client=client.as_client(), raw=True)
        call = Call(
            id="c",
            body={},
            start_ns=clock.now_ns(),
            watched=watched,
            stream=stream,
            whole_ns=whole_ns,
        )
        calling = asyncio.get_running_loop().create_task(target(call))
        exchange = await client.exchange()
        if whole_ns is None:
            exchange.head()
        await act(calling, exchange)

    run_virtual(main())
    return seen


def test_read_returns_all_bytes_from_before_the_first_token_on() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(ROLE)
        exchange.body(WORD[:20])
        await asyncio.sleep(0.1)
        assert not calling.done()
        exchange.body(WORD[20:])
        reply = await calling
        assert reply.target == "x/m"
        assert await reply.read() == ROLE + WORD
        exchange.body(WORD)
        assert await reply.read() == WORD
        exchange.body(END)
        exchange.end()
        assert await reply.read() == END
        assert await reply.read() == b""
        await reply.aclose()

    (seen,) = play(act)
    assert seen.ok
    assert seen.events == 5


@pytest.mark.parametrize("breaking", [b'data: {"error":{"message":"no"}}\n\n', b"data: [DONE]\n\n"])
def test_bytes_that_break_the_answer_are_not_handed_out(breaking: bytes) -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(WORD)
        exchange.body(breaking)
        reply = await calling
        assert await reply.read() == WORD
        with pytest.raises(ProviderFault):
            await reply.read()
        await reply.aclose()

    assert play(act)[0].outcome == "failed"


def test_read_raises_after_all_bytes_before_the_break() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(WORD)
        reply = await calling
        exchange.fail(NetworkFault("reset", kind="reset", phase="between tokens"))
        assert await reply.read() == WORD
        with pytest.raises(NetworkFault):
            await reply.read()

    assert play(act)[0].outcome == "failed"


def test_slow_reader_pauses_the_provider_and_is_no_stall() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(WORD)
        reply = await calling
        exchange.body(WORD * (FULL_BYTES // len(WORD) + 1))
        assert exchange.holds == ["pause"]
        await asyncio.sleep(30)
        assert len(await reply.read()) > FULL_BYTES
        assert exchange.holds == ["pause", "resume"]
        waiting = asyncio.get_running_loop().create_task(reply.read())
        await asyncio.sleep(0.9)
        assert not waiting.done()
        await asyncio.sleep(0.2)
        with pytest.raises(TimedOut):
            await waiting

    assert play(act)[0].fault is not None


def test_empty_response_is_known_at_once() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(END)
        reply = await calling
        assert reply.empty
        assert await reply.read() == END
        exchange.end()
        assert await reply.read() == b""

    assert len(play(act)) == 1


def test_watched_call_delivers_bytes_and_events_once_each() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(ROLE + WORD)
        reply = await calling
        assert await reply.read() == ROLE + WORD
        assert [type(event) for event in reply.arrived()] == [Quiet, Token]
        assert reply.arrived() == []
        exchange.body(WORD)
        assert isinstance(await anext(reply), Token)
        assert await reply.read() == WORD
        exchange.body(END)
        exchange.end()
        assert [type(event) async for event in reply] == [Finish, Done]
        assert await reply.read() == END
        assert await reply.read() == b""

    assert play(act, watched=True)[0].ok


def test_reading_only_events_of_a_watched_call_never_pauses_it() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(WORD)
        reply = await calling
        for _ in range(3):
            exchange.body(WORD * (FULL_BYTES // len(WORD) + 1))
        exchange.body(END)
        exchange.end()
        assert exchange.holds == []
        assert sum(
            isinstance(event, Token) for event in [event async for event in reply]
        ) > 3 * FULL_BYTES // len(WORD)
        assert len(await reply.read()) > 3 * FULL_BYTES

    assert play(act, watched=True)[0].ok


def test_unread_watched_response_breaks_at_the_byte_limit() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(WORD)
        reply = await calling
        exchange.body(WORD * (HELD_BYTES // len(WORD) + 1))
        assert isinstance([event async for event in reply][-1], Broken)
        assert len(await reply.read()) > HELD_BYTES
        with pytest.raises(ProviderFault, match="were not read"):
            await reply.read()

    assert play(act, watched=True)[0].outcome == "failed"


def test_finished_resumes_a_paused_exchange() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(WORD)
        reply = await calling
        exchange.body(WORD * (FULL_BYTES // len(WORD) + 1))
        assert exchange.holds == ["pause"]
        ending = asyncio.get_running_loop().create_task(reply.finished())
        await asyncio.sleep(0.1)
        assert exchange.holds == ["pause", "resume"]
        exchange.body(END)
        exchange.end()
        await ending

    assert play(act)[0].ok


def test_unstreamed_call_is_read_in_one_piece() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(ROLE + WORD)
        reply = await calling
        reading = asyncio.get_running_loop().create_task(reply.read())
        for _ in range(3):
            await asyncio.sleep(0.1)
            exchange.body(WORD)
            assert not reading.done()
        exchange.body(END)
        assert await reading == ROLE + 4 * WORD + END
        exchange.end()
        assert await reply.read() == b""

    assert play(act, stream=False)[0].ok


def test_long_unstreamed_response_is_read_in_bounded_parts() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(WORD)
        reply = await calling
        reading = asyncio.get_running_loop().create_task(reply.read())
        await asyncio.sleep(0.1)
        exchange.body(WORD * (FULL_BYTES // len(WORD) + 1))
        assert len(await reading) > FULL_BYTES
        assert exchange.holds == ["pause", "resume"]
        exchange.body(END)
        exchange.end()
        assert await reply.read() == END

    assert play(act, stream=False)[0].ok


def test_broken_unstreamed_response_gives_its_bytes_first() -> None:
    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(WORD)
        reply = await calling
        reading = asyncio.get_running_loop().create_task(reply.read())
        await asyncio.sleep(0.1)
        exchange.fail(NetworkFault("reset", kind="reset", phase="between tokens"))
        assert await reading == WORD
        with pytest.raises(NetworkFault):
            await reply.read()

    assert play(act, stream=False)[0].outcome == "failed"


def test_whole_response_may_take_longer_than_the_ttft_limit() -> None:
    limit_s = 120 + 5  # of the first token, and 5 s for the rest

    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        await asyncio.sleep(limit_s - 1)
        assert not calling.done()
        with pytest.raises(TimedOut, match="125,000 ms"):
            await calling

    (seen,) = play(act, stream=False, whole_ns=5 * clock.NS_PER_S)
    assert not seen.streamed


def test_bytes_pass_to_the_taker_and_refused_ones_to_the_reader() -> None:
    passed: list[bytes] = []

    def take(data: bytes) -> bool:
        if data.endswith(b"\n\n"):
            passed.append(data)
        return data.endswith(b"\n\n")

    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(WORD)
        reply = await calling
        reply.pass_on(take)
        exchange.body(WORD)
        assert not passed, "the reader does not have the first bytes yet"
        assert await reply.read() == WORD * 2
        reading = asyncio.get_running_loop().create_task(reply.read())
        await asyncio.sleep(0)
        exchange.body(ROLE)
        exchange.body(WORD)
        assert passed == [ROLE, WORD]
        exchange.body(WORD[:9])
        exchange.body(WORD[9:])
        assert await reading == WORD
        assert passed == [ROLE, WORD], "nothing overtakes the refused bytes"
        reading = asyncio.get_running_loop().create_task(reply.read())
        await asyncio.sleep(0)
        exchange.body(END)
        exchange.end()
        assert passed == [ROLE, WORD, END]
        assert await reading == b""
        await reply.aclose()

    (seen,) = play(act)
    assert seen.ok
    assert seen.body_bytes == len(ROLE + WORD * 4 + END)


def test_fault_of_the_taker_breaks_the_response() -> None:
    def take(data: bytes) -> bool:
        raise ProviderFault(
            "an event is too long", kind="too_long", phase="between tokens", status=200
        )

    async def act(calling: "asyncio.Task[Attempt]", exchange: ScriptedExchange) -> None:
        exchange.body(WORD)
        reply = await calling
        reply.pass_on(take)
        assert await reply.read() == WORD
        reading = asyncio.get_running_loop().create_task(reply.read())
        await asyncio.sleep(0)
        exchange.body(WORD)
        with pytest.raises(ProviderFault, match="too long"):
            await reading

    (seen,) = play(act)
    assert seen.fault is not None
    assert seen.fault.kind == "too_long"
