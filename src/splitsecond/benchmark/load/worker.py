"""The worker process, which sends requests and measures them: `python -m
splitsecond.benchmark.load.worker [CLOCK [exact]]`.

CLOCK is the best clock for arrival times ("packets", "kernel" or "process"), by default packets.
With "exact", no stream is read so seldom that its ITL is not exact.

Nothing else runs here: no screen, no disk, no statistics. A thread encodes and writes the reports,
so that the event loop never waits for the parent. Ctrl-C at the terminal is ignored here, because
the parent decides what it means.
"""

import asyncio
import os
import queue
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from typing import Protocol, Self

import msgspec
import uvloop
from msgspec.structs import replace

from splitsecond.benchmark.load.block import MAX_IN_FLIGHT, BlockRun, Hold, Pacing
from splitsecond.benchmark.load.calibration import calibrate, fault_note
from splitsecond.benchmark.load.cost_lease import LeaseAccount
from splitsecond.benchmark.load.messages import (
    Calibrate,
    CalibrationDone,
    CalibrationFailed,
    ClockReport,
    Command,
    Configure,
    MeasuredEnded,
    ObservationReport,
    ReadClock,
    ReadingReport,
    Release,
    Report,
    SendBlock,
    SetWorkload,
    Stop,
    TaskEnded,
)
from splitsecond.benchmark.load.priority import raise_priority
from splitsecond.benchmark.load.session_block import SessionBlockRun
from splitsecond.benchmark.workload.images import prepare_images
from splitsecond.benchmark.workload.workload import Composer, Workload
from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.observation import ArrivalClock, Observation, PacketCounts
from splitsecond.core.pacing import Pacer
from splitsecond.core.service import Call, Notes, Reply, Service
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.timing.timeline import record_fault
from splitsecond.core.transport.client import Client
from splitsecond.core.transport.kernel import raise_file_limit, stamping
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import connect
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.construction.user_policies import PolicyFile
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates

SWITCH_S = 0.0005
"""How long the thread that writes reports may hold the interpreter while the event loop waits for
it. Python's default is 5 ms."""
LONGEST_LINE = 1 << 28
"""Maximum bytes of one command or report. A command can hold a whole file of prompts."""


class ConnectTarget(Protocol):
    def __call__(self, spec: TargetSpec, observer: Callable[[Observation], None], /) -> Service: ...


