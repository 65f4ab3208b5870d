"""`deadline`: for the first token, and for the whole answer."""

import pytest
from tests.policies.branches import SILENT, a_call, ask, play, scripted

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, TimedOut
from splitsecond.core.events import Broken, Event
from splitsecond.core.service import Call, Reply
from splitsecond.routing.policies.deadline import deadline
from splitsecond.testing.fake_service import Script


def test_ttft_limit_ends_the_wait_for_the_first_token() -> None:
    fake = scripted(SILENT)

    async def main() -> None:
        seen = await ask(deadline(fake, ttft="2s"))
        assert isinstance(seen.fault, TimedOut)
        assert (seen.ms, seen.fault.phase, seen.fault.after_ns) == (
            2000,
            "first token",
            2 * clock.NS_PER_S,
        )
        assert fake.calls[0].closed_at == clock.now_ns()

    play(main, [fake])


def test_a_token_at_the_last_moment_is_returned_or_closed() -> None:
    fake = scripted(Script(ttft=2))

    async def main() -> None:
        await ask(deadline(fake, ttft="2s"))

    play(main, [fake])


def test_a_stream_continues_after_ttft_and_ends_at_total() -> None:
    fake = scripted(Script(ttft=0.1, tokens=100, tps=10))

    async def main() -> None:
        began_ns = clock.now_ns()
        reply = await deadline(fake, total="3s", ttft="200ms")(a_call())
        events: list[Event] = [event async for event in reply]
        await reply.aclose()
        assert isinstance(events[-1], Broken)
        assert events[-1].fault.phase == "total"
        assert clock.now_ns() - began_ns == 3 * clock.NS_PER_S

    play(main, [fake])


@pytest.mark.parametrize(("within_ms", "ends_ms"), [(None, 3000), (1000, 1000), (9000, 3000)])
def test_the_earlier_deadline_holds(within_ms: int | None, ends_ms: int) -> None:
    fake = scripted(SILENT)

    async def main() -> None:
        seen = await ask(deadline(fake, total="3s"), a_call(within_ms=within_ms))
        assert isinstance(seen.fault, TimedOut)
        assert (seen.ms, seen.fault.phase) == (ends_ms, "total")

    play(main, [fake])


def test_a_builtin_timeout_error_of_the_service_is_raised() -> None:
    async def broken(call: Call) -> Reply:
        raise TimeoutError("not ours")

    async def main() -> None:
        with pytest.raises(TimeoutError, match="not ours"):
            await deadline(broken, ttft="1s")(a_call())

    play(main)


def test_a_deadline_needs_a_time() -> None:
    with pytest.raises(CallerFault, match="deadline needs total or ttft"):
        deadline(scripted(SILENT))
