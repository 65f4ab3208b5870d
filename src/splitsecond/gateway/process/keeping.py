"""Keeps a child process of the gateway running: a worker, the hub, the simulator."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from splitsecond.core import clock
from splitsecond.core.errors import Fault, say
from splitsecond.core.internal_errors import report_internal_error

STEADY_S = 30.0
"""A process that lived for longer than this is replaced after the first pause."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


async def keep_running(
    name: str,
    run: Callable[[], Awaitable[str]],
    ending: asyncio.Event,
    *,
    so: str = "",
    gives_up: Callable[[str, Exception | None], bool] = lambda end, error: False,
) -> None:
    """Run a process, and again whenever it ends, after a pause that doubles with each death in a
    row, until `ending`.

    `run` starts it and returns how it ended, in words. Each end is reported with its consequence,
    `so`. `gives_up` gets how it ended, and the error if it could not start. Raises a `Fault` of
    `run`.
    """
    pause_s = 0.0
    while not ending.is_set():
        start_ns, then, error = clock.now_ns(), "a new one replaces it", None
        try:
            end = await run()
        except Fault:
            raise
        except Exception as failure:
            end, then, error = f"cannot start: {failure}", "it is tried again", failure
            if not isinstance(failure, OSError):
                report_internal_error("task", failure)
                end = "cannot start: internal error"
        if ending.is_set() or gives_up(end, error):
            return
        steady = clock.now_ns() - start_ns > STEADY_S * clock.NS_PER_S
        pause_s = FIRST_PAUSE_S if steady else min(max(FIRST_PAUSE_S, 2 * pause_s), LONGEST_PAUSE_S)
        say(f"{name} {end}; {then}{so}.")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), pause_s)
            return
