"""The window of requests in flight: it grows with successes, and halves after rejections for
load."""

import asyncio

from splitsecond.core import clock
from splitsecond.routing.batch.concurrency_window import FIRST, ConcurrencyWindow
from splitsecond.testing.virtual_time import run_virtual


async def round_of(window: ConcurrencyWindow, refused: int = 0, wait_s: float = 0) -> int:
    """As many as fit are sent together, of which `refused` are; a second later all are over.
    Returns how many."""
    sent = [await window.enter() for _ in range(window.size)]
    await asyncio.sleep(1)
    for number, entered_ns in enumerate(sent):
        window.leave(entered_ns, refused=number < refused, wait_ns=round(wait_s * clock.NS_PER_S))
    return len(sent)


def test_window_doubles_until_a_rejection_then_grows_by_one() -> None:
    async def play() -> list[int]:
        window = ConcurrencyWindow(1000)
        sizes = [await round_of(window) for _ in range(4)]
        sizes.append(await round_of(window, refused=10))
        return [*sizes, *[await round_of(window) for _ in range(4)]]

    assert run_virtual(play()) == [FIRST, 8, 16, 32, 64, 32, 33, 34, 35]


def test_rejection_of_an_older_request_does_not_cut_again() -> None:
    async def play() -> ConcurrencyWindow:
        window = ConcurrencyWindow(1000)
        for _ in range(3):
            await round_of(window)
        early = [await window.enter() for _ in range(32)]
        await asyncio.sleep(1)
        for entered_ns in early:
            window.leave(entered_ns, refused=True)
        await asyncio.sleep(1)
        await round_of(window, refused=1)
        return window

    window = run_virtual(play())
    assert (window.cuts, window.size) == (2, 8)


def test_window_stays_between_one_and_its_maximum() -> None:
    async def play() -> tuple[int, int]:
        small, window = ConcurrencyWindow(2), ConcurrencyWindow(10)
        for _ in range(20):
            await round_of(window, refused=1)
        for _ in range(5):
            await round_of(small)
        return window.size, small.size

    assert run_virtual(play()) == (1, 2)


def test_all_requests_wait_if_a_target_asks_for_a_wait() -> None:
    async def play() -> float:
        window = ConcurrencyWindow(10)
        await round_of(window, refused=1, wait_s=30)
        begun_ns = clock.now_ns()
        await asyncio.gather(window.enter(), window.enter())
        return (clock.now_ns() - begun_ns) / clock.NS_PER_S

    assert run_virtual(play()) == 30


def test_window_that_is_not_filled_does_not_grow() -> None:
    async def play() -> int:
        window = ConcurrencyWindow(1000)
        for _ in range(50):
            window.leave(await window.enter())
        return window.size

    assert run_virtual(play()) == FIRST
