"""Conformance checks: they test whether a service, such as a target or a policy, keeps the service
contract.

    def make(script: Script) -> Subject:
        fake = FakeService(script=lambda call: script)
        return Subject(my_policy(fake), lambda: fake.left_open)

    check_service(make)

Each check makes a new service, in virtual time, over one that answers by the script. Both outcomes
pass where the contract leaves a choice (an answer without a token can be a reply or a `Fault`).
"""

import asyncio
from collections.abc import Callable

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.errors import Fault, NetworkFault, ProviderFault, TimedOut
from splitsecond.core.events import Broken, Done, Event, Token
from splitsecond.core.service import Call, Reply, Service
from splitsecond.testing.fake_service import Script
from splitsecond.testing.virtual_time import run_virtual


class Subject(Struct, frozen=True):
    """The service under test. `left_open` returns how many requests below it are in flight or were
    not closed.

    A service that `holds` can delay a reply until it knows whether the answer is good, and then ask
    another target. So the time of its reply is not checked, nor whether a broken answer is an event
    or a fault.
    """

    service: Service
    left_open: Callable[[], int]
    holds: bool = False


Make = Callable[[Script], Subject]

TTFT_MS = 200
TOKENS = 5
_ANSWER = Script(ttft=TTFT_MS / 1000, tokens=TOKENS, tps=100)
_WITHIN_MS = 1000


def check_service(make: Make) -> None:
    """Run all checks. The first that fails raises `AssertionError` with its name."""
    for check in (
        _returns_at_the_first_token,
        _reads_to_the_end,
        _closes_at_once,
        _closes_when_left,
        _raises_a_fault,
        _breaks_in_the_stream,
        _says_that_an_answer_is_empty,
        _keeps_the_deadline_while_it_waits,
        _keeps_the_deadline_in_the_stream,
        _answers_two_at_once,
        _gives_events_and_bytes_of_a_watched_call,
        _tells_both_readers_of_a_break,
    ):
        try:
            run_virtual(check(make))
        except AssertionError as failed:
            raise AssertionError(
                f"{check.__name__.strip('_').replace('_', ' ')}: {failed}"
            ) from failed
    for cancelled_after_ms in (0, 1, TTFT_MS - 1, TTFT_MS, TTFT_MS + 1):
        run_virtual(_closes_when_cancelled(make, cancelled_after_ms))


def _call(number: int = 1, *, within_ms: int | None = None, watched: bool = False) -> Call:
    now_ns = clock.now_ns()
    deadline_ns = None if within_ms is None else now_ns + within_ms * NS_PER_MS
    body = {"messages": [{"role": "user", "content": "Say something."}]}
    return Call(
        id=f"call-{number}", body=body, start_ns=now_ns, deadline_ns=deadline_ns, watched=watched
    )


async def _events(reply: Reply) -> list[Event]:
    return [event async for event in reply]


def _over(subject: Subject, began_ns: int, after_ms: int, *, exactly: bool = False) -> None:
    assert subject.left_open() == 0, f"{subject.left_open()} requests were left open"
    elapsed_ms = (clock.now_ns() - began_ns) / NS_PER_MS
    timed = exactly or not subject.holds
    assert not timed or abs(elapsed_ms - after_ms) < 0.001, (
        f"took {elapsed_ms} ms, expected {after_ms}"
    )
    assert asyncio.all_tasks() == {asyncio.current_task()}, "a task was left behind"


async def _returns_at_the_first_token(make: Make) -> None:
    subject, began_ns = make(_ANSWER), clock.now_ns()
    reply = await subject.service(_call())
    assert subject.holds or round((clock.now_ns() - began_ns) / NS_PER_MS) == TTFT_MS
    assert not reply.empty
    events = await _events(reply)
    assert sum(isinstance(event, Token) for event in events) == TOKENS
    assert isinstance(events[-1], Done), f"the last event is {events[-1]}"
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert await _events(reply) == []
    await reply.aclose()
    await reply.aclose()
    _over(subject, began_ns, TTFT_MS + 10 * (TOKENS - 1))


async def _reads_to_the_end(make: Make) -> None:
    subject, began_ns = make(_ANSWER), clock.now_ns()
    async with await subject.service(_call()) as reply:
        await reply.finished()
    _over(subject, began_ns, TTFT_MS + 10 * (TOKENS - 1))


async def _closes_at_once(make: Make) -> None:
    subject, began_ns = make(_ANSWER), clock.now_ns()
    reply = await subject.service(_call())
    assert subject.left_open() == 1
    await reply.aclose()
    _over(subject, began_ns, TTFT_MS)


async def _closes_when_left(make: Make) -> None:
    subject, began_ns = make(_ANSWER), clock.now_ns()
    try:
        async with await subject.service(_call()):
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    _over(subject, began_ns, TTFT_MS)


