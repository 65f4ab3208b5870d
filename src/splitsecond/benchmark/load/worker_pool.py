"""Worker processes, from the parent's side.

Reports are passed on as they come, so a worker that dies loses only what it had not reported. When
the pool is left, each process has `PATIENCE_S` to cancel its requests in flight and report them,
and is then killed.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from types import TracebackType
from typing import Protocol, Self, TypeVar

import msgspec

from splitsecond.benchmark.load.messages import (
    Calibrate,
    Command,
    Configure,
    MeasuredEnded,
    Release,
    Report,
    SendBlock,
    SetWorkload,
    Stop,
    TaskEnded,
)
from splitsecond.benchmark.load.worker import LONGEST_LINE
from splitsecond.core import clock
from splitsecond.core.child_process import ChildProcess
from splitsecond.core.errors import Fault
from splitsecond.core.loading import module_command

WORKER_COMMAND = module_command("splitsecond.benchmark.load.worker")
PATIENCE_S = 1.5
START_AFTER_NS = 100 * clock.NS_PER_MS
"""Time for every process to receive its slice before all of them start together."""

OnReport = Callable[[Report], None]


class WorkerLost(Fault):
    """A worker process died during its task: a failure of this program, not of the provider."""


class Pipe(Protocol):
    """Both ends of the standard streams of a worker process, as `ChildProcess` has them."""

    async def write(self, data: bytes) -> None: ...

    async def read_line(self) -> bytes | None: ...

    async def ending(self) -> str: ...

    async def stop(self) -> object: ...


class WorkerHandle:
    """One worker process, which does one task at a time. `number` tells it from the others of the
    run."""

    where: str = ""
    """Where the process runs, in words; "": on this machine."""

    def __init__(self, pipe: Pipe, on_report: OnReport, number: int) -> None:
        self.number = number
        self._pipe = pipe
        self._on_report = on_report
        self._decoder = msgspec.json.Decoder(Report)

    @property
    def starts_in_ns(self) -> int:
        return START_AFTER_NS

    async def configure(self, command: Configure | SetWorkload) -> None:
        await self._write(command)

    async def release(self) -> None:
        await self._write(Release())

    async def do(
        self, task: Calibrate | SendBlock, on_measured: Callable[[], object] = lambda: None
    ) -> TaskEnded:
        """Send a task and pass on its reports until it has ended. Raises `WorkerLost` if the
        process dies.

        `on_measured` is called when the measured requests of a held block have ended.
        """
        await self._write(task)
        while (report := await self._read()) is not None:
            if isinstance(report, TaskEnded):
                return report
            if isinstance(report, MeasuredEnded):
                on_measured()
                continue
            self._on_report(report)
        raise await self._lost("during a task")

    async def _lost(self, when: str) -> WorkerLost:
        return WorkerLost(
            f"worker {await self._pipe.ending()} {when}",
            kind="worker_lost",
            phase="queue",
            hint="Its reports are kept; standard error may show the cause.",
        )

    async def stop(self) -> None:
        """Stop the process and pass on its last reports. A process that does not stop in time is
        killed."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._write(Stop())
                while (report := await self._read()) is not None:
                    self._on_report(report)
                await self._pipe.ending()
        except TimeoutError:
            pass
        finally:
            await self._pipe.stop()

    async def _write(self, command: Command) -> None:
        await self._pipe.write(msgspec.json.encode(command) + b"\n")

    async def _read(self) -> Report | None:
        line = await self._pipe.read_line()
        return self._decoder.decode(line) if line is not None else None


Worker = TypeVar("Worker", bound=WorkerHandle)


class WorkerPool:
    def __init__(self, command: Sequence[str], on_report: OnReport) -> None:
        self.on_report = on_report
        self._command = command
        self._numbers = count()
        self._workers: list[WorkerHandle] = []

    async def start(self) -> WorkerHandle:
        """Start a worker process on this machine. Raises `OSError` if the system cannot start
        one."""
        process = await ChildProcess.start(*self._command, longest_line=LONGEST_LINE)
        return self.add(WorkerHandle(process, self.on_report, self.next_number()))

    def add(self, worker: Worker) -> Worker:
        self._workers.append(worker)
        return worker

    def next_number(self) -> int:
        return next(self._numbers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        endings = await asyncio.gather(
            *(worker.stop() for worker in self._workers), return_exceptions=True
        )
        failures = [ending for ending in endings if ending is not None]
        if failures and error is None:
            raise failures[0]
