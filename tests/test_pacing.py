"""The pacer: order, cancelling and absolute times in virtual time; the kernel timer once, on both
loops."""

import asyncio
import selectors
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import WITHIN_S

from splitsecond.core import clock
from splitsecond.core.pacing import Pacer, Timer

BOTH_LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class HandTimer(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next timer as soon as nothing else is ready."""

    def __init__(self) -> None:
        super().__init__(selectors.SelectSelector())
        self.now = 1000.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout: float | None = None) -> list[Any]:
            self.now += timeout or 0.0
            return list(select(0))

        selector.select = jump

    def time(self) -> float:
        return self.now


@pytest.fixture
def loop() -> Iterator[HandTimer]:
    loop = HandTimer()
    with clock.using(lambda: int(loop.now * 1e9)):
        yield loop
    loop.close()


def run(loop: asyncio.AbstractEventLoop, play: Callable[[Pacer], Any]) -> Any:
    async def inside() -> Any:
        with Pacer(loop) as pacer:
            return await play(pacer)

    return loop.run_until_complete(inside())


@given(st.lists(st.integers(-5, 400), min_size=1, max_size=40), st.data())
def test_timers_fire_once_in_order_and_never_early(
    delays_ms: list[int], data: st.DataObject
) -> None:
    dropped = data.draw(st.sets(st.integers(0, len(delays_ms) - 1)))
    loop = HandTimer()
    fired: list[tuple[int, int]] = []

    async def play(pacer: Pacer) -> None:
        start = clock.now_ns()

        def note(which: int, due_ns: int) -> None:
            assert clock.now_ns() >= due_ns - clock.NS_PER_US
            fired.append((due_ns, which))

        timers = [
            pacer.call_at(due, note, i, due)
            for i, due in enumerate(start + delay * clock.NS_PER_MS for delay in delays_ms)
        ]
        for i in dropped:
            timers[i].cancel()
        await pacer.sleep_until(start + 500 * clock.NS_PER_MS)

    with clock.using(lambda: int(loop.now * 1e9)):
        run(loop, play)
    loop.close()
    assert fired == sorted(fired)
    assert sorted(which for _, which in fired) == [
        i for i in range(len(delays_ms)) if i not in dropped
    ]


def test_an_earlier_timer_set_later_fires_first(loop: HandTimer) -> None:
    async def play(pacer: Pacer) -> list[str]:
        start = clock.now_ns()
        fired: list[str] = []
        pacer.call_at(start + 2_000_000, fired.append, "late")
        pacer.call_at(start + 1_000_000, fired.append, "early")
        await pacer.sleep_until(start + 3_000_000)
        return fired

    assert run(loop, play) == ["early", "late"]


def test_a_callback_may_set_the_next_timer_and_cancel_another(loop: HandTimer) -> None:
    async def play(pacer: Pacer) -> list[int]:
        start = clock.now_ns()
        ticks: list[int] = []
        victim = pacer.call_at(start + 5_000_000, ticks.append, -1)

        def tick(n: int) -> None:
            ticks.append(n)
            victim.cancel()
            if n < 5:
                pacer.call_at(start + (n + 1) * 2_000_000, tick, n + 1)

        pacer.call_at(start, tick, 0)
        await pacer.sleep_until(start + 20_000_000)
        return ticks

    assert run(loop, play) == [0, 1, 2, 3, 4, 5]


def test_a_failing_callback_is_reported_and_the_others_still_run(loop: HandTimer) -> None:
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(repr(context["exception"])))

    async def play(pacer: Pacer) -> list[int]:
        start = clock.now_ns()
        fired: list[int] = []
        pacer.call_at(start, [].pop)
        pacer.call_at(start, fired.append, 1)
        await pacer.sleep_until(start + 1_000_000)
        return fired

    assert run(loop, play) == [1]
    assert reported == ["IndexError('pop from empty list')"]


def test_cancelled_timers_do_not_pile_up(loop: HandTimer) -> None:
    async def play(pacer: Pacer) -> None:
        for i in range(10_000):
            timer = pacer.call_at(clock.now_ns() + 10**12 + i, print)
            timer.cancel()
            timer.cancel()
        assert len(pacer._heap) <= 65
        assert repr(pacer) == "<Pacer 0 due, woken by loop.call_at>"

    run(loop, play)


def test_a_cancelled_sleep_leaves_no_timer(loop: HandTimer) -> None:
    async def play(pacer: Pacer) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pacer.sleep_until(clock.now_ns() + 10**12), 0.01)
        assert repr(pacer).startswith("<Pacer 0 due")

    run(loop, play)


def test_a_sleep_until_the_past_returns_at_once(loop: HandTimer) -> None:
    async def play(pacer: Pacer) -> int:
        before = clock.now_ns()
        await pacer.sleep_until(before - 1)
        return clock.now_ns() - before

    assert run(loop, play) == 0


def test_a_closed_pacer_sets_no_timer(loop: HandTimer) -> None:
    pacer = Pacer(loop)
    pacer.call_at(clock.now_ns(), print)
    pacer.close()
    pacer.close()
    assert repr(pacer) == "<Pacer closed, woken by loop.call_at>"
    with pytest.raises(RuntimeError, match="closed"):
        pacer.call_at(0, print)


@BOTH_LOOPS
def test_the_kernel_timer_wakes_either_loop_and_is_never_early(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def play(pacer: Pacer) -> list[int]:
        assert "timerfd" in repr(pacer)
        start = clock.now_ns()
        late: list[int] = []

        def note(due_ns: int) -> None:
            late.append(clock.now_ns() - due_ns)

        timers: list[Timer] = [
            pacer.call_at(start + i * 700_000, note, start + i * 700_000) for i in range(20)
        ]
        timers[3].cancel()
        await asyncio.wait_for(pacer.sleep_until(start + 20 * 700_000), WITHIN_S)
        return late

    loop = new_loop()
    try:
        late = run(loop, play)
    finally:
        loop.close()
    assert len(late) == 19
    assert min(late) >= 0


def test_a_loop_that_cannot_watch_descriptors_uses_its_own_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: Any) -> None:
        raise NotImplementedError

    loop = asyncio.new_event_loop()
    monkeypatch.setattr(loop, "add_reader", refuse)
    with Pacer(loop) as pacer:
        assert "loop.call_at" in repr(pacer)
    loop.close()
