"""Virtual time: a program that waits an hour takes a millisecond and gives the same numbers each
time.

Tests run in it (`splitsecond.testing.virtual_time`), and so does what replays a log (`replay`).

The event loop is asyncio's with a different selector. When nothing is ready, the selector does not
sleep until the next timer but moves the loop's clock there. `run_virtual` makes this clock the
program's clock (`clock.using`), so that timestamps, timers and deadlines agree to the nanosecond.

If nothing is ready and no timer is set, a real loop would hang; this one raises `Deadlock` with the
waiting tasks and their positions. What runs in virtual time must not use threads, because the
selector would not wait for them; what the loop runs in an executor runs at once. Sockets work if
both ends are in the same loop.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from splitsecond.core import clock

T = TypeVar("T")

START_NS = 1_000 * clock.NS_PER_S
"""The start of virtual time. It is not 0, which means "not set" in a call's `due_ns` and
`start_ns`."""


class Deadlock(RuntimeError):
    """All tasks wait, nothing is ready, and no timer is set."""


class _JumpingSelector(selectors.SelectSelector):
    """A selector that advances the clock instead of sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = START_NS

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # the loop itself registers one, with which threads wake it
        if timeout is None or len(self.get_map()) > 1:
            ready = super().select(0)
            if ready:
                return ready
        if timeout == 0:
            return []
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set; waiting: " + _waiting_tasks())
        self.now_ns += max(1, round(timeout * clock.NS_PER_S))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_ns / clock.NS_PER_S

    def now_ns(self) -> int:
        """Return the loop's time in nanoseconds, exactly, while `time` is a float."""
        return self._jumping.now_ns

    def run_in_executor(  # type: ignore[override] # its arguments have types that cannot be written here
        self, executor: Any, work: Callable[..., T], *arguments: Any
    ) -> "asyncio.Future[T]":
        done = self.create_future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in virtual time and return its result. Raises `Deadlock` if it would hang."""
    loop = VirtualLoop()
    with clock.using(loop.now_ns), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)


def _waiting_tasks() -> str:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    return ", ".join(f"{task.get_name()} {_where(task)}" for task in tasks) or "no task at all"


def _where(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    return f"at {frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else "(ended)"
