"""A child process whose standard input is its lifeline: it ends when the pipe closes, however its parent ends.

Commands go to its standard input and answers come from its standard output, one line each. It runs in a session of its
own, so Ctrl-C at a terminal reaches only the parent, which decides what it means. What the lines say is agreed upon by
the modules that use it.
"""

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Sequence
from typing import Self


class ChildProcess:
    """A running child process. Call `stop` at the end, whatever happens."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls, *command: str | bytes, answers: bool = True, longest_line: int = 1 << 16, inherited: Sequence[int] = ()
    ) -> Self:
        """Start `command`. Without `answers`, its standard output is the parent's.

        `longest_line`: the longest answer in bytes. `inherited`: file descriptors that it gets. Raises `OSError`, also
        if the machine has no more processes, memory or file descriptors, which may pass (`passes`).
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
            if "new thread" not in str(error):  # which asyncio starts for each process, to wait for it
                raise
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        return cls(process)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    async def write(self, data: bytes) -> None:
        """Send `data`. If the process is dead nothing is sent, and the next `read_line` returns at once."""
        stdin = self._process.stdin
        assert stdin is not None  # it is a pipe
        with contextlib.suppress(ConnectionError):
            stdin.write(data)
            await stdin.drain()

    async def read_line(self) -> bytes | None:
        """Return the next whole line without its end; None if the process has closed its output, or died in a line."""
        stdout = self._process.stdout
        assert stdout is not None  # it is a pipe
        line = await stdout.readline()
        return line[:-1] if line.endswith(b"\n") else None

    async def read(self, most: int) -> bytes:
        """Return the bytes that have come, at most `most`; b"" at the end of its output. Waits for at least one."""
        stdout = self._process.stdout
        assert stdout is not None  # it is a pipe
        return await stdout.read(most)

    async def ending(self) -> str:
        """Wait until the process has ended, and return how, in words: "process 12 ended with exit code 3"."""
        return f"process {self.pid} {how_it_ended(await self.wait())}"

    async def wait(self) -> int:
        """Wait until the process has ended. Return its exit code; the negative number of a signal that ended it."""
        return await self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def stop(self, patience_s: float = 0) -> int:
        """Close its standard input, wait `patience_s`, and kill it if it has not ended. Return its exit code."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self._process.wait(), patience_s)
        finally:
            self.kill()
        return await self._process.wait()


def passes(error: OSError) -> bool:
    """Return whether a process could not start for want of something that others may release."""
    return error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


def how_it_ended(code: int) -> str:
    """Return how a process with that exit code ended, in words: "ended with exit code 3", "was ended by SIGKILL"."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by {next((each.name for each in signal.Signals if each == -code), f'signal {-code}')}"
