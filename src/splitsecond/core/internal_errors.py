"""Errors of this program, which no `Fault` describes: they are reported and counted, and the
process continues.

They are caught at a few edges only: where requests are handled, settings are reloaded, observers
are called, and background tasks begin a step (`contained`). `handling` catches those that reach the
event loop.

A report has the type of the exception and its traceback. It omits the exception's text, which can
quote a prompt, a response or a key.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from traceback import extract_tb, format_list
from types import TracebackType
from typing import Any, Literal

from splitsecond.core import clock
from splitsecond.core.errors import Fault, say

Place = Literal["callback", "observer", "reload", "request", "task"]
"""Where an error was caught: in a callback of the event loop (a timer, a readable socket), in an
observer of attempts and calls, while settings were reloaded, while a request was handled, in a
background task."""

counts: defaultdict[str, int] = defaultdict(int)
"""The number of errors of this process, by place."""
REPORT_NS = 60 * clock.NS_PER_S
"""Least time between two reports of errors that are raised in the same line. They are all
counted."""
MAX_FRAMES = 20
"""The innermost frames of a traceback that are printed."""

_reported_ns: dict[tuple[str, str, int], int] = {}
_after_report: Callable[[], object] | None = None


def report_internal_error(where: Place, error: BaseException) -> None:
    """Count `error` and print its traceback on standard error. Never raises; any thread may call
    it."""
    counts[where] += 1
    for each in causes(error):
        _print(where, each)
    if _after_report is not None:
        _after_report()


class contained:
    """Context manager that reports the exceptions raised in it, and continues after it."""

    def __init__(self, where: Place) -> None:
        self._where: Place = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        report_internal_error(self._where, error)
        return True


@contextmanager
def handling(on_report: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Report what callbacks and forgotten tasks of the running loop raise, while the context is
    open."""
    global _after_report
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_report_of_loop)
    before, _after_report = _after_report, partial(loop.call_soon_threadsafe, on_report)
    try:
        yield
    finally:
        _after_report = before
        loop.set_exception_handler(None)


def causes(error: BaseException) -> list[BaseException]:
    """Return the exceptions in a group and in the groups in it: one for each task group that they
    left. Return other exceptions as they are."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [cause for each in error.exceptions for cause in causes(each)]


def first_fault(group: BaseExceptionGroup) -> BaseException:
    """Return the first `Fault` in a group, or the first exception if it has none."""
    exceptions = causes(group)
    return next((each for each in exceptions if isinstance(each, Fault)), exceptions[0])


def _report_of_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if error is None:
        loop.default_exception_handler(context)  # a warning
    else:
        report_internal_error(
            "task" if "future" in context or "task" in context else "callback", error
        )


def _print(where: Place, error: BaseException) -> None:
    frames = extract_tb(error.__traceback__, limit=-MAX_FRAMES)
    name = type(error).__name__
    line = (name, frames[-1].filename, frames[-1].lineno or 0) if frames else (name, "", 0)
    now_ns = clock.now_ns()
    if now_ns - _reported_ns.get(line, now_ns - REPORT_NS) < REPORT_NS:
        return
    _reported_ns[line] = now_ns
    why = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
    say(
        f"internal error ({where}): {name}{why}. The process continues. Please report it with "
        f"these lines:"
    )
    for each in "".join(format_list(frames)).splitlines():
        say(each)
