"""Virtual time, which passes only when nothing else can happen."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.core import clock
from splitsecond.testing.virtual_time import START_NS, Deadlock, run_virtual


def test_an_hour_passes_at_once_and_exactly() -> None:
    async def main() -> int:
        await asyncio.sleep(3600)
        return clock.now_ns()

    assert run_virtual(main()) == START_NS + 3600 * clock.NS_PER_S


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_timers_fire_at_their_nanosecond_and_in_order(delays: list[int]) -> None:
    async def main() -> list[int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        for delay in delays:
            loop.call_at(
                (START_NS + delay) / clock.NS_PER_S, lambda: seen.append(clock.now_ns() - START_NS)
            )
        await asyncio.sleep((max(delays) + 1000) / clock.NS_PER_S)
        return seen

    assert run_virtual(main()) == sorted(delays)


def test_a_deadline_is_met_to_the_nanosecond() -> None:
    async def main() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await asyncio.Event().wait()
        return clock.now_ns()

    assert run_virtual(main()) == START_NS + 250 * clock.NS_PER_MS


def test_deadlock_is_an_error_that_names_the_waiting_task() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait(), name="forgotten")

    with pytest.raises(Deadlock, match=r"forgotten at .*locks\.py"):
        run_virtual(main())


def test_sockets_within_one_loop_work() -> None:
    async def main() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            writer.close()

        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            answer = await reader.readline()
            writer.close()
            return answer

    assert run_virtual(main()) == b"hello\n"


def test_real_time_is_back_afterwards() -> None:
    async def main() -> None: ...

    run_virtual(main())
    assert clock.now_ns() != START_NS
