"""Precise timers for an event loop: callbacks at absolute times, tens of microseconds late instead
of a millisecond.

Both asyncio and uvloop round their timers to whole milliseconds (the resolution of epoll and
libuv), which is as long as the gap between two tokens of a fast provider. So the `Pacer` keeps all
due times in one heap, and a single Linux ``timerfd``, armed for the earliest of them, wakes the
loop as a socket would. It also clears the expiry, so the descriptor is never read.

Without a timerfd (macOS), in a loop that cannot watch descriptors, and in virtual time,
``loop.call_at`` takes its place.

Times are absolute, in monotonic nanoseconds, so a late callback does not delay those after it.
"""

import asyncio
import ctypes
import heapq
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol, Self

from splitsecond.core import clock

_NEVER_NS = 1 << 62
_SWEEP_ABOVE = 64
"""Cancelled timers stay in the heap until they are due, or until they are more than this and the
majority."""


class Timer:
    __slots__ = ("_args", "_callback", "_pacer", "due_ns")

    def __init__(
        self, pacer: "Pacer", due_ns: int, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self.due_ns = due_ns
        self._pacer: Pacer | None = pacer
        self._callback: Callable[..., object] | None = callback
        self._args = args

    def cancel(self) -> None:
        pacer, self._pacer, self._callback, self._args = self._pacer, None, None, ()
        if pacer is not None:
            pacer._forget()


class Pacer:
    """Makes calls at absolute times on `loop`. It belongs to one loop and its thread; close it when
    done.

    Callbacks run inside the loop, in the order of their due times (equal times: in the order of
    `call_at`). An exception in one is reported to the loop's exception handler and does not delay
    the others.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        self._cancelled = 0
        self._armed_ns = _NEVER_NS
        self._closed = False
        self._wake: _Wake = _wake_for(loop, self._fire)

    def call_at(self, due_ns: int, callback: Callable[..., object], *args: Any) -> Timer:
        if self._closed:
            raise RuntimeError("the pacer is closed; no timer can be set")
        timer = Timer(self, due_ns, callback, args)
        self._count += 1
        heapq.heappush(self._heap, (due_ns, self._count, timer))
        if due_ns < self._armed_ns:
            self._arm(due_ns)
        return timer

    async def sleep_until(self, due_ns: int) -> None:
        if due_ns <= clock.now_ns():
            return
        done: asyncio.Future[None] = self._loop.create_future()
        timer = self.call_at(due_ns, _resolve, done)
        try:
            await done
        finally:
            timer.cancel()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._heap.clear()
            self._wake.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._heap) - self._cancelled} due"
        return f"<Pacer {state}, woken by {self._wake.name}>"

    def _fire(self) -> None:
        heap = self._heap
        now = clock.now_ns() + self._wake.early_ns
        # nothing is earlier, so timers set by the callbacks do not arm the kernel timer one by one
        self._armed_ns = 0
        while heap and heap[0][0] <= now:
            timer = heapq.heappop(heap)[2]
            callback, args = timer._callback, timer._args
            if callback is None:
                self._cancelled -= 1
                continue
            timer._pacer = None
            try:
                callback(*args)
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": f"a timer's callback failed: {callback!r}", "exception": error}
                )
        if not self._closed:
            self._arm(heap[0][0] if heap else _NEVER_NS)

    def _arm(self, due_ns: int) -> None:
        self._armed_ns = due_ns
        self._wake.set(due_ns if due_ns < _NEVER_NS else None)

    def _forget(self) -> None:
        self._cancelled += 1
        if self._cancelled > _SWEEP_ABOVE and self._cancelled * 2 > len(self._heap):
            self._heap[:] = [entry for entry in self._heap if entry[2]._callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0


def _resolve(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)


class _Wake(Protocol):
    name: str
    early_ns: int

    def set(self, due_ns: int | None) -> None: ...

    def close(self) -> None: ...


class _LoopTimer:
    """The loop's own timer. It counts in floating-point seconds, so a microsecond early is on
    time."""

    name = "loop.call_at"
    early_ns = clock.NS_PER_US

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop = loop
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due_ns: int | None) -> None:
        self.close()
        if due_ns is not None:
            self._handle = self._loop.call_at(due_ns / clock.NS_PER_S, self._fire)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _TimerFd:
    """A kernel timer whose descriptor the loop watches. It is never early."""

    name = "timerfd"
    early_ns = 0

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop = loop
        self._fd, self._settime = _open_timerfd()
        try:
            loop.add_reader(self._fd, fire)
        except BaseException:
            os.close(self._fd)
            raise

    def set(self, due_ns: int | None) -> None:
        self._settime(0 if due_ns is None else max(due_ns, 1))  # 0 would disarm it

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        os.close(self._fd)


def _wake_for(loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> _Wake:
    if sys.platform == "linux" and clock.is_real():
        try:
            return _TimerFd(loop, fire)
        except NotImplementedError:  # a loop that cannot watch descriptors
            pass
    return _LoopTimer(loop, fire)


def _open_timerfd() -> tuple[int, Callable[[int], None]]:
    """Return a timer descriptor on CLOCK_MONOTONIC and the function that sets it to an absolute
    time in ns (0: off).

    Raises `OSError`.
    """
    if sys.version_info >= (3, 13):
        descriptor = os.timerfd_create(1, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)

        def set_with_os(due_ns: int) -> None:
            os.timerfd_settime_ns(descriptor, flags=os.TFD_TIMER_ABSTIME, initial=due_ns)

        return descriptor, set_with_os

    # The constants and the layout are of <sys/timerfd.h>: struct itimerspec is {interval, value},
    # each {s, ns}.
    libc = ctypes.CDLL(None, use_errno=True)
    settime = libc.timerfd_settime
    settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    fd = libc.timerfd_create(1, os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create failed")
    spec = (ctypes.c_long * 4)()
    address = ctypes.addressof(spec)

    def set_with_libc(due_ns: int) -> None:
        spec[2], spec[3] = divmod(due_ns, clock.NS_PER_S)
        if settime(fd, 1, address, None) != 0:
            raise OSError(ctypes.get_errno(), f"timerfd_settime({due_ns} ns) failed")

    return fd, set_with_libc
