"""The process that measures: `python -m splitsecond.load.worker`, told by the parent what to send.

Nothing else runs here: no screen, no disk, no statistics. Tasks come as lines on standard input, results go as lines to
standard output (see `messages`). Encoding and writing is done by a thread of its own, so that the event loop neither
waits for the parent nor for a pipe that is full. Its queue holds at most the observations of one run.

The terminal's Ctrl-C reaches every process of the group; here it is ignored, as the parent decides what it means.
"""

import asyncio
import os
import queue
import resource
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import count
from types import TracebackType
from typing import Protocol, Self

import msgspec
import uvloop

from splitsecond.errors import Fault
from splitsecond.load.block import MOST_IN_FLIGHT, run_block
from splitsecond.load.calibration import calibrate
from splitsecond.load.ledger import Ledger
from splitsecond.load.messages import (
    Begin,
    Command,
    Ended,
    Learn,
    Observed,
    Prepare,
    Prepared,
    Read,
    Refused,
    Report,
    Send,
    Stop,
)
from splitsecond.load.workload import Composer, Workload
from splitsecond.pacing import Pacer
from splitsecond.policy.building import build
from splitsecond.policy.expression import Expression, parse
from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Service
from splitsecond.timing.observation import Observation
from splitsecond.timing.timeline import record_fault
from splitsecond.transport.client import Client
from splitsecond.transport.kernel import stamping
from splitsecond.upstream.spec import TargetSpec
from splitsecond.upstream.target import connect

LONGEST_LINE = 1 << 28
"""Bytes in one command or report, at most: a file of prompts travels in one."""


class Connect(Protocol):
    """`upstream.connect`, or what a test has in its place."""

    def __call__(self, spec: TargetSpec, observer: Callable[[Observation], None], /) -> Service: ...


class Reports:
    """Writes reports to a descriptor, from a thread. Closing it waits until all is written."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb")
        self._queue: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="reports")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.put(None)
        self._thread.join()

    def put(self, report: Report) -> None:
        """Hand over a report; returns at once."""
        self._queue.put(report)

    def _write(self) -> None:
        encoder = msgspec.json.Encoder()
        try:
            with self._file:
                while (report := self._queue.get()) is not None:
                    self._file.write(encoder.encode(report) + b"\n")
                    self._file.flush()
        except BrokenPipeError:
            pass  # the parent is gone; the end of our input says so too, and ends the process


class Worker:
    """Does one task after another. Faults are reported; any other error is a bug, and ends the process."""

    def __init__(self, connect: Connect, put: Callable[[Report], None], pacer: Pacer) -> None:
        self._connect = connect
        self._put = put
        self._pacer = pacer
        self._number = 0
        self._specs: dict[str, TargetSpec] = {}
        self._policies: dict[str, Expression] = {}
        self._workloads: dict[str, Workload] = {}
        self._services: dict[str, Service] = {}
        self._ledger = Ledger(lambda observation: put(Observed(observation)))
        self._standing = Standing(_facts)

    async def run(self, commands: AsyncIterator[Command]) -> None:
        """Follows the commands until `Stop` or their end; then cancels the task under way, if any."""
        tasks: asyncio.Queue[Command] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            doing = group.create_task(self._do_each(tasks))
            async for command in commands:
                if isinstance(command, Stop):
                    break
                tasks.put_nowait(command)
            doing.cancel()

    async def _do_each(self, tasks: asyncio.Queue[Command]) -> None:
        while True:
            match await tasks.get():
                case Begin(targets, number, policies):
                    self._number = number
                    self._specs = {spec.name: spec for spec in targets}
                    self._policies = {policy: parse(policy) for policy in policies}
                case Learn(target, workload):
                    self._workloads[target] = workload
                case Prepare(targets, workload, input_tokens):
                    async with asyncio.TaskGroup() as group:
                        for target in targets:
                            group.create_task(self._prepare(target, workload, input_tokens))
                    self._put(Ended())
                case Send(block):
                    abandoned = await run_block(
                        block,
                        self._service(block.target),
                        Composer(self._workloads[block.target], block.condition if block.cache_reuse else ""),
                        self._ledger,
                        self._pacer,
                        lambda reading: self._put(Read(reading)),
                        worker=self._number,
                    )
                    self._put(Ended(abandoned))

    async def _prepare(self, target: str, workload: Workload, input_tokens: int) -> None:
        name = f"{target}@calibration"
        try:
            labelled = self._ledger.labelling(self._service(target), condition=name, target=target, role="calibration")
            calibrated = await calibrate(labelled, workload, input_tokens=input_tokens, name=name)
        except Fault as fault:
            self._put(Refused(target, record_fault(fault)))
        else:
            self._put(Prepared(target, calibrated))

    def _service(self, target: str) -> Service:
        if target not in self._services:
            if target in self._policies:
                self._services[target] = build(self._policies[target], self._service, self._standing)
            else:
                self._services[target] = self._connect(self._specs[target], self._observed)
        return self._services[target]

    def _observed(self, observation: Observation) -> None:
        """An attempt has ended: it is reported, and policies choose by it."""
        self._standing.observe(observation)
        self._ledger.observed(observation)


def _facts(target: str) -> Facts:
    """What a worker knows of `target`: only its name. Prices and regions are for a gateway to know."""
    return Facts(provider=target.partition("/")[0])


async def _commands(reader: asyncio.StreamReader) -> AsyncIterator[Command]:
    decoder = msgspec.json.Decoder(Command)
    while line := await reader.readline():
        yield decoder.decode(line)


async def _serve(connect: Connect, put: Callable[[Report], None]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    loop.add_signal_handler(signal.SIGTERM, transport.close)  # the same as the end of the input
    with Pacer(loop) as pacer:
        await Worker(connect, put, pacer).run(_commands(reader))
    transport.close()


def _allow_many_connections() -> None:
    """A stream is a descriptor, and the usual soft limit of 1024 is meant for other programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_IN_FLIGHT
    if soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def gathering() -> Connect:
    """`upstream.connect` over connections of one client, whose reads gather where there are many.

    Attempts are numbered across targets, since a policy makes some at several for one call.
    """
    return partial(connect, client=Client(gather=True), attempts=count(1))


def main(connect: Connect | None = None) -> None:
    """Runs a worker on standard input and output until it is told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _allow_many_connections()
    reports = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what else prints must not come between the reports
    with stamping(), Reports(reports) as out, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(connect or gathering(), out.put))


if __name__ == "__main__":
    main()
