"""Worker processes, seen from the parent.

What a worker has reported is safe: it is passed on as it comes, and a worker that dies takes with it only what was not
yet said. Leaving the crew's context stops every process, whatever happened, all of them at the same time: each is
asked to, given `PATIENCE_S` to cancel what is under way and report it, and then killed.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import msgspec

from splitsecond.errors import Fault
from splitsecond.load.messages import Begin, Command, Ended, Learn, Prepare, Report, Send, Stop
from splitsecond.load.worker import LONGEST_LINE

WORKER_COMMAND = (sys.executable, "-m", "splitsecond.load.worker")
PATIENCE_S = 1.5

OnReport = Callable[[Report], None]


class WorkerLost(Fault):
    """A worker process died, and with it the task it was at. Ours to mend, not the provider's."""


class Member:
    """One worker process. It does one task at a time."""

    def __init__(self, process: asyncio.subprocess.Process, on_report: OnReport) -> None:
        self._process = process
        self._on_report = on_report
        self._decoder = msgspec.json.Decoder(Report)

    async def tell(self, command: Begin | Learn) -> None:
        """Something that it should know; nothing is reported back."""
        await self._say(command)

    async def do(self, task: Prepare | Send) -> Ended:
        """Give it a task and pass on its reports until the task has ended. Raises `WorkerLost` if it dies."""
        await self._say(task)
        while (report := await self._hear()) is not None:
            if isinstance(report, Ended):
                return report
            self._on_report(report)
        code = await self._process.wait()
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        raise WorkerLost(
            f"worker process {self._process.pid} ended {how} in the middle of a task",
            kind="worker_lost",
            phase="queue",
            hint="What it had reported is kept; its last words, if any, are on standard error.",
        )

    async def stop(self) -> None:
        """Stop the process and pass on its last reports."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._say(Stop())
                while (report := await self._hear()) is not None:
                    self._on_report(report)
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.communicate()

    async def _say(self, command: Command) -> None:
        stdin = self._process.stdin
        assert stdin is not None  # it is a pipe
        with contextlib.suppress(ConnectionError):  # it is dead, as reading will show
            stdin.write(msgspec.json.encode(command) + b"\n")
            await stdin.drain()

    async def _hear(self) -> Report | None:
        stdout = self._process.stdout
        assert stdout is not None  # it is a pipe
        line = await stdout.readline()
        return self._decoder.decode(line) if line.endswith(b"\n") else None  # else it died in the middle of a word


class Crew:
    """All worker processes of a run. An asynchronous context: they run at most as long as it is open."""

    def __init__(self, command: Sequence[str], on_report: OnReport) -> None:
        self._command = command
        self._on_report = on_report
        self._members: list[Member] = []

    async def hire(self) -> Member:
        """Start a worker process. Raises `OSError` if the system has none to give."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            start_new_session=True,  # a Ctrl-C at the terminal is for the parent
        )
        member = Member(process, self._on_report)
        self._members.append(member)
        return member

    @property
    def hired(self) -> int:
        """How many processes were started so far."""
        return len(self._members)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        endings = await asyncio.gather(*(member.stop() for member in self._members), return_exceptions=True)
        failures = [ending for ending in endings if ending is not None]
        if failures and error is None:
            raise failures[0]
