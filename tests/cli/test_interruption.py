"""Signals to a long command: the first one ends it gracefully, a further one at once."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from subprocess import PIPE

import pytest
import uvloop
from tests.processes import Process
from tests.waiting import WITHIN_S

from splitsecond.cli.interruption import Interrupted, Interruption

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(autouse=True)
def a_foreground_process() -> Iterator[None]:
    """SIGINT has its usual handler, also where the suite runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


async def signalled(number: int) -> None:
    """Wait without end, with a signal that comes while the loop waits for its sockets."""
    timer = threading.Timer(0.05, os.kill, (os.getpid(), number))
    timer.start()
    try:
        await asyncio.Event().wait()
    finally:
        timer.join()


@BOTH
@pytest.mark.parametrize("loop_factory", [None, uvloop.new_event_loop])
def test_signal_cancels_the_running_coroutine(
    number: int, loop_factory: type[asyncio.AbstractEventLoop] | None
) -> None:
    with Interruption() as stop, pytest.raises(Interrupted) as raised:
        stop.run(signalled(number), loop_factory=loop_factory)
    assert (raised.value.code, stop.code) == (128 + number, 128 + number)


@BOTH
def test_coroutine_that_ends_in_time_keeps_its_result(number: int) -> None:
    async def ends() -> str:
        signal.raise_signal(number)
        return "all of it"

    with Interruption() as stop:
        assert stop.run(ends()) == "all of it"
        assert stop.code == 128 + number
        with pytest.raises(Interrupted):
            stop.check()
        with pytest.raises(Interrupted):
            stop.run(ends())


def test_cancellation_without_a_signal_is_passed_on() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with Interruption() as stop, pytest.raises(asyncio.CancelledError):
        stop.run(cancelled())


def test_first_signal_calls_back_and_the_second_cancels() -> None:
    heard: list[str] = []

    async def twice() -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert heard == ["first"]
        await signalled(signal.SIGTERM)

    with Interruption() as stop, pytest.raises(Interrupted):
        stop.run(twice(), first=lambda: heard.append("first"))


def test_handlers_are_restored_and_ignored_ctrl_c_stays_ignored() -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with Interruption():
        pass
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interruption() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.code == 0
        signal.raise_signal(signal.SIGTERM)
        assert stop.code == 143


ENDLESS = """
from splitsecond.cli.interruption import Interruption

with Interruption() as stop:
    print("measuring", flush=True)
    while not stop.code:
        pass
    print("concluding", flush=True)
    while True:
        pass
"""


@BOTH
@pytest.mark.system
def test_a_second_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    with Process[str](
        [sys.executable, "-c", ENDLESS], stdout=PIPE, stderr=PIPE, text=True
    ) as process:
        for words in ("measuring\n", "concluding\n"):
            assert process.read_line() == words
            process.send_signal(number)
        assert process.wait(WITHIN_S) == 128 + number
        assert process.communicate() == ("", "")
