"""Scheduling priority of a worker: a real-time class where the system allows it, else the best
priority that it allows.

Beside a server that keeps all cores busy, a normal process waits for a processor for tens of
milliseconds; a real-time one runs at once. If it ever ran for `LONGEST_RUN_US` without sleeping,
the kernel sends SIGXCPU and the worker returns to the normal class, so that it cannot starve the
machine.

The real-time class needs CAP_SYS_NICE or a limit RLIMIT_RTPRIO of at least 1, a better priority the
same capability or RLIMIT_NICE (sched(7), getrlimit(2)).
"""

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path

LONGEST_RUN_US = 200_000
BEST_NICE = -20
REAL_TIME, NORMAL = "real time", "normal"
_AUTOGROUP = Path("/proc/self/autogroup")
"""A session's own priority. A worker is a session of its own, and inside one a nice value alone has
no effect on other sessions (sched(7), "The autogroup feature")."""


def raise_priority() -> str:
    """Give this process, in all threads, the best priority that it may have. Return `priority()`.

    A thread at a normal priority could be interrupted while it holds the interpreter's lock, and
    the measuring thread would wait for it. Call it again before each block, as the process may have
    returned to the normal class.
    """
    if sys.platform != "linux":
        return priority()
    try:
        _set_class(os.SCHED_RR, 1)
    except PermissionError:
        _raise_niceness()
        return priority()
    signal.signal(signal.SIGXCPU, lambda *_: _set_class(os.SCHED_OTHER, 0))
    resource.setrlimit(
        resource.RLIMIT_RTTIME, (LONGEST_RUN_US, resource.getrlimit(resource.RLIMIT_RTTIME)[1])
    )
    return priority()


def priority() -> str:
    if sys.platform == "linux" and os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO):
        return REAL_TIME
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return f"nice {nice}" if nice else NORMAL


def _raise_niceness() -> None:
    best = 20 - resource.getrlimit(resource.RLIMIT_NICE)[0]
    for nice in (BEST_NICE, best):
        if nice < os.getpriority(os.PRIO_PROCESS, 0):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, 0, nice)
                _AUTOGROUP.write_text(str(nice))
                return


def _set_class(policy: int, level: int) -> None:
    """Set the scheduling class of all threads of this process. Raises `PermissionError`."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # the thread has ended
            os.sched_setscheduler(int(thread), policy, os.sched_param(level))
