"""Virtual time: a test that waits an hour takes a millisecond, and gives the same numbers each time.

The loop is asyncio's own with one part replaced: the selector. When nothing is ready it does not sleep until the next
timer, it moves the loop's clock there. `run_virtual` makes the same clock the program's (`clock.using`), so that
stamps, timers and deadlines agree to the nanosecond.

Where a real loop would hang for ever (nothing is ready and no timer is set), this one raises `Deadlock` and says which
tasks are waiting, and where. For the same reason a test in virtual time uses no threads: nobody would wait for them.
Sockets work, as long as both ends live in the same loop.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from splitsecond import clock

T = TypeVar("T")

START_NS = 1_000 * clock.NS_PER_S
"""When virtual time begins. Not 0, which means "none" in a call's `due_ns` and `start_ns`."""


class Deadlock(RuntimeError):
    """Every task waits for another one: nothing is ready and no timer is set."""


class _JumpingSelector(selectors.SelectSelector):
    """A selector that never sleeps: it moves the clock on instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = START_NS

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set; waiting: " + _who_waits())
        self.now_ns += max(1, round(timeout * clock.NS_PER_S))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer whenever nothing is ready."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_ns / clock.NS_PER_S

    def now_ns(self) -> int:
        """The loop's time in nanoseconds, exact where `time` is a float."""
        return self._jumping.now_ns


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in virtual time and return what it returns. Raises `Deadlock` where it would hang."""
    loop = VirtualLoop()
    with clock.using(loop.now_ns), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)


def _who_waits() -> str:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    return ", ".join(f"{task.get_name()} {_where(task)}" for task in tasks) or "no task at all"


def _where(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    return f"at {frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else "(ended)"
