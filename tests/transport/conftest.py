"""Both event loops that the client must work on."""

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from tests.waiting import WITHIN_S

from splitsecond.core.transport.kernel import ANCILLARY_BYTES, stamp_arrivals, stamping

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(
    params=[uvloop.new_event_loop, asyncio.SelectorEventLoop], ids=["uvloop", "asyncio"]
)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine to its end, on each loop, for at most a minute."""

    def to_the_end(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(story, WITHIN_S))

    return to_the_end


@pytest.fixture(autouse=True, scope="session")
def stamped() -> Iterator[None]:
    """Has the kernel stamp packets for all tests, and waits until it does: it takes some
    milliseconds to begin."""
    with stamping(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as both:
        both.settimeout(WITHIN_S)
        both.bind(("127.0.0.1", 0))
        stamps = stamp_arrivals(both)
        assert stamps is (sys.platform == "linux")
        for _ in range(100_000 if stamps else 0):
            both.sendto(b"x", both.getsockname())
            if both.recvmsg(1, ANCILLARY_BYTES)[1]:
                break
        yield