class ReportWriter:
    """Writes reports in a thread. Leaving its context waits until all are written."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb")
        self._queue: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="reports")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()

    def put(self, report: Report) -> None:
        self._queue.put(report)

    def _write(self) -> None:
        encoder = msgspec.json.Encoder()
        try:
            with self._file:
                while (report := self._queue.get()) is not None:
                    self._file.write(encoder.encode(report) + b"\n")
                    self._file.flush()
        except BrokenPipeError:
            pass  # the parent is gone, so the input ends as well, and with it the process


class LoadWorker:
    """Does one task after another. It reports faults; any other exception is a bug and ends the
    process."""

    def __init__(
        self,
        connect: ConnectTarget,
        put: Callable[[Report], None],
        pacer: Pacing,
        packet_counts: Callable[[], PacketCounts | None] = lambda: None,
        before_block: Callable[[], object] = lambda: None,
    ) -> None:
        self._connect = connect
        self._packet_counts = packet_counts
        self._before_block = before_block
        self._put = put
        self._pacer = pacer
        self._number = 0
        self._specs: dict[str, TargetSpec] = {}
        self._policies: list[str] = []
        self._policy_file: PolicyFile | None = None
        self._workloads: dict[str, Workload] = {}
        self._services: dict[str, Service] = {}
        self._states = TargetStates(_facts)
        self._hold = Hold(lambda: None)

    async def run(self, commands: AsyncIterator[Command]) -> None:
        tasks: asyncio.Queue[Command] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            doing = group.create_task(self._do_each(tasks))
            async for command in commands:
                if isinstance(command, Stop):
                    break
                if isinstance(command, Release):
                    self._hold.release()
                    continue
                if isinstance(command, SendBlock):
                    self._hold = Hold(lambda: self._put(MeasuredEnded()))
                tasks.put_nowait(command)
            doing.cancel()

    async def _do_each(self, tasks: asyncio.Queue[Command]) -> None:
        while True:
            match await tasks.get():
                case Configure(targets, number, policies, policy_file):
                    self._number = number
                    self._specs = {spec.name: spec for spec in targets}
                    self._policies, self._policy_file = policies, policy_file
                case ReadClock():
                    self._put(ClockReport(clock.now_ns()))
                case SetWorkload(target, workload):
                    self._workloads[target] = workload
                    if workload.images:
                        prepare_images(workload.images)  # now, as nothing is measured yet
                case Calibrate(targets, workload, input_tokens, pilot):
                    async with asyncio.TaskGroup() as group:
                        for target in targets:
                            group.create_task(self._prepare(target, workload, input_tokens, pilot))
                    self._put(TaskEnded())
                case SendBlock(block, held, lease):
                    try:
                        service = self._service(block.target)
                    except (
                        Fault
                    ) as fault:  # only on another machine than the one that calibrated the target
                        self._put(TaskEnded(fault_note(fault)))
                        continue
                    self._before_block()
                    before = self._packet_counts()
                    account = None if lease is None else LeaseAccount(lease)
                    workload = self._workloads[block.target]
                    kind = BlockRun if workload.sessions is None else SessionBlockRun
                    run = kind(
                        block,
                        service,
                        Composer(workload, block.condition, alike=block.cache_reuse),
                        self._pacer,
                        hold=self._hold if held else None,
                        account=account,
                    )
                    abandoned = await run.send(self._report, partial(self._report_reading, before))
                    spent = account is not None and account.spent
                    self._put(TaskEnded(abandoned, spent))

    async def _prepare(
        self, target: str, workload: Workload, input_tokens: int, pilot: bool
    ) -> None:
        name = f"{target}@calibration"
        try:
            service = self._calibrating(self._service(target), name)
            workload, input_tokens = workload.of_target(target, input_tokens)
            calibrated = await calibrate(
                service, workload, input_tokens=input_tokens, name=name, pilot=pilot
            )
        except Fault as fault:
            self._put(CalibrationFailed(target, record_fault(fault)))
        else:
            self._put(CalibrationDone(target, calibrated))

    def _calibrating(self, service: Service, condition: str) -> Service:
        async def calibrating(call: Call) -> Reply:
            notes = Notes(condition=condition, role="calibration", observer=self._report)
            return await service(replace(call, notes=notes))

        return calibrating

    def _report(self, observation: Observation) -> None:
        self._put(ObservationReport(observation))

    def _report_reading(self, before: PacketCounts | None, reading: InstrumentReading) -> None:
        now = self._packet_counts()
        packets = None if now is None else now.since(before or PacketCounts())
        reading = replace(reading, worker=self._number, packets=packets)
        self._put(ReadingReport(reading))

    def _service(self, target: str) -> Service:
        if target not in self._services:
            if target in self._policies:
                own = self._policy_file.policies() if self._policy_file else {}
                self._services[target] = build(parse(target, own), self._service, self._states)
            else:
                self._services[target] = self._connect(self._specs[target], self._states.observe)
        return self._services[target]


def _facts(target: str) -> TargetInfo:
    """Return the provider of `target`: prices and regions matter in the gateway only."""
    return TargetInfo(provider=target.partition("/")[0])


async def _commands(reader: asyncio.StreamReader) -> AsyncIterator[Command]:
    decoder = msgspec.json.Decoder(Command)
    while line := await reader.readline():
        yield decoder.decode(line)


async def _serve(client: Client, connect: ConnectTarget, put: Callable[[Report], None]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    # has the effect of the end of the input
    loop.add_signal_handler(signal.SIGTERM, transport.close)
    with Pacer(loop) as pacer, closing(client):
        await LoadWorker(connect, put, pacer, client.packet_counts, raise_priority).run(
            _commands(reader)
        )
    transport.close()


def main(connect_fake: ConnectTarget | None = None) -> None:
    arrival_clock = msgspec.convert(sys.argv[1] if len(sys.argv) > 1 else "packets", ArrivalClock)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise_file_limit(2 * MAX_IN_FLIGHT)
    reports = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps stray prints out of the reports
    raise_priority()
    sys.setswitchinterval(SWITCH_S)
    with (
        stamping(),
        ReportWriter(reports) as out,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        client = Client(gather=True, arrival_clock=arrival_clock, exact_itl="exact" in sys.argv[2:])
        # Attempts are numbered across targets, because a policy makes attempts at several targets
        # for one call.
        runner.run(_serve(client, connect_fake or partial(connect, client=client), out.put))