async def _raises_a_fault(make: Make) -> None:
    fault = ProviderFault("busy", kind="http_418", phase="head", status=418)
    subject, began_ns = make(Script(ttft=0.1, fault=fault)), clock.now_ns()
    raised = await _fault(subject, _call())
    assert raised is not None, "the fault did not come through"
    left_ns = clock.now_ns() - began_ns
    _over(subject, began_ns, left_ns // NS_PER_MS)


async def _breaks_in_the_stream(make: Make) -> None:
    fault = NetworkFault("gone", kind="reset", phase="between tokens")
    subject, began_ns = make(Script(ttft=0.2, tps=100, fault=fault, breaks_after=2)), clock.now_ns()
    async with await subject.service(_call()) as reply:
        events = await _events(reply)
        await reply.finished()
    kinds = [type(event) for event in events]
    assert kinds == [Token, Token, Broken], f"the events are {kinds}"
    _over(subject, began_ns, 220)


async def _says_that_an_answer_is_empty(make: Make) -> None:
    subject = make(Script(ttft=0.2, tokens=0))
    try:
        reply = await subject.service(_call())
    except Fault:
        pass
    else:
        async with reply:
            assert reply.empty, "an answer without a token calls itself not empty"
            assert isinstance((await _events(reply))[-1], Done)
    assert subject.left_open() == 0


async def _keeps_the_deadline_while_it_waits(make: Make) -> None:
    subject, began_ns = make(Script(hangs=True)), clock.now_ns()
    raised = await _fault(subject, _call(within_ms=_WITHIN_MS))
    assert raised is not None, "it returned a reply without an answer"
    took_ms = (clock.now_ns() - began_ns) / NS_PER_MS
    assert took_ms <= _WITHIN_MS + 0.001, (
        f"it waited {took_ms} ms, but the deadline was {_WITHIN_MS} ms"
    )
    _over(subject, began_ns, round(took_ms))


async def _keeps_the_deadline_in_the_stream(make: Make) -> None:
    subject, began_ns = make(Script(ttft=0.2, tokens=1000, tps=100)), clock.now_ns()
    try:
        async with await subject.service(_call(within_ms=_WITHIN_MS)) as reply:
            last = (await _events(reply))[-1]
    except Fault as fault:
        if not subject.holds or fault.phase != "total":
            raise AssertionError(f"it failed with {fault!r}") from fault
    else:
        assert isinstance(last, Broken), f"the last event is {last}"
        assert isinstance(last.fault, TimedOut), f"the stream broke with {last.fault!r}"
    _over(subject, began_ns, _WITHIN_MS, exactly=True)


async def _answers_two_at_once(make: Make) -> None:
    subject, began_ns = make(_ANSWER), clock.now_ns()
    async with asyncio.TaskGroup() as group:
        answers = [group.create_task(_answer(subject, number)) for number in (1, 2)]
    assert [answer.result() for answer in answers] == [TOKENS, TOKENS]
    _over(subject, began_ns, TTFT_MS + 10 * (TOKENS - 1))


async def _answer(subject: Subject, number: int) -> int:
    async with await subject.service(_call(number)) as reply:
        return sum(isinstance(event, Token) for event in await _events(reply))


async def _bytes(reply: Reply) -> bytes:
    parts: list[bytes] = []
    while data := await reply.read():
        parts.append(data)
    return b"".join(parts)


async def _gives_events_and_bytes_of_a_watched_call(make: Make) -> None:
    """Read events and bytes in step, by two readers at once, and one after the other: the result
    must be the same."""
    subject = make(_ANSWER)
    async with await subject.service(_call(watched=True)) as reply:
        whole, events = b"", list[Event]()
        while data := await reply.read():
            whole += data
            events += reply.arrived()
        events += reply.arrived()
    assert sum(isinstance(event, Token) for event in events) == TOKENS, f"the events are {events}"
    assert isinstance(events[-1], Done), f"the last event is {events[-1]}"
    assert whole, "there are no bytes"
    async with await subject.service(_call(2, watched=True)) as reply, asyncio.TaskGroup() as group:
        reading, watching = group.create_task(_bytes(reply)), group.create_task(_events(reply))
    assert _same(reading.result(), watching.result(), whole, events), (
        "two readers at once get something else"
    )
    async with await subject.service(_call(3, watched=True)) as reply:
        watched = await _events(reply)
        read = await _bytes(reply)
    assert _same(read, watched, whole, events), (
        "a reader of the bytes after the events gets something else"
    )
    assert subject.left_open() == 0


def _same(read: bytes, watched: list[Event], whole: bytes, events: list[Event]) -> bool:
    return len(read) == len(whole) and list(map(type, watched)) == list(map(type, events))


async def _tells_both_readers_of_a_break(make: Make) -> None:
    fault = NetworkFault("gone", kind="reset", phase="between tokens")
    subject = make(Script(ttft=0.2, tps=100, fault=fault, breaks_after=2))
    async with await subject.service(_call(watched=True)) as reply:
        events = await _events(reply)
        raised: Fault | None = None
        try:
            await _bytes(reply)
        except Fault as broken:
            raised = broken
    assert isinstance(events[-1], Broken), f"the last event is {events[-1]}"
    assert raised is not None, "the bytes of a broken answer ended like those of a complete one"
    assert subject.left_open() == 0


async def _fault(subject: Subject, call: Call) -> Fault | None:
    try:
        reply = await subject.service(call)
    except Fault as fault:
        return fault
    await reply.aclose()
    return None


async def _closes_when_cancelled(make: Make, after_ms: int) -> None:
    """Cancel the call after `after_ms`: nothing may stay open, at once."""
    subject, began_ns = make(_ANSWER), clock.now_ns()
    waiting = asyncio.get_running_loop().create_task(_answer(subject, 1))
    await asyncio.sleep(after_ms / 1000)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled(), f"cancelled after {after_ms} ms, it went on"
    _over(subject, began_ns, after_ms, exactly=True)
