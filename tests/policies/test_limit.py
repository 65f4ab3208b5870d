"""`limit`: how many places there are, how long they are held, the order of the queue, and
refusals."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from tests.policies.branches import SILENT, a_call, ask, fails, play, scripted, status

from splitsecond.core import clock
from splitsecond.core.errors import Overloaded, TimedOut
from splitsecond.routing.policies.limit import FIRST_GUESS_NS, limit
from splitsecond.testing.fake_service import Script

GOOD = Script(ttft=0.2, tokens=1)


def test_a_place_is_held_until_the_reply_is_closed() -> None:
    fake = scripted(GOOD)

    async def main() -> None:
        service = limit(fake, concurrency=1)
        reply = await service(a_call())
        await reply.finished()
        refusal = (await ask(service)).fault
        assert isinstance(refusal, Overloaded)
        assert "in flight 1 of 1, waiting 0 of 0" in refusal.message
        await reply.aclose()
        await reply.aclose()  # does not release a second place
        other = await service(a_call())
        assert isinstance((await ask(service)).fault, Overloaded)
        await other.aclose()

    play(main, [fake])


def test_a_refusal_has_a_retry_after() -> None:
    fake = scripted(Script(ttft=4, tokens=1))

    async def main() -> None:
        service = limit(fake, concurrency=1)
        waiting = asyncio.create_task(ask(service))
        await asyncio.sleep(1)
        first = (await ask(service)).fault
        assert isinstance(first, Overloaded)
        assert first.retry_after_ns == FIRST_GUESS_NS
        await waiting
        for _ in range(30):
            await ask(service)
        waiting = asyncio.create_task(ask(service))
        await asyncio.sleep(1)
        learned = (await ask(service)).fault
        assert isinstance(learned, Overloaded)
        assert learned.retry_after_ns is not None
        assert 3.8 < learned.retry_after_ns / clock.NS_PER_S < 4
        await waiting

    play(main, [fake])


def test_a_failure_releases_the_place() -> None:
    fake = scripted(fails(status(503)), GOOD)

    async def main() -> None:
        service = limit(fake, concurrency=1)
        assert (await ask(service)).fault is not None
        assert (await ask(service)).fault is None

    play(main, [fake])


def test_queue_is_first_come_first_served() -> None:
    fake = scripted(GOOD)

    async def main() -> None:
        service = limit(fake, concurrency=2, queue=3)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(service, a_call(number))) for number in range(6)]
        assert [round(task.result().ms) for task in tasks] == [200, 200, 400, 400, 600, 0]
        assert isinstance(tasks[5].result().fault, Overloaded)
        assert [attempt.call.id for attempt in fake.calls] == [
            f"call-{number}" for number in range(5)
        ]

    play(main, [fake])


def test_a_wait_in_the_queue_keeps_the_deadline() -> None:
    fake = scripted(SILENT)

    async def main() -> None:
        service = limit(fake, concurrency=1, queue=1)
        first = asyncio.create_task(ask(service, a_call(within_ms=5000)))
        await asyncio.sleep(0)
        late = await ask(service, a_call(within_ms=1000))
        assert isinstance(late.fault, TimedOut)
        assert (late.ms, late.fault.phase) == (1000, "queue")
        await first

    play(main, [fake])


def test_a_call_that_leaves_the_queue_loses_no_place() -> None:
    fake = scripted(GOOD)

    async def main() -> None:
        service = limit(fake, concurrency=1, queue=3)
        holder = await service(a_call())
        waiting = [asyncio.create_task(ask(service, a_call(number))) for number in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await holder.aclose()  # the first call in the queue was cancelled, but has not run yet
        waiting[1].cancel()  # and the second leaves in the turn in which it gets the place
        await asyncio.wait(waiting)
        assert [task.cancelled() for task in waiting] == [True, True, False]
        assert (await ask(service)).fault is None

    play(main, [fake])


@given(
    st.integers(1, 3),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 700), st.booleans()), max_size=12),
)
def test_concurrency_never_exceeds_the_limit(
    concurrency: int, queue: int, callers: list[tuple[int, int, bool]]
) -> None:
    fake = scripted(GOOD, fails(status(503)), GOOD)

    async def main() -> None:
        service = limit(fake, concurrency=concurrency, queue=queue)

        async def caller(starts_ms: int, leaves_ms: int, has_deadline: bool) -> None:
            await asyncio.sleep(starts_ms / 1000)
            task = asyncio.create_task(
                ask(service, a_call(within_ms=300 if has_deadline else None))
            )
            asyncio.get_running_loop().call_later(leaves_ms / 1000, task.cancel)
            await asyncio.wait([task])
            assert fake.left_open <= concurrency

        async with asyncio.TaskGroup() as group:
            for each in callers:
                group.create_task(caller(*each))
        replies = (
            [await service(a_call()) for _ in range(concurrency)] if len(fake.calls) > 1 else []
        )
        for reply in replies:
            await reply.aclose()

    play(main, [fake])
