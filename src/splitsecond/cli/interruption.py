"""End of a long command at SIGINT (Ctrl-C) or SIGTERM: what was measured is kept and reported.

The handler sets a flag and cancels the task that runs; the command checks the flag between its
steps. (A handler that raises is not safe: Python drops an exception that is raised inside a
finalizer.) A further signal ends the process at once. SIGINT stays ignored if the process was
started with it ignored (by `nohup`, or in the background of a script).
"""

import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_SHOW_CURSOR = b"\x1b[?25h"


def discard_output() -> None:
    """Send standard output to nowhere, because its reader has closed the pipe (`| head`)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Interrupted(KeyboardInterrupt):
    """A signal ended the command. `code`: the exit code, 128 plus the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = _exit_code(number)
        self.words = (
            "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        )


class Interruption:
    """Record of the signal that asked the command to end. Use as a context manager, in the main
    thread."""

    def __init__(self) -> None:
        self._number = 0
        self._steps: list[Callable[[], object]] = []
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def code(self) -> int:
        return _exit_code(self._number) if self._number else 0

    def check(self) -> None:
        if self._number:
            raise Interrupted(self._number)

    def run(
        self,
        work: Coroutine[Any, Any, T],
        *,
        first: Callable[[], object] | None = None,
        loop_factory: "Callable[[], asyncio.AbstractEventLoop] | None" = None,
    ) -> T:
        """Run `work` in an event loop of its own; a signal cancels it.

        With `first`, the first signal calls that instead and the second one cancels. Raises
        `Interrupted` where `work` was cancelled, or not started because a signal had arrived
        before.
        """
        import asyncio  # not before it is needed, as `--help` imports this module

        try:
            self.check()
        except Interrupted:
            work.close()
            raise
        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                return runner.run(self._watched(work, first))
        except asyncio.CancelledError:
            self.check()
            raise

    async def _watched(self, work: Coroutine[Any, Any, T], first: Callable[[], object] | None) -> T:
        import asyncio

        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # this is a coroutine of a task
        # Only this call wakes up a loop that waits for its sockets.
        self._steps = [
            partial(loop.call_soon_threadsafe, act) for act in (first, task.cancel) if act
        ]
        if self._number:  # it arrived while the loop was made
            self._steps.pop(0)()
        try:
            return await work
        finally:
            self._steps = []

    def _received(self, number: int, _: FrameType | None) -> None:
        again, self._number = self._number, self._number or number
        if self._steps:
            self._steps.pop(0)()
        elif again:
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), _SHOW_CURSOR)  # a progress bar hides it
            os._exit(_exit_code(number))


def _exit_code(number: int) -> int:
    return 128 + number
