"""Several replays of one log at once, in a process for each processor.

A process begins as a copy of this one (`fork`), which shares the log's memory, and sends back what
its calls met. Only Linux can copy a process that has loaded numpy safely; elsewhere, and for a
small log, replays are made one after another.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import cast

from splitsecond.core.errors import CallerFault
from splitsecond.replay.running import ReplayedCalls

MIN_CALLS = 5000
"""Calls from which on a process is worth its start."""
Sent = Callable[[int], None]
Replay = Callable[[Sent], ReplayedCalls]


def replays(jobs: Sequence[Replay], calls: int, sent: Sent) -> list[ReplayedCalls]:
    """Return the results of `jobs`, in their order. Each job replays `calls` calls.

    Each job gets a function like `sent`, for the number of calls that were sent since. Raises
    `CallerFault` if a process ends early.
    """
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if min(processors, len(jobs)) < 2 or calls < MIN_CALLS:
        return [job(sent) for job in jobs]
    by_place: dict[int, ReplayedCalls] = {}
    waiting = list(enumerate(jobs))
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processors:
                place, job = waiting.pop(0)
                connection, process = _started(job)
                running[connection] = place, process
            for ready in cast(list[Connection], wait(list(running))):
                message = _received(ready)
                if isinstance(message, int):
                    sent(message)
                    continue
                place, process = running.pop(ready)
                by_place[place] = message
                ready.close()
                process.join()
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()
    return [by_place[place] for place in range(len(jobs))]


def _started(job: Replay) -> tuple[Connection, BaseProcess]:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_run, args=(job, theirs))
    process.start()
    theirs.close()
    return ours, process


def _run(job: Replay, results: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the first process ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        results.send(job(results.send))
    except Exception:
        results.send(traceback.format_exc())


def _received(connection: Connection) -> int | ReplayedCalls:
    try:
        message = connection.recv()
    except EOFError:
        raise CallerFault(
            "a process that replays the log ended early",
            kind="replay_ended",
            hint="If memory is short, replay fewer calls with --calls.",
        ) from None
    if isinstance(message, str):  # a bug, with its traceback
        raise RuntimeError(message)
    return cast("int | ReplayedCalls", message)
