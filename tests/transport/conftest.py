"""Both event loops that the client must work on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.SelectorEventLoop], ids=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine to its end, on each loop, for at most ten seconds."""

    def to_the_end(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(story, 10))

    return to_the_end
