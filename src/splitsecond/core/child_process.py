"""A child process whose standard input is its lifeline: it ends when the pipe closes, however its
parent ends.

Commands go to its standard input and answers come from its standard output, one line each. What the
lines say is agreed upon by the modules that use it.
"""

import asyncio
import contextlib
import errno
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from splitsecond.core import clock


class ChildProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls,
        *command: str | bytes,
        answers: bool = True,
        longest_line: int = 1 << 16,
        inherited: Sequence[int] = (),
    ) -> Self:
        """Start `command`. Without `answers`, its standard output is the parent's.

        Raises `OSError`, also if the machine has no more processes, memory or file descriptors,
        which may pass (`passes`).
        """
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=pipe,
                stdout=pipe if answers else None,
                limit=longest_line,
                pass_fds=inherited,
                start_new_session=True,
            )
        except RuntimeError as error:
            # which asyncio starts for each process, to wait for it
            if "new thread" not in str(error):
                raise
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def write(self, data: bytes) -> None:
        """Send `data`. If the process is dead nothing is sent, and the next `read_line` returns at
        once."""
        stdin = self._process.stdin
        assert stdin is not None  # it is a pipe
        with contextlib.suppress(ConnectionError):
            stdin.write(data)
            await stdin.drain()

    async def read_line(self) -> bytes | None:
        stdout = self._process.stdout
        assert stdout is not None  # it is a pipe
        line = await stdout.readline()
        return line[:-1] if line.endswith(b"\n") else None

    async def read(self, most: int) -> bytes:
        """Return the bytes that have come, at most `most`; b"" at the end of its output. Waits for
        at least one."""
        stdout = self._process.stdout
        assert stdout is not None  # it is a pipe
        return await stdout.read(most)

    async def ending(self) -> str:
        return f"process {self.pid} {how_it_ended(await self.wait())}"

    async def wait(self) -> int:
        return await self._process.wait()

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def stop(self, patience_s: float = 0) -> int:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self._process.wait(), patience_s)
        finally:
            self.kill()
        return await self._process.wait()


STOP_S = 5.0


class ServerProcess(NamedTuple):
    """A server that was started. `lines`: those that it printed when it was ready.

    They are fewer than expected if it ended (with the exit `code`) or was not ready in time (`code`
    None). Then `errors` is the text of its standard error.
    """

    pid: int
    lines: list[str]
    code: int | None = None
    errors: str = ""


@contextlib.contextmanager
def server_process(
    command: Sequence[str], *, lines: int = 1, ready_s: float
) -> Iterator[ServerProcess]:
    """Run a server, for callers without an event loop, while the context is open.

    It is ready when it has printed `lines` lines, at most `ready_s` after its start. At the end it
    gets SIGTERM, and is killed if it has not ended after `STOP_S`.
    """
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=errors, start_new_session=True
        ) as process,
    ):
        try:
            first_lines, ended = _first_lines(process, lines, ready_s)
            if len(first_lines) == lines:
                yield ServerProcess(process.pid, first_lines)
            else:
                if ended:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(STOP_S)
                errors.seek(0)
                yield ServerProcess(
                    process.pid,
                    first_lines,
                    process.poll(),
                    errors.read().decode("utf-8", "replace").strip(),
                )
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _first_lines(
    process: "subprocess.Popen[bytes]", count: int, within_s: float
) -> tuple[list[str], bool]:
    assert process.stdout is not None  # it is a pipe
    pipe, output = process.stdout.fileno(), b""
    deadline_ns = clock.now_ns() + round(within_s * clock.NS_PER_S)
    while output.count(b"\n") < count:
        left_s = max(deadline_ns - clock.now_ns(), 0) / clock.NS_PER_S
        if not select.select([pipe], [], [], left_s)[0]:
            break
        if not (data := os.read(pipe, 65536)):
            return _lines(output), True
        output += data
    return _lines(output)[:count], False


def _lines(output: bytes) -> list[str]:
    return [line.decode() for line in output.split(b"\n")[:-1]]


def passes(error: OSError) -> bool:
    return error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


def how_it_ended(code: int) -> str:
    """Return how a process with that exit code ended, in words: "ended with exit code 3", "was
    ended by SIGKILL"."""
    if code >= 0:
        return f"ended with exit code {code}"
    return (
        f"was ended by "
        f"{next((each.name for each in signal.Signals if each == -code), f'signal {-code}')}"
    )
